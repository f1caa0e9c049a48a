"""The settings of a model's parts, and which of the model's own hold when another part takes the place of one.

A key belongs to a part that names it in its YAML or takes it as an option of its constructor. A model's YAML may set
such keys for its own parts. They hold while the model has a part that they belong to; the YAML of the part that it has
holds else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from recbole_hyper import components
from recbole_hyper.yaml_files import properties_folder, read_yaml

# by the key that names the part: its family of components, the folder of its YAMLs, the prefix of its options
PARTS = {
    "encoder": ("encoders", "encoder", "encoder"),
    "geometry": ("geometry", "geometry", "geometry"),
    "loss_type": ("losses", "loss", "loss"),
}


def part_settings(key: str, name: str) -> dict[str, Any]:
    """Return the YAML of the part ``name``, {} where it has none; ``key`` is encoder, geometry or loss_type.

    Raises:
        UnknownComponentError: no such part.
    """
    family, folder, _ = PARTS[key]
    components.resolve(family, name)
    file = properties_folder() / folder / f"{name}.yaml"
    return read_yaml(file) if file.is_file() else {}


@functools.cache
def part_keys(key: str, name: str) -> frozenset[str]:
    """Return the keys that belong to the part ``name``."""
    family, _, prefix = PARTS[key]
    parameters = inspect.signature(components.resolve(family, name)).parameters.values()
    options = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    spelled = {f"{before}{option}" for option in options for before in ("", f"{name}_", f"{prefix}_")}
    return frozenset(spelled | set(part_settings(key, name)))


def settings_of_model(
    own: Mapping[str, str], model_yaml: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the parts of a model, and the settings of these parts and of the model, later ones win.

    Args:
        own: names of the parts that the model's class sets.
        model_yaml: content of the model's YAML, which may name parts too.
        given: what the user sets; ``encoder``, ``geometry`` and ``loss_type`` replace a part.
    """
    default = {key: str(model_yaml.get(key) or own[key]) for key in PARTS}
    parts = {key: str(given.get(key) or default[key]) for key in PARTS}
    layers = [part_settings(key, name) for key, name in parts.items()]
    lost, kept = set[str](), set[str]()
    for key, name in default.items():
        (kept if parts[key] == name else lost).update(part_keys(key, name))
    layers.append({key: value for key, value in model_yaml.items() if key not in lost - kept})
    return parts, layers
