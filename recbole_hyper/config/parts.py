"""The options of a model's parts, and which of the model's settings apply when the user replaces a part."""

from collections.abc import Mapping
from typing import Any

from recbole_hyper import registry

# by the key that names a part: its kind, and the word for a part of that kind
PARTS = {"encoder": ("encoders", "encoder"), "geometry": ("geometry", "geometry"), "loss_type": ("losses", "loss")}
# keys of curved geometries and encoders
CURVATURE = ("curvature", "curvature_init", "curvature_learning_rate")


def part_of(key: str, name: str) -> Any:
    """Return the class of the part ``name`` of the key ``key``."""
    return registry.resolve(PARTS[key][0], name)


def part_keys(key: str, name: str) -> frozenset[str]:
    """Return the keys that belong to the part ``name`` of the key ``key``."""
    part = part_of(key, name)
    return frozenset({*part.defaults(), *(option.key for option in part.options().values())})


def is_curved(config: Any) -> bool:
    """Return whether the geometry or the encoder of ``config`` has a curvature."""
    curved: bool = part_of("geometry", config["geometry"]).curved
    return curved or "curvature" in part_keys("encoder", config["encoder"])


def part_name(key: str, part: Any) -> Any:
    """Return the name of a part, which may be a name, a class or None; ConfigError for a class of another kind."""
    if isinstance(part, type):
        return registry.name_of(PARTS[key][0], part)
    return None if part is None else str(part)


def parts_of_model(
    own: Mapping[str, str | type], model_yaml: Mapping[str, Any], keys: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the parts of a model by key, and the entries of its YAML that apply to them.

    A setting in the YAML for a part applies only if the model uses that part.

    Args:
        own: the parts that the model's class names.
        model_yaml: content of the model's YAML, which may name other parts.
        keys: keys of the user, whose parts replace both.
    """
    default = {key: part_name(key, model_yaml.get(key) or own[key]) for key in PARTS}
    parts = {key: part_name(key, keys.get(key) or default[key]) for key in PARTS}
    replaced, used = set[str](), set[str]()
    for key, name in default.items():
        (used if parts[key] == name else replaced).update(part_keys(key, name))
    return parts, {key: value for key, value in model_yaml.items() if key not in replaced - used}
