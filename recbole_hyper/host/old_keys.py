"""Translates keys of earlier RecBole releases.

RecBole silently ignores old names, and so trains on other data than the author intended. Sources: RecBole's properties
and configurator at v0.1.1, v0.2.1, v1.0.1 and v1.1.0.
"""

from collections.abc import Callable, Mapping
from typing import Any

from recbole_hyper.errors import ConfigError

# RecBole sets these itself; a value in a file has no effect
SET_BY_RECBOLE = {
    *("MODEL_TYPE", "MODEL_INPUT_TYPE", "device", "eval_type", "single_spec"),
    *("eval_neg_sample_args", "valid_neg_sample_args", "test_neg_sample_args"),
}
# keys that no longer have an effect, and why they need none
GONE = {
    "real_time_process": "batches are always made when they are needed",
    "drop_filter_field": "a column that is only read to filter by is always dropped",
    "fill_nan": "missing values are always filled",
    "drop_preload_weight": "it had no effect on results",
    "draw_loss_pic": "train.csv in the run's folder has the losses",
}
REFUSED = {
    "fields_in_same_space": "since 1.0, alias_of_user_id and alias_of_item_id let fields share ids",
}
_INTERVALS = [f"{kind}_inter_num_interval" for kind in ("user", "item")]
_OLD_NEGATIVES = ("training_neg_sample_num", "training_neg_sample_distribution")
_OLD_EVALUATION = ("eval_setting", "group_by_user", "split_ratio", "leave_one_num")
_ORDERS, _SPLITS = ("RO", "TO"), ("RS", "LS")
_BOUNDS = ("lowest_val", "highest_val", "equal_val", "not_equal_val")

# the old keys, and the new ones that stand for them
TRANSLATED = (
    *(*REFUSED, *GONE, *_BOUNDS, *_OLD_NEGATIVES, *_OLD_EVALUATION, *_INTERVALS),
    *(f"{end}_{kind}_inter_num" for kind in ("user", "item") for end in ("min", "max")),
    *("neg_sampling", "train_neg_sample_args", "val_interval", "eval_args"),
)

Remark = Callable[[str, str], None]


