"""The documented keys of RecBole that a run ignores, refuses or translates; a run reads all others.

A warning names a key that a run ignores, and results leave it out. A key that would change the meaning of numbers is
refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from recbole_hyper.errors import ConfigError
from recbole_hyper.hyperbolic import RIEMANNIAN_LEARNERS
from recbole_hyper.registry import parts_of


def is_ours(model: Any) -> bool:
    """Return whether a model class belongs to this package, or derives from such a class."""
    return any(base.__module__.startswith("recbole_hyper.") for base in model.__mro__)


def _one_step(model: Any) -> bool:
    return model.type.name == "TRADITIONAL"


def _no_sequences(model: Any) -> bool:
    return model.type.name in ("GENERAL", "TRADITIONAL")


def _of_one_piece(model: Any) -> bool:
    return not parts_of(model)


class NoEffect(NamedTuple):
    """Keys that a model does not read if ``when(model)`` is true, and why."""

    keys: tuple[str, ...]
    why: str
    when: Callable[[Any], bool]


def _unread(keys: str, why: str, when: Callable[[Any], bool] = lambda model: True, *, but: str = "") -> NoEffect:
    return NoEffect(tuple(keys.split()), why, lambda model: model.__name__ not in but.split() and when(model))


# RecBole's keys that describe features
FEATURE_KEYS = (
    *("additional_feat_suffix", "preload_weight", "normalize_field", "normalize_all", "numerical_features"),
    *("discretization", "seq_len"),
)
_FEATURES = "feature_fusion feature_output feature_standardize feature_id_dropout"

NO_EFFECT = (
    _unread("checkpoint_dir", "a run writes everything into output_dir"),
    _unread("save_dataset save_dataloaders", "data are read from the atomic files in every run and not saved"),
    _unread("valid_metric_bigger", "it follows from valid_metric"),
    _unread("unused_col", "a model sees only user, item and time of an interaction; see unload_col"),
    _unread("threshold", "no ranking reads labels: every interaction is positive; val_interval drops low ratings"),
    _unread("POSITION_FIELD", "RecBole 1.2.0 does not read it"),
    _unread(
        "HEAD_ENTITY_ID_FIELD TAIL_ENTITY_ID_FIELD RELATION_ID_FIELD kg_reverse_r entity_kg_num_interval "
        "relation_kg_num_interval alias_of_entity_id alias_of_relation_id",
        "no knowledge graph is read",
    ),
    _unread("ENTITY_ID_FIELD", "no knowledge graph is read", but="KSR"),
    _unread("RATING_FIELD", "every interaction counts the same, whatever its rating", but="DMF"),
    _unread("require_pow", "the model has no such regularization", but="LightGCN SimpleX"),
    _unread("worker", "batches are made in the process that trains", lambda m: is_ours(m) or not _no_sequences(m)),
    _unread("loss_decimal_place", "models of this package print losses with four decimals", is_ours),
    _unread("train_neg_sample_args", "losses draw their own negatives: see n_negatives", is_ours),
    _unread("transform LABEL_FIELD NEG_PREFIX eval_batch_size", "models of this package do not read it", is_ours),
    _unread(" ".join(FEATURE_KEYS), "models of this package read the features in selected_features", is_ours),
    _unread(
        "selected_features pooling_mode", "the model reads no item features", _of_one_piece, but="FDSA GRU4RecF SASRecF"
    ),
    _unread(
        "MAX_ITEM_LIST_LENGTH ITEM_LIST_LENGTH_FIELD LIST_SUFFIX drop_last",
        "the model sees no sequences",
        _no_sequences,
    ),
    _unread("shuffle", "the model is fitted to the whole matrix at once", lambda m: is_ours(m) and _one_step(m)),
    _unread(
        "epochs train_batch_size learner learning_rate eval_step stopping_step clip_grad_norm weight_decay enable_amp "
        "enable_scaler",
        "the model is fitted in one step",
        _one_step,
    ),
    _unread(
        "lr_plateau lr_schedule warmup_ratio",
        "the model is fitted in one step, or by a RecBole trainer with its own optimizers",
        lambda m: _one_step(m) or m.__name__ == "RecVAE",
    ),
    _unread(
        "ema_decay",
        "the model is fitted in one step, or by a RecBole trainer with its own steps",
        lambda m: _one_step(m) or m.__name__ in ("RaCT", "RecVAE", "S3Rec"),
    ),
    _unread(
        "adam_betas item_bias item_bias_init reuse_item_embeddings curvature curvature_init curvature_learning_rate "
        f"rowwise_update manifold_learning_rate stabilize memory_limit train_windows {_FEATURES}",
        "only sequential models of this package read it",
        _of_one_piece,
    ),
)

# keys that have an effect only with some values of another key: the keys, the other key, a test of its value
SWITCHED: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("adam_betas",), "learner", lambda value: str(value).lower() in ("adam", "adamw")),
    (("manifold_learning_rate", "stabilize"), "learner", lambda value: str(value).lower() in RIEMANNIAN_LEARNERS),
    (("curvature_init",), "curvature", lambda value: value == "learn"),
    (("pooling_mode", *_FEATURES.split()), "selected_features", bool),
)

# refused keys: the values that are allowed because they have no effect, and why others are refused
_FOLDER = "data are read from the atomic files; set data_path to their folder"
_DISTRIBUTED = "RecBole's own distributed training is not supported; use num_workers or a sweep"
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("dataset_save_path", "dataloaders_save_path"), ((None, ""), _FOLDER)),
    "nproc": ((None, 1), _DISTRIBUTED),
    **dict.fromkeys(("local_rank", "world_size", "ip", "port", "offset"), ((None,), _DISTRIBUTED)),
}


def without_effect(model: Any) -> dict[str, str]:
    """Return the keys that a run of the class ``model`` ignores, and why."""
    return {key: entry.why for entry in NO_EFFECT if entry.when(model) for key in entry.keys}


def refusals(config: Mapping[str, Any]) -> list[str]:
    """Return a message for each key that no run supports."""
    return [
        f"{key} is not supported ({key}={config[key]!r}): {why}"
        for key, (nothing, why) in REFUSED.items()
        if key in config and config[key] not in nothing
    ]


# RecBole's keys that set a key of this package, which a run records instead
TRANSLATED = ("repeatable",)
# keys that drop interactions, and the values besides ~ with which they drop none
_DROPPING = ("rm_dup_inter", "val_interval", "user_inter_num_interval", "item_inter_num_interval")
# what the translation reads and changes
TO_TRANSLATE = (*TRANSLATED, *_DROPPING, "exclude_seen", "benchmark_filename", "eval_args", "interactions")
_DROPS_NOTHING: tuple[Any, ...] = ("[0,inf)", {})


def translate(keys: Mapping[str, Any], final: Mapping[str, Any], model: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the values that RecBole's ``repeatable`` and ``benchmark_filename`` stand for, and warnings.

    ``keys`` are the user's keys that the class ``model`` reads, and ``final`` the values so far, of the keys
    ``TO_TRANSLATE``. The warnings are about keys without effect.

    Raises:
        ConfigError: keys contradict each other, or the files cannot be the parts of a data set.
    """
    final = dict(final)
    repeatable, exclude = keys.get("repeatable"), keys.get("exclude_seen")
    if repeatable is not None and not isinstance(repeatable, bool):
        raise ConfigError(f"repeatable={repeatable!r}: true or false is expected")
    if repeatable is not None and exclude is not None and exclude == repeatable:
        raise ConfigError(
            f"repeatable={repeatable} and exclude_seen={exclude} contradict each other: repeatable: True ranks items "
            "of the history, exclude_seen: True leaves them out; set only one of the two"
        )
    if repeatable is not None:
        final["exclude_seen"] = not repeatable
    # RecBole refuses False for sequential models; training negatives of general ones exclude the user's own items
    final["repeatable"] = model.type.name != "GENERAL"
    return final, _translate_benchmark(keys, final)


