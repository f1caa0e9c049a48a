"""The documented keys of RecBole that a run ignores, refuses or translates; a run reads all others.

A warning names a key that a run ignores, and results leave it out. A key that would change the meaning of numbers is
refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recbole_hyper.errors import ConfigError
from recbole_hyper.hyperbolic import RIEMANNIAN_LEARNERS
from recbole_hyper.registry import Model, parts_of


@dataclass(frozen=True)
class NoEffect:
    """Keys without effect for some models, or unless another key passes a test."""

    keys: str
    why: str = ""
    models: tuple[str, ...] = ()  # traits, or names of models; none: all models
    but: tuple[str, ...] = ()  # names of models that read the keys
    switch: str = ""  # the other key
    on: tuple[str, ...] = ()  # its values with which the keys have an effect; none: any value that is set

    def is_on(self, value: Any) -> bool:
        """Return whether the keys have an effect with this value of the other key."""
        return str(value).lower() in self.on if self.on else bool(value)


# traits of models
OWN, SEQUENTIAL, NO_SEQUENCES, ONE_STEP, OWN_ONE_STEP, ONE_PIECE = "own", "seq", "no seq", "step", "own step", "piece"


def _traits(model: Any) -> set[str]:
    """Return the name of a model's class, and what it has in common with other models."""
    own, kind = issubclass(model, Model), model.type.name
    traits = {model.__name__, NO_SEQUENCES if kind in ("GENERAL", "TRADITIONAL") else SEQUENTIAL}
    if kind == "TRADITIONAL":
        traits |= {ONE_STEP, OWN_ONE_STEP if own else ""}
    return traits | {OWN if own else "", "" if parts_of(model) else ONE_PIECE}


# RecBole's keys that describe features
FEATURE_KEYS = (
    *("additional_feat_suffix", "preload_weight", "normalize_field", "normalize_all", "numerical_features"),
    *("discretization", "seq_len"),
)
_FEATURES = "feature_fusion feature_output feature_standardize feature_id_dropout"
_KNOWLEDGE = (
    "HEAD_ENTITY_ID_FIELD TAIL_ENTITY_ID_FIELD RELATION_ID_FIELD kg_reverse_r entity_kg_num_interval "
    "relation_kg_num_interval alias_of_entity_id alias_of_relation_id"
)
_STEPS = (
    "epochs train_batch_size learner learning_rate eval_step stopping_step clip_grad_norm weight_decay enable_amp "
    "enable_scaler"
)
_OF_PARTS = (
    "adam_betas item_bias item_bias_init reuse_item_embeddings curvature curvature_init curvature_learning_rate "
    f"manifold_learning_rate stabilize memory_limit train_windows {_FEATURES}"
)
_OWN_STEPS = "the model is fitted in one step, or by a RecBole trainer with its own steps"

