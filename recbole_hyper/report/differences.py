"""How runs differ: the configuration keys that a model reads and that have different values."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from recbole.utils import ModelType

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.recbole_keys import REFUSED
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import METRICS, PLACE
from recbole_hyper.settings import deciding

# where, how and by what a run is measured, not what is trained
PLACE_KEYS = deciding(PLACE, METRICS) | {"seed", "model", "dataset", "device", *REFUSED}
MAIN_KEYS = ("hidden_size", "n_layers", "learning_rate", "train_batch_size", "n_negatives", "curvature")
LEGEND_WIDTH = 48


def read_settings(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that decides what ``model`` learns."""
    bound = _bound(model)
    # what is fitted in one step is not selected
    one_step = bound is not None and bound["MODEL_TYPE"] == ModelType.TRADITIONAL
    apart = PLACE_KEYS | ({"valid_metric"} if one_step else set())
    return {key: value for key, value in config.items() if key not in apart and not (bound and bound.ignores(key))}


@functools.cache
def _bound(model: str) -> Config | None:
    """Return the configuration of a model of RecBole; None where all keys may be read: of ours, or an unknown one."""
    try:
        config = Config(model, config_dict={"interactions": "given"})
    except (ConfigError, ImportError):
        return None
    return None if issubclass(config.model_class, HyperRecommender) else config


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all of ``settings``, the best known first."""
    keys = dict.fromkeys(key for entry in settings for key in entry)
    keys_that_differ = [key for key in keys if len({canonical(entry.get(key)) for entry in settings}) > 1]
    return sorted(keys_that_differ, key=lambda key: (MAIN_KEYS.index(key) if key in MAIN_KEYS else len(MAIN_KEYS), key))


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def in_words(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    return ", ".join(
        f"{key}={value:.10g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )


def legend_text(label: str) -> str:
    """Return a label in lines of at most about ``LEGEND_WIDTH`` letters, broken behind commas; no formula in it."""
    lines = [""]
    for part in label.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) > LEGEND_WIDTH:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + part
    return ",\n".join(lines).replace("$", r"\$")
