"""The options of a model's parts, and which of the model's settings apply when a part is replaced.

A model's setting for a part applies only if the model uses that part.
"""

from collections.abc import Mapping
from typing import Any

from recbole_hyper import registry
from recbole_hyper.options import Option

# by the key that names the part: its kind, and the word for one of them
PARTS = {"encoder": ("encoders", "encoder"), "geometry": ("geometry", "geometry"), "loss_type": ("losses", "loss")}
# keys of what is curved
CURVATURE = ("curvature", "curvature_init", "curvature_learning_rate")


def part_defaults(key: str, name: str) -> dict[str, Any]:
    """Return the defaults of the part ``name``, by configuration key; ``key`` names it."""
    return registry.resolve(PARTS[key][0], name).defaults()


def part_options(key: str, name: str) -> dict[str, Option]:
    """Return the options of the part ``name``, by configuration key."""
    return {option.key: option for option in registry.resolve(PARTS[key][0], name).options().values()}


def part_keys(key: str, name: str) -> frozenset[str]:
    """Return the keys that belong to the part ``name``."""
    return frozenset({*part_defaults(key, name), *part_options(key, name)})


def is_curved(config: Any) -> bool:
    """Return whether the geometry or the encoder that ``config`` names has a curvature."""
    curved = registry.resolve("geometry", config["geometry"]).curved
    return curved or "curvature" in part_options("encoder", config["encoder"])


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


def parts_of_model(
    own: Mapping[str, str | type], model_yaml: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the parts of a model by the keys that name them, and what of its YAML applies to these.

    ``own`` are the parts that the model's class sets, by name or as classes; the model's YAML may name parts too, and
    what the user has ``given`` as ``encoder``, ``geometry`` and ``loss_type`` replaces them.
    """
    default = {key: part_name(key, model_yaml.get(key) or own[key]) for key in PARTS}
    parts = {key: part_name(key, given.get(key) or default[key]) for key in PARTS}
    replaced, used = set[str](), set[str]()
    for key, name in default.items():
        (used if parts[key] == name else replaced).update(part_keys(key, name))
    return parts, {key: value for key, value in model_yaml.items() if key not in replaced - used}
