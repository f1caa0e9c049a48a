"""How runs differ: the keys that a model reads and whose values differ."""

import functools
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.recbole_keys import REFUSED
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import METRICS, PLACE
from recbole_hyper.settings import deciding

# keys that do not change what is learned: files, hardware, metrics
PLACE_KEYS = deciding(PLACE, METRICS) | {"seed", "model", "dataset", "device", *REFUSED}
MAIN_KEYS = ("hidden_size", "n_layers", "learning_rate", "train_batch_size", "n_negatives", "curvature")
LEGEND_WIDTH = 48


def read_settings(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that decides what ``model`` learns."""
    bound = _bound(model)
    # a model that is fitted in one step has no epochs to select from
    one_step = bound is not None and bound["MODEL_TYPE"].name == "TRADITIONAL"
    ignored = PLACE_KEYS | ({"valid_metric"} if one_step else set())
    return {key: value for key, value in config.items() if key not in ignored and not (bound and bound.ignores(key))}


@functools.cache
def _bound(model: str) -> Config | None:
    """Return the configuration of a RecBole model; None for our models and unknown ones, which may read any key."""
    try:
        config = Config(model, config_dict={"interactions": "given"})
    except (ConfigError, ImportError):
        return None
    return None if issubclass(config.model_class, HyperRecommender) else config


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ between ``settings``, the most important first."""
    keys = {key for entry in settings for key in entry}
    differ = [key for key in keys if len({canonical(entry.get(key)) for entry in settings}) > 1]
    return sorted(differ, key=lambda key: (MAIN_KEYS.index(key) if key in MAIN_KEYS else len(MAIN_KEYS), key))


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def in_words(settings: Mapping[str, Any]) -> str:
    """Return settings on one line."""
    return ", ".join(
        f"{key}={value:.10g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )


def legend_text(label: str) -> str:
    """Return a label broken into lines of at most ``LEGEND_WIDTH`` letters, without TeX formulas."""
    return textwrap.fill(label, LEGEND_WIDTH, break_long_words=False).replace("$", r"\$")
