"""What a configuration must satisfy before any data are read: types, ranges, metrics, and the words of eval_args."""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recbole.evaluator.register import metric_information, metric_types

from recbole_hyper import components
from recbole_hyper.errors import ConfigError

# keys whose type may differ from that of their default
FREE_KEYS = {
    "curvature",
    "metrics",
    "topk",
    "eval_args",
    "gpu_id",
    "train_neg_sample_args",
    "load_col",
}
EVAL_KEYS = ("split", "order", "group_by", "mode", "successive")
# the smallest number that float32 holds in full
_SMALLEST = 2.0**-126
_FLOAT32 = f"a number above 0 that float32 holds ({_SMALLEST:.2g} to {1 / _SMALLEST:.2g})"
_MODE = re.compile(r"full|(uni|pop)[1-9][0-9]*")
_INTERVAL = re.compile(r"\s*[\[(]\s*(\S+?)\s*,\s*(\S+?)\s*[\])]\s*")


def check_types(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError where a value has another type than the default that it replaces."""
    for key, value in given.items():
        default = defaults.get(key)
        if value is None or default is None or key in FREE_KEYS:
            continue
        if isinstance(default, bool):
            good, wanted = isinstance(value, bool), "true or false"
        elif isinstance(default, int):
            good, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        elif isinstance(default, float):
            good, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        elif isinstance(default, str):
            good, wanted = isinstance(value, str), "text"
        else:
            continue
        if not good:
            raise ConfigError(f"{key}={value!r}: {wanted} is expected (default: {default!r})")


def check_ranges(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError for a value outside its range, or for ~ where the default is a number."""
    for key, (good, wanted) in RANGES.items():
        value = config.get(key)
        if value is None and defaults.get(key) is None:
            continue
        if not (is_number(value) and good(value)):
            raise ConfigError(f"{key}={value!r}: {wanted} is expected")
    for key, value in config.items():
        if key.endswith("dropout_prob") and not (is_number(value) and 0 <= value < 1):
            raise ConfigError(f"{key}={value!r}: a number in [0, 1) is expected")
        if key.endswith("_num_interval") and value is not None:
            check_interval(key, value)
    betas = config.get("adam_betas")
    if betas is not None and not (
        isinstance(betas, list) and len(betas) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in betas)
    ):
        raise ConfigError(f"adam_betas={betas!r}: two numbers in [0, 1) are expected, such as [0.9, 0.999]")
    clip = config.get("clip_grad_norm")
    if clip is not None and not (isinstance(clip, dict) and set(clip) <= {"max_norm", "norm_type"}):
        raise ConfigError(f"clip_grad_norm={clip!r}: {{'max_norm': 5.0, 'norm_type': 2}} is expected")
    plateau = config.get("lr_plateau")
    if plateau and not (
        isinstance(plateau, dict)
        and set(plateau) <= {"factor", "patience"}
        and 0 < plateau.get("factor", 0.5) < 1
        and plateau.get("patience", 5) >= 0
    ):
        raise ConfigError(f"lr_plateau={plateau!r}: {{factor: 0.5, patience: 5}} is expected, factor in (0, 1)")
    check_curvature(config.get("curvature"))
    keep = config.get("rm_dup_inter")
    if keep not in (None, "first", "last"):
        raise ConfigError(f"rm_dup_inter={keep!r}: first, last or ~ (keep all) is expected")


def check_curvature(value: Any) -> None:
    """Raise ConfigError for a curvature that is no number in the arithmetic of the models, which is float32."""
    if isinstance(value, str) or value is None:
        return  # auto, learn, or a word that the model refuses
    if not (is_number(value) and _in_float32(value)):
        raise ConfigError(
            f"curvature={value!r}: {_FLOAT32}, 'auto' (estimated from the training data) or 'learn' is expected"
        )


def check_load_col(columns: Any) -> None:
    """Raise ConfigError unless ``load_col`` names columns by atomic file."""
    mapping = isinstance(columns, dict) and all(names == "*" or isinstance(names, list) for names in columns.values())
    if not mapping and columns is not None:
        raise ConfigError(
            f"load_col={columns!r}: columns by atomic file are expected, such as {{inter: [user_id, ...]}}"
        )


