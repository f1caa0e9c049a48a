"""Translates keys of earlier RecBole releases.

RecBole silently ignores old names, and so trains on other data than the author intended. Sources: RecBole's properties
and configurator at v0.1.1, v0.2.1, v1.0.1 and v1.1.0.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from recbole_hyper.errors import ConfigError
from recbole_hyper.yaml_files import only, without

# RecBole sets these itself; a value in a file has no effect
SET_BY_RECBOLE = {
    *("MODEL_TYPE", "MODEL_INPUT_TYPE", "device", "eval_type", "single_spec"),
    *("eval_neg_sample_args", "valid_neg_sample_args", "test_neg_sample_args"),
}


class Renamed(NamedTuple):
    """Old keys, today's key, and its value: ``value(old, sequential)``, with the old keys that are given.

    Without today's key they have no effect, and ``value`` is the reason.
    """

    old: tuple[str, ...]
    new: str
    value: Callable[[dict[str, Any], bool], Any] | str


def _counts(old: dict[str, Any], _: bool) -> str:
    low, high = (next((old[key] for key in old if key.startswith(end)), None) for end in ("min", "max"))
    return f"[{low or 0},{high}]" if high else f"[{low or 0},inf)"


def _values(old: dict[str, Any], _: bool) -> dict[str, str] | None:
    for name, limits in old.items():
        if not isinstance(limits or {}, Mapping):
            raise ConfigError(f"{name}={limits!r}: write a mapping such as {{rating: 3}}")
    fields = dict.fromkeys(field for limits in old.values() for field in limits or {})
    found = {field: _interval({name: (limits or {}).get(field) for name, limits in old.items()}) for field in fields}
    return found or None


def _interval(bounds: Mapping[str, float | None]) -> str:
    """Return the interval that satisfies all bounds, as RecBole writes intervals."""
    lowest, highest, equal, unequal = map(bounds.get, ("lowest_val", "highest_val", "equal_val", "not_equal_val"))
    low = "(-inf" if lowest is None else f"[{lowest}"
    high = "inf)" if highest is None else f"{highest}]"
    if equal is not None:
        return f"[{equal},{equal}]"
    return f"{low},{high}" if unequal is None else f"{low},{unequal});({unequal},{high}"


def _negatives(old: dict[str, Any], _: bool) -> dict[str, Any] | None:
    number = old.get("training_neg_sample_num", 1)
    distribution = old.get("training_neg_sample_distribution") or "uniform"
    return {"distribution": distribution, "sample_num": number} if number else None


def _negatives_of_1_0(old: dict[str, Any], _: bool) -> dict[str, Any] | None:
    ((name, sampling),) = old.items()
    if sampling is None:
        return None
    if not _is_form_of_1_0(sampling):
        raise ConfigError(f"{name}={sampling!r}: write ~ or {{uniform: 1}}")
    (distribution,) = sampling.keys() - {"dynamic"}
    count = sampling.get("dynamic")
    dynamic = {"dynamic": True, "candidate_num": int(count)} if isinstance(count, int) and count else {}
    return {"distribution": distribution, "sample_num": sampling[distribution], **dynamic}


def _is_form_of_1_0(sampling: Any) -> bool:
    """Return whether a value is of the form ``{uniform: 2, dynamic: 5}``."""
    return isinstance(sampling, Mapping) and sampling.keys() - {"dynamic"} in ({"uniform"}, {"popularity"})


def _evaluation(old: dict[str, Any], sequential: bool) -> dict[str, Any]:
    setting = old.get("eval_setting")
    if isinstance(setting, Mapping):
        raise ConfigError(f"eval_setting={setting!r}: RecBole ignores this key; a mapping belongs into eval_args")
    words = [word.strip() for word in str(setting or ("TO_LS,full" if sequential else "RO_RS,full")).split(",")]
    order, _, split = words[0].partition("_")
    if order not in ("RO", "TO") or split not in ("RS", "LS") or len(words) > 2:
        raise ConfigError(f"eval_setting={setting!r}: write RO or TO, RS or LS, and a mode, such as TO_LS,full")
    if split == "LS" and old.get("leave_one_num") not in (None, 2):
        raise ConfigError(
            f"leave_one_num={old['leave_one_num']!r}: RecBole held out two interactions, for validation and test; to "
            "hold out one, write eval_args: {split: {LS: test_only}}"
        )
    return {
        "split": {"LS": "valid_and_test"} if split == "LS" else {"RS": old.get("split_ratio") or [0.8, 0.1, 0.1]},
        "order": order,
        "group_by": "user" if split == "LS" or old.get("group_by_user") in (None, True) else "none",
        # without a mode RecBole ranked by labels
        "mode": words[1] if len(words) == 2 else "labeled",
    }


RENAMED = (
    Renamed(("real_time_process",), "", "batches are always made when they are needed"),
    Renamed(("drop_filter_field",), "", "a column that is only read to filter by is always dropped"),
    Renamed(("fill_nan",), "", "missing values are always filled"),
    Renamed(("drop_preload_weight",), "", "it had no effect on results"),
    Renamed(("draw_loss_pic",), "", "train.csv in the run's folder has the losses"),
    Renamed(("min_user_inter_num", "max_user_inter_num"), "user_inter_num_interval", _counts),
    Renamed(("min_item_inter_num", "max_item_inter_num"), "item_inter_num_interval", _counts),
    Renamed(("lowest_val", "highest_val", "equal_val", "not_equal_val"), "val_interval", _values),
    Renamed(("training_neg_sample_num", "training_neg_sample_distribution"), "train_neg_sample_args", _negatives),
    Renamed(("neg_sampling",), "train_neg_sample_args", _negatives_of_1_0),
    Renamed(("train_neg_sample_args",), "train_neg_sample_args", _negatives_of_1_0),
    Renamed(("eval_setting", "group_by_user", "split_ratio", "leave_one_num"), "eval_args", _evaluation),
)
OLD = frozenset(key for entry in RENAMED for key in entry.old)
NAMES = OLD | {entry.new for entry in RENAMED}


def translated(keys: Mapping[str, Any], *, sequential: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of one file with today's names, and a line for each change.

    A new name in the same file wins over an old one. The default of ``eval_setting`` depends on whether the model is
    ``sequential``. ConfigError for a key that cannot be translated.
    """
    content, lines = dict(keys), list[str]()
    for names, new, value in RENAMED:
        old = only(names, keys)
        if not old or (new in names and not _is_form_of_1_0(old[new])):
            continue
        content = without(names, content)
        found: Any = value(old, sequential) if callable(value) else None
        text = f"{new}={found}" if new else value
        if new == "eval_args" and isinstance(mine := content.get(new), Mapping):
            found = {**found, **mine}
        elif new in content:
            text, found = f"{new}={content[new]!r} is in the file too and is used", content[new]
        if new:
            content[new] = found
        lines.append(f"{' and '.join(old)} is from an earlier release of RecBole: {text}")
    return content, lines


def renamed_loss(loss: Any, model: str) -> Any:
    """Return RecBole's loss CE as this package's ``ce``; ConfigError for BPR, which its models do not have."""
    if loss == "BPR":
        raise ConfigError(
            f"loss_type='BPR': {model} has no such loss. loss_type=bce also draws negatives (n_negatives), but judges "
            "each score by itself; loss_type=ce compares the target with all items; RecBole's own models have BPR"
        )
    return "ce" if loss == "CE" else loss
