"""The settings of a model's parts, and which of the model's own hold when another part takes the place of one.

A key belongs to a part that names it in its YAML or takes it as an option of its constructor. A model's YAML may set
such keys for its own parts. They hold while the model has a part that they belong to; the YAML of the part that it has
holds else.
"""

import functools
from collections.abc import Mapping
from typing import Any

from recbole_hyper import registry
from recbole_hyper.yaml_files import properties_folder, read_yaml

# by the key that names the part: its kind, and the folder of its YAMLs, also the prefix of its options
PARTS = {"encoder": ("encoders", "encoder"), "geometry": ("geometry", "geometry"), "loss_type": ("losses", "loss")}
# of an encoder from outside the package that has no YAML: the item vectors have a width whatever encodes them
WIDTH = {"hidden_size": 64}
# keys of what is curved
CURVATURE = ("curvature", "curvature_init", "curvature_learning_rate")


def part_settings(key: str, name: str) -> dict[str, Any]:
    """Return the YAML of the part ``name``, or what it needs where it has none; ``key`` names it."""
    kind, folder = PARTS[key]
    registry.resolve(kind, name)
    file = properties_folder() / folder / f"{name}.yaml"
    if file.is_file():
        return read_yaml(file)
    return dict(WIDTH) if key == "encoder" else {}


@functools.cache
def part_keys(key: str, name: str) -> frozenset[str]:
    """Return the keys that belong to the part ``name``."""
    kind, prefix = PARTS[key]
    options = registry.resolve(kind, name).option_parameters()
    spelled = {spelling for option in options for spelling in registry.option_keys(option, name, prefix)}
    return frozenset(spelled | set(part_settings(key, name)))


def is_curved(config: Any) -> bool:
    """Return whether the geometry or the encoder that ``config`` names has a curvature."""
    encoder = registry.resolve("encoders", config["encoder"])
    curved = registry.resolve("geometry", config["geometry"]).curved
    return curved or "curvature" in encoder.option_parameters()


def reads_times(config: Any) -> bool:
    """Return whether batches need the times of the items: whether the model has an encoder that reads them."""
    if not registry.parts_of(config.model_class):
        return False
    return registry.resolve("encoders", config["encoder"]).reads_times


def part_name(key: str, part: Any) -> Any:
    """Return the name of a part that is given by name or as a class, None for none; ConfigError for a class of none."""
    if isinstance(part, type):
        return registry.name_of(PARTS[key][0], part)
    return None if part is None else str(part)


def settings_of_model(
    own: Mapping[str, str | type], model_yaml: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the parts of a model, and the settings of these parts and of the model, later ones win.

    ``own`` are the parts that the model's class sets, by name or as classes; the model's YAML may name parts too, and
    what the user has ``given`` as ``encoder``, ``geometry`` and ``loss_type`` replaces them.
    """
    default = {key: part_name(key, model_yaml.get(key) or own[key]) for key in PARTS}
    parts = {key: part_name(key, given.get(key) or default[key]) for key in PARTS}
    layers = [part_settings(key, name) for key, name in parts.items()]
    lost, kept = set[str](), set[str]()
    for key, name in default.items():
        (kept if parts[key] == name else lost).update(part_keys(key, name))
    layers.append({key: value for key, value in model_yaml.items() if key not in lost - kept})
    return parts, layers