def check_combinations(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for keys that do not go together, or that this package does not offer."""
    learner, decay = config.get("learner"), config.get("weight_decay")
    if config.get("rowwise_update") and (str(learner).lower() != "adam" or decay):
        raise ConfigError(
            f"rowwise_update: true goes with learner: adam and no weight_decay, which touches every row; "
            f"got learner={learner!r}, weight_decay={decay!r}"
        )
    if config.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        raise ConfigError("log_wandb: true needs the package wandb; install it, or leave it out")


def check_interval(key: str, text: Any) -> None:
    """Raise ConfigError unless ``text`` is intervals as RecBole reads them, such as "[5,inf)" or "(0,1];[3,4]".

    RecBole only logs a wrong one, and then filters nothing.
    """
    for part in str(text).split(";"):
        ends = _INTERVAL.fullmatch(part)
        try:
            good = ends is not None and float(ends[1]) <= float(ends[2])
        except ValueError:
            good = False
        if not good:
            raise ConfigError(f"{key}={text!r}: an interval is expected, such as [5,inf) or [5,100]")


def check_eval_args(arguments: Any) -> None:
    """Raise ConfigError for words of ``eval_args`` that would be ignored, and for a mode that cannot be ranked."""
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"eval_args={arguments!r}: a mapping is expected, such as {{mode: full}}")
    for key in arguments:
        if key not in EVAL_KEYS:
            near = difflib.get_close_matches(str(key), EVAL_KEYS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"eval_args: unknown key {key!r}; known: {', '.join(EVAL_KEYS)}{hint}")
    split = arguments.get("split")
    if isinstance(split, Mapping):
        for name in split:
            components.resolve("protocols", str(name))
    if arguments.get("group_by", "user") != "user":
        raise ConfigError(
            f"eval_args group_by={arguments['group_by']!r}: every split is made by user, set group_by: user"
        )
    if not isinstance(arguments.get("successive", False), bool):
        raise ConfigError(f"eval_args successive={arguments['successive']!r}: true or false is expected")
    mode = arguments.get("mode", "full")
    modes = mode if isinstance(mode, Mapping) else {"valid": mode}
    if not set(modes) <= {"valid", "test"}:
        raise ConfigError(f"eval_args mode={mode!r}: one mode, or {{valid: ..., test: ...}}, is expected")
    for value in modes.values():
        if not (isinstance(value, str) and (_MODE.fullmatch(value) or Path(value).is_file())):
            raise ConfigError(
                f"eval_args mode {value!r} is not offered; allowed: full, uniN or popN (N sampled candidates: uni99), "
                "or the path of a file with the candidates of each user"
            )


# what of RecBole's metrics a ranking gives
SUPPORTED_NEEDS = {
    "rec.topk",
    "rec.items",
    "rec.meanrank",
    "data.num_items",
    "data.num_users",
    "data.count_items",
    "data.count_users",
}


def check_metrics(metrics: Any, topk: Any) -> None:
    """Raise ConfigError for metrics that ranks do not give, or cut-offs that are no whole numbers above 0."""
    names = [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"metrics={metrics!r}: a list of names is expected, such as [NDCG, Hit]")
    for metric in names:
        name = metric.lower()
        if name not in metric_types:
            near = difflib.get_close_matches(name, metric_types, n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"metric {metric!r} is unknown; known: {', '.join(sorted(metric_types))}.{hint}")
        missing = set(metric_information[name]) - SUPPORTED_NEEDS
        if missing:
            raise ConfigError(f"metric {name!r} needs {', '.join(sorted(missing))}, which a ranking does not give")
    cuts = topk if isinstance(topk, list) else [topk]
    if not cuts or not all(is_number(k) and _whole(1)(k) for k in cuts):
        raise ConfigError(f"topk={topk!r}: whole numbers of at least 1 are expected, such as [1, 5, 10]")


def check_valid_metric(valid_metric: Any, metrics: list[str], topk: list[int]) -> None:
    """Raise ConfigError unless the metric of the selection is among those that are computed."""
    name, at, k = str(valid_metric).lower().partition("@")
    known = name in [metric.lower() for metric in metrics]
    # a metric of the mean rank has no cut-off
    cut = known and "rec.meanrank" not in metric_information[name]
    # written as a result writes it: @010 would be a column of its own
    if not known or (cut and k not in map(str, topk)) or (at and not cut):
        raise ConfigError(f"valid_metric={valid_metric!r} is not computed: metrics are {metrics} at topk {topk}")


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and value >= low


def _in_float32(value: float) -> bool:
    return _SMALLEST <= value <= 1 / _SMALLEST


def _above(low: float) -> Callable[[Any], bool]:
    return lambda value: value > low


_FROM_0 = (_whole(0), "a whole number of at least 0")
_FROM_1 = (_whole(1), "a whole number of at least 1")
_POSITIVE = (_above(0), "a number above 0")

RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "hidden_size": _FROM_1,
    "inner_size": _FROM_1,
    "n_layers": _FROM_1,
    "n_heads": _FROM_1,
    "MAX_ITEM_LIST_LENGTH": _FROM_1,
    "layer_norm_eps": _POSITIVE,
    "initializer_range": _POSITIVE,
    "train_batch_size": _FROM_1,
    "eval_batch_size": _FROM_1,
    "epochs": _FROM_0,
    "eval_step": _FROM_0,
    "stopping_step": _FROM_0,
    "checkpoint_step": _FROM_1,
    "n_threads": _FROM_1,
    "num_workers": _FROM_1,
    "memory_limit": _FROM_1,
    "n_negatives": _FROM_1,
    "seed": _FROM_0,
    "candidate_seed": _FROM_0,
    "learning_rate": _POSITIVE,
    "manifold_learning_rate": _POSITIVE,
    "stabilize": _FROM_1,
    "curvature_init": (_in_float32, _FLOAT32),
    "curvature_learning_rate": _POSITIVE,
    "tail_ratio": _POSITIVE,
    "weight_decay": (lambda value: value >= 0, "a number of at least 0"),
    "ranking_memory_budget": _FROM_1,
    "metric_decimal_place": (lambda value: _whole(0)(value) and value <= 15, "a whole number from 0 to 15"),
    "loss_memory_budget": _FROM_1,
    "confidence": (lambda value: 0 < value < 1, "a share between 0 and 1, such as 0.95"),
}