def translated(keys: Mapping[str, Any], where: str, *, sequential: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Return keys called ``TRANSLATED`` of one file (``where``) with today's names, and a line for each change.

    A new name in the same file wins over an old one. The default of ``eval_setting`` depends on whether the model is
    ``sequential``. ConfigError for a key that cannot be translated.
    """
    content, lines, renamed = dict(keys), list[str](), dict[str, Any]()

    def remark(old: str, text: str) -> None:
        lines.append(f"{old} is from an earlier release of RecBole: {text}")

    for key, why in REFUSED.items():
        if content.pop(key, None) is not None:
            raise ConfigError(f"{where}: RecBole no longer has {key}: {why}")
    for key, why in GONE.items():
        if key in content:
            content.pop(key)
            remark(key, why)
    for rule in (_counts, _values, _negatives, _evaluation):
        renamed |= rule(content, remark, sequential)
    for key in [key for key in renamed if key in content and key != "eval_args"]:
        lines.append(f"{key}={content[key]!r} is in the file too and is used")
        del renamed[key]
    if "eval_args" in renamed and isinstance(content.get("eval_args"), Mapping):
        renamed["eval_args"] = {**renamed["eval_args"], **content["eval_args"]}
    return {**content, **renamed}, lines


def renamed_loss(keys: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return ``loss_type: CE`` as this package's ``ce``; ConfigError for ``BPR``, which its models do not have."""
    if keys.get("loss_type") == "BPR":
        raise ConfigError(
            f"loss_type='BPR': {model} has no such loss. loss_type=bce also draws negatives (n_negatives), but judges "
            "each score by itself; loss_type=ce compares the target with all items; RecBole's own models have BPR"
        )
    return {"loss_type": "ce"} if keys.get("loss_type") == "CE" else keys


def _counts(content: dict[str, Any], remark: Remark, _: bool) -> dict[str, Any]:
    """``min_user_inter_num: 5``, ``max_user_inter_num: 100``: ``user_inter_num_interval: "[5,100]"``."""
    intervals = {}
    for kind in ("user", "item"):
        names = [f"{end}_{kind}_inter_num" for end in ("min", "max")]
        if not any(name in content for name in names):
            continue
        old = [name for name in names if name in content]
        low, high = (content.pop(name, None) for name in names)
        value = f"[{low or 0},{high}]" if high else f"[{low or 0},inf)"
        intervals[f"{kind}_inter_num_interval"] = value
        remark(" and ".join(old), f'{kind}_inter_num_interval="{value}"')
    return intervals


def _values(content: dict[str, Any], remark: Remark, _: bool) -> dict[str, Any]:
    """``lowest_val: {rating: 3}``, ``not_equal_val``...: ``val_interval: {rating: "[3,inf)"}``."""
    old = [name for name in _BOUNDS if name in content]
    bounds: dict[str, dict[str, float]] = {}
    for name in old:
        limits = content.pop(name) or {}
        if not isinstance(limits, Mapping):
            raise ConfigError(f"{name}={limits!r}: write a mapping such as {{rating: 3}}")
        for field, value in limits.items():
            bounds.setdefault(field, {})[name] = value
    intervals = {field: _interval(limits) for field, limits in bounds.items()}
    if old:
        remark(" and ".join(old), f"val_interval={intervals}" if intervals else "it drops nothing")
    return {"val_interval": intervals} if intervals else {}


def _interval(bounds: Mapping[str, float | None]) -> str:
    """Return the interval that satisfies all bounds, as RecBole writes intervals."""
    lowest, highest, equal, unequal = (bounds.get(name) for name in _BOUNDS)
    low = "(-inf" if lowest is None else f"[{lowest}"
    high = "inf)" if highest is None else f"{highest}]"
    if equal is not None:
        return f"[{equal},{equal}]"
    return f"{low},{high}" if unequal is None else f"{low},{unequal});({unequal},{high}"


def _negatives(content: dict[str, Any], remark: Remark, _: bool) -> dict[str, Any]:
    """The keys of 0.x and 1.0 for negative sampling: ``train_neg_sample_args``, also in its form ``{uniform: 1}``."""
    old = " and ".join(name for name in _OLD_NEGATIVES if name in content)
    if old:
        number, distribution = (
            content.pop(name, default) for name, default in zip(_OLD_NEGATIVES, (1, None), strict=True)
        )
        value = {"distribution": distribution or "uniform", "sample_num": number} if number else None
    elif "neg_sampling" in content:
        old, sampling = "neg_sampling", content.pop("neg_sampling")
        value = _form_of_1_0(sampling)
        if sampling is not None and value is None:
            raise ConfigError(f"neg_sampling={sampling!r}: write ~ or {{uniform: 1}}")
    else:
        old = f"train_neg_sample_args={content.get('train_neg_sample_args')}"
        value = _form_of_1_0(content.get("train_neg_sample_args"))
        if value is None:
            return {}
        del content["train_neg_sample_args"]
    remark(old, f"train_neg_sample_args={value}")
    return {"train_neg_sample_args": value}


def _form_of_1_0(sampling: Any) -> dict[str, Any] | None:
    """Return ``{uniform: 2, dynamic: 5}`` as today's mapping, None for anything else."""
    if not isinstance(sampling, Mapping):
        return None
    distribution = next((name for name in ("uniform", "popularity") if name in sampling), None)
    if distribution is None or not set(sampling) <= {distribution, "dynamic"}:
        return None
    count = sampling.get("dynamic")
    dynamic = {"dynamic": True, "candidate_num": int(count)} if isinstance(count, int) and count else {}
    return {"distribution": distribution, "sample_num": sampling[distribution], **dynamic}


def _evaluation(content: dict[str, Any], remark: Remark, sequential: bool) -> dict[str, Any]:
    """``eval_setting: TO_LS,full`` with ``group_by_user``, ``split_ratio`` and ``leave_one_num``: ``eval_args``."""
    old = [name for name in _OLD_EVALUATION if name in content]
    if not old:
        return {}
    setting, by_user, ratio, held_out = (content.pop(name, None) for name in _OLD_EVALUATION)
    if isinstance(setting, Mapping):
        raise ConfigError(f"eval_setting={setting!r}: RecBole ignores this key; a mapping belongs into eval_args")
    is_default = setting is None
    if is_default:
        setting = "TO_LS,full" if sequential else "RO_RS,full"
    words = [word.strip() for word in str(setting).split(",")]
    order, _, split = words[0].partition("_")
    if order not in _ORDERS or split not in _SPLITS or len(words) > 2:
        raise ConfigError(f"eval_setting={setting!r}: write RO or TO, RS or LS, and a mode, such as TO_LS,full")
    if split == "LS" and held_out not in (None, 2):
        raise ConfigError(
            f"leave_one_num={held_out!r}: RecBole held out two interactions, for validation and test; to hold out one, "
            "write eval_args: {split: {LS: test_only}}"
        )
    value: dict[str, Any] = {
        "split": {"LS": "valid_and_test"} if split == "LS" else {"RS": ratio or [0.8, 0.1, 0.1]},
        "order": order,
        "group_by": "user" if by_user in (None, True) or split == "LS" else "none",
        # without a mode RecBole ranked by labels
        "mode": words[1] if len(words) == 2 else "labeled",
    }
    default = f" (the default for such a model was {setting})" if is_default else ""
    unread = "split_ratio" if split == "LS" and ratio is not None else ""
    unread = "leave_one_num" if split == "RS" and held_out is not None else unread
    remark(" and ".join(old), f"eval_args={value}{default}" + (f"; {unread} had no effect" if unread else ""))
    return {"eval_args": value}