NO_EFFECT = (
    NoEffect("checkpoint_dir", "a run writes everything into output_dir"),
    NoEffect("save_dataset save_dataloaders", "data are read from the atomic files in every run and not saved"),
    NoEffect("valid_metric_bigger", "it follows from valid_metric"),
    NoEffect("unused_col", "a model sees only user, item and time of an interaction; see unload_col"),
    NoEffect("threshold", "no ranking reads labels: every interaction is positive; val_interval drops low ratings"),
    NoEffect("POSITION_FIELD", "RecBole 1.2.0 does not read it"),
    NoEffect(_KNOWLEDGE, "no knowledge graph is read"),
    NoEffect("ENTITY_ID_FIELD", "no knowledge graph is read", but=("KSR",)),
    NoEffect("RATING_FIELD", "every interaction counts the same, whatever its rating", but=("DMF",)),
    NoEffect("require_pow", "the model has no such regularization", but=("LightGCN", "SimpleX")),
    NoEffect("worker", "batches are made in the process that trains", (OWN, SEQUENTIAL)),
    NoEffect("loss_decimal_place", "models of this package print losses with four decimals", (OWN,)),
    NoEffect("train_neg_sample_args", "losses draw their own negatives: see n_negatives", (OWN,)),
    NoEffect("transform LABEL_FIELD NEG_PREFIX eval_batch_size", "models of this package do not read it", (OWN,)),
    NoEffect(" ".join(FEATURE_KEYS), "models of this package read the features in selected_features", (OWN,)),
    NoEffect(
        "selected_features pooling_mode", "no features are read", (ONE_PIECE,), but=("FDSA", "GRU4RecF", "SASRecF")
    ),
    NoEffect(
        "MAX_ITEM_LIST_LENGTH ITEM_LIST_LENGTH_FIELD LIST_SUFFIX drop_last", "no sequences are read", (NO_SEQUENCES,)
    ),
    NoEffect("shuffle", "the model is fitted to the whole matrix at once", (OWN_ONE_STEP,)),
    NoEffect(_STEPS, "the model is fitted in one step", (ONE_STEP,)),
    NoEffect("lr_plateau lr_schedule warmup_ratio", _OWN_STEPS, (ONE_STEP, "RecVAE")),
    NoEffect("ema_decay", _OWN_STEPS, (ONE_STEP, "RaCT", "RecVAE", "S3Rec")),
    NoEffect(_OF_PARTS, "only sequential models of this package read it", (ONE_PIECE,)),
    NoEffect("adam_betas", switch="learner", on=("adam", "adamw")),
    NoEffect("manifold_learning_rate stabilize", switch="learner", on=RIEMANNIAN_LEARNERS),
    NoEffect("curvature_init", switch="curvature", on=("learn",)),
    NoEffect(f"pooling_mode {_FEATURES}", switch="selected_features"),
)

# refused keys: the values that are allowed because they have no effect, and why others are refused
_FOLDER = "data are read from the atomic files; set data_path to their folder"
_DISTRIBUTED = "RecBole's own distributed training is not supported; use torchrun or a sweep"
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("dataset_save_path", "dataloaders_save_path"), ((None, ""), _FOLDER)),
    "nproc": ((None, 1), _DISTRIBUTED),
    **dict.fromkeys(("local_rank", "world_size", "ip", "port", "offset"), ((None,), _DISTRIBUTED)),
}


def without_effect(model: Any) -> dict[str, str]:
    """Return the keys that a run of the class ``model`` ignores, and why."""
    traits = _traits(model)
    return {
        key: entry.why
        for entry in NO_EFFECT
        if not entry.switch and not traits & {*entry.but} and (not entry.models or traits & {*entry.models})
        for key in entry.keys.split()
    }


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
    if isinstance(repeatable, bool):
        if exclude == repeatable:
            raise ConfigError(
                f"repeatable={repeatable} and exclude_seen={exclude} contradict each other: repeatable: True ranks "
                "items of the history, exclude_seen: True leaves them out; set only one of the two"
            )
        final["exclude_seen"] = not repeatable
    if repeatable is None or isinstance(repeatable, bool):  # else a mistake
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
        raise ConfigError(f"benchmark_filename={names!r}: the interactions are given as a frame; leave it out")
    mine = {"split": {"files": list(names)}, "order": "TO", "group_by": "user"}
    given = keys.get("eval_args")
    parts = {key: given[key] for key in mine if key in given} if isinstance(given, Mapping) else {}
    unread = [f"{key}={keys[key]!r}" for key in _DROPPING if keys.get(key) not in (None, *_DROPS_NOTHING)]
    unread += [f"eval_args {key}={value!r}" for key, value in parts.items() if value != mine[key]]
    final |= {**dict.fromkeys(_DROPPING), "eval_args": {**arguments, **mine}}
    why = "has no effect: the files of benchmark_filename are the parts, and are not filtered, as in RecBole"
    return [f"{one} {why}" for one in unread]
