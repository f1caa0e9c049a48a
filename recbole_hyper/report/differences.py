"""What tells runs apart: the configuration keys that a model reads and whose values differ."""

import functools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recbole.utils import ModelType

from recbole_hyper import keys
from recbole_hyper.config import RECBOLE_PROPERTIES, ConfigError, model_class, properties_folder, read_yaml
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.recbole_keys import REFUSED

# where, how and by what a run is measured, not what is trained
PLACE_KEYS = keys.deciding(keys.PLACE, keys.METRICS) | {"seed", "model", "dataset", "device", *REFUSED}
# keys of the package that every model obeys, beside RecBole's
COMMON_KEYS = {"eval_args", "exclude_seen", "refit", "candidate_seed"}
MAIN_KEYS = ("hidden_size", "n_layers", "learning_rate", "train_batch_size", "n_negatives", "curvature")
LEGEND_WIDTH = 48


def read_settings(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that decides what ``model`` learns."""
    known = _read_keys(model)
    return {key: value for key, value in config.items() if key not in PLACE_KEYS and (known is None or key in known)}


@functools.cache
def _read_keys(model: str) -> frozenset[str] | None:
    """Return the keys that a model reads; None for all: a model of our own trainer, or one that is not known."""
    try:
        kind: Any = model_class(model)
    except (ConfigError, ImportError):
        return None
    if issubclass(kind, HyperRecommender):
        return None
    data = set(read_yaml(RECBOLE_PROPERTIES / "dataset" / "sample.yaml"))
    training = set(read_yaml(RECBOLE_PROPERTIES / "overall.yaml")) | {"loss_type"}
    # a model that is fitted in one step has no epochs and no learning rate
    general = data if kind.type == ModelType.TRADITIONAL else data | training
    # histories are cut for sequential models alone
    cut = set() if kind.type == ModelType.SEQUENTIAL else {"MAX_ITEM_LIST_LENGTH"}
    return frozenset(general - cut | _own_keys(model) | COMMON_KEYS)


def _own_keys(model: str) -> set[str]:
    files = (folder / "model" / f"{model}.yaml" for folder in (RECBOLE_PROPERTIES, properties_folder()))
    return {key for file in files if file.is_file() for key in read_yaml(file)}


def main_keys(model: str) -> list[str]:
    """Return the keys that stand for a run which nothing sets apart from others."""
    known = _read_keys(model)
    if known is None:
        return list(MAIN_KEYS)
    own = _own_keys(model) - PLACE_KEYS
    return [*(key for key in MAIN_KEYS if key in known), *sorted(own - set(MAIN_KEYS))]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all of ``settings``, the best known first."""
    keys = dict.fromkeys(key for entry in settings for key in entry)
    found = [key for key in keys if len({canonical(entry.get(key)) for entry in settings}) > 1]
    return sorted(found, key=lambda key: (MAIN_KEYS.index(key) if key in MAIN_KEYS else len(MAIN_KEYS), key))


def usual(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what more than half of at least four ``settings`` have in common, of the keys that differ among them."""
    found = {}
    for key in differing(settings) if len(settings) > 3 else []:
        counts = Counter(canonical(entry.get(key)) for entry in settings)
        text, count = counts.most_common(1)[0]
        if count > len(settings) / 2:
            found[key] = next(entry.get(key) for entry in settings if canonical(entry.get(key)) == text)
    return found


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def in_words(settings: Mapping[str, Any], digits: int = 10) -> str:
    """Return settings in one line; with the digits of the default other settings are other words."""
    return ", ".join(
        f"{key}={value:.{digits}g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )


def legend_text(label: str) -> str:
    """Return a label in lines of at most about ``LEGEND_WIDTH`` letters, broken behind commas; no formula in it."""
    lines = [""]
    for part in label.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) > LEGEND_WIDTH:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + part
    return ",\n".join(lines).replace("$", r"\$")