def _translate_benchmark(keys: Mapping[str, Any], final: dict[str, Any]) -> list[str]:
    names, arguments = final.get("benchmark_filename"), final.get("eval_args")
    if not isinstance(arguments, Mapping):
        return []  # refused later
    split = arguments.get("split")
    if not names:
        final["benchmark_filename"] = None
        if isinstance(split, Mapping) and "files" in split:
            raise ConfigError(f"eval_args split={split!r}: benchmark_filename names the files of the parts; set it")
        return []
    distinct = isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names))
    if distinct not in (2, 3) or distinct != len(names):
        raise ConfigError(
            f"benchmark_filename={names!r}: the middle names of three files are expected, such as [train, valid, test] "
            "for NAME.train.inter and so on, or of two files, for training and test"
        )
    if final.get("interactions") == "given":
        raise ConfigError(
            f"benchmark_filename={names!r} names files, but the interactions are given as a frame; leave it out"
        )
    ignored = list[str]()
    for key in _DROPPING:
        value = keys.get(key)
        if value is not None and value not in _DROPS_NOTHING:
            ignored.append(
                f"{key}={value!r} has no effect, as in RecBole: the files of benchmark_filename are not filtered"
            )
        final[key] = None
    own = keys.get("eval_args") or {}
    mine = {"split": {"files": list(names)}, "order": "TO", "group_by": "user"}
    final["eval_args"] = {**arguments, **mine}
    return ignored + [
        f"eval_args {key}={own[key]!r} has no effect: the files of benchmark_filename are the parts"
        for key in mine
        if isinstance(own, Mapping) and key in own and own[key] != mine[key]
    ]
