"""The settings of every run: default, allowed values, meaning and what they decide; parts declare their own options.

OPEN means that the default comes from RecBole or from the model's parts. RecBole's keys are listed here only if this
package gives them a meaning. Resumed runs, sweeps, ``compare``, ``evaluate`` and reports use :func:`deciding`.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from recbole_hyper import registry
from recbole_hyper.hyperbolic import RIEMANNIAN_LEARNERS
from recbole_hyper.options import OPEN, Option
from recbole_hyper.values import (
    Auto,
    Betas,
    Clipping,
    Columns,
    Cuts,
    InnerShare,
    Interval,
    Metrics,
    NonNegativeFloat,
    NonNegativeInt,
    PartName,
    Plateau,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
    ShareBelow1,
    Text,
    consists_of,
    in_words,
)
from recbole_hyper.yaml_files import packaged_yaml, recbole_folder

# optimizers for models of this package, and for RecBole's
PLAIN_LEARNERS = ("adam", "adamw", "sgd", "adagrad", "rmsprop")
LEARNERS, RECBOLE_LEARNERS = (*PLAIN_LEARNERS, *RIEMANNIAN_LEARNERS), (*PLAIN_LEARNERS, "sparse_adam")

EVAL_ARGS = {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"}

SETTINGS: dict[str, Option] = {}


def _declare(decides: str, *rows: tuple[str, Any, Any, str]) -> None:
    for key, default, kind, about in rows:
        SETTINGS[key] = Option(about, kind=kind, default=default, decides=tuple(decides.split()), key=key)


_declare(
    "data",
    ("USER_ID_FIELD", OPEN, Text, "field of the users in the .inter file"),
    ("ITEM_ID_FIELD", OPEN, Text, "field of the items"),
    ("TIME_FIELD", OPEN, Text, "field of the times"),
    ("load_col", None, Columns | None, "columns by atomic file; ~ reads user, item and time of the .inter file"),
    ("user_inter_num_interval", OPEN, Interval | None, "interactions of each user; filtered to a fixed point"),
    ("item_inter_num_interval", OPEN, Interval | None, "interactions of each item; filtered to a fixed point"),
    ("rm_dup_inter", OPEN, Literal["first", "last"] | None, "which of equal user-item pairs to keep; ~ keeps all"),
    ("benchmark_filename", None, list | None, "[train, valid, test] reads the parts from NAME.train.inter and so on"),
    ("normalize_all", None, bool | None, "rescale float columns to [0, 1], except the time"),
    ("plugins", None, list | None, "Python files with your parts"),
)
_declare(
    "data place",
    ("data_path", OPEN, Text, "folder with a folder for each data set"),
    ("interactions", "files", Literal["files", "given"], "given: a frame in Python, run(..., interactions=frame)"),
)
_declare(
    "split score ranking",
    ("eval_args", EVAL_ARGS, dict, "split, order, grouping and candidates; see the docs on protocols"),
)
_declare(
    "split",
    ("candidate_seed", 2020, NonNegativeInt, "seed of candidates (uniN, popN), cases (eval_cases) and orders (RO)"),
    ("eval_cases", None, PositiveInt | None, "validation and test cases to rank, drawn at random; ~ ranks all"),
)
_declare(
    "split grows",
    ("refit", False, bool, "train the tested model again on train + validation, for the best number of epochs"),
)
_declare(
    "training",
    ("encoder", OPEN, PartName, "turns a history into states"),
    ("geometry", OPEN, PartName, "scores states against items"),
    ("loss_type", OPEN, PartName, "loss of the scores"),
    ("seed", OPEN, Annotated[int, Ge(0), Le(2**32 - 1)], "seed of all random numbers in training"),
    ("learner", OPEN, str, "optimizer: adam, adamw, sgd, adagrad, rmsprop, riemannian_adam, riemannian_sgd"),
    ("learning_rate", OPEN, PositiveFloat | Auto, "learning rate of the optimizer"),
    ("adam_betas", [0.9, 0.999], Betas, "betas of adam and adamw"),
    ("weight_decay", OPEN, NonNegativeFloat | Auto | None, "weight decay of the optimizer"),
    ("clip_grad_norm", OPEN, Clipping | None, "{max_norm: 5.0, norm_type: 2} bounds the norm of the gradient"),
    ("lr_plateau", None, Plateau | None, "{factor: 0.5, patience: 5} lowers the rate when no validation improves"),
    ("lr_schedule", None, Literal["cosine", "linear"] | None, "decay the rate to 0 over all epochs; ~ keeps it"),
    ("warmup_ratio", 0.0, ShareBelow1, "share of the epochs in which the rate rises from 0"),
    ("ema_decay", None, InnerShare | None, "evaluate and save an exponential moving average of the weights"),
    ("manifold_learning_rate", None, PositiveFloat | None, "rate of parameters on a manifold; ~ is learning_rate"),
    ("stabilize", 10, PositiveInt, "steps between projections of parameters onto their manifold"),
    ("train_batch_size", OPEN, PositiveInt | Auto, "sequences (not rows) in a batch"),
    ("init_from", None, Text | None, "folder of a finished run, whose weights are the initial weights, matched by ids"),
    ("train_windows", "all", Literal["all", "last", "random"], "targets: all, the last L, or one random window"),
    ("drop_last", False, bool, "drop the last, smaller batch of an epoch"),
    ("valid_cases", None, PositiveInt | Auto | None, "validation cases to rank; auto: a tenth of the training's"),
    ("eval_step", OPEN, NonNegativeInt, "epochs between validations; 0 validates never"),
    ("MAX_ITEM_LIST_LENGTH", OPEN, PositiveInt | Auto, "most items of a history that a model sees, the newest ones"),
    ("hidden_size", OPEN, PositiveInt | Auto, "dimension of item vectors and states"),
    ("initializer", OPEN, Literal["xavier", "normal"], "of item vectors, and of the matrices of some encoders"),
    ("initializer_range", OPEN, PositiveFloat, "standard deviation for initializer: normal"),
    ("curvature", 1.0, PositiveFloat32 | Literal["auto", "learn"], "c of heads and encoders; auto estimates it"),
    ("curvature_init", "auto", PositiveFloat32 | Auto, "initial value of a learned curvature; auto: the estimate"),
    ("curvature_learning_rate", None, PositiveFloat | None, "learning rate of a learned curvature; ~ is learning_rate"),
    ("item_bias", False, bool, "trained bias per item in the output head"),
    ("item_bias_init", 0.0, float, "initial value of the biases; -log(n_negatives) suits binary losses"),
    ("reuse_item_embeddings", True, bool, "the head uses the encoder's item vectors; False: a second table"),
    ("selected_features", None, list | None, "columns of the .item file for item vectors: [class, release_year]"),
    ("pooling_mode", "sum", Literal["sum", "mean", "max"], "how to pool the tokens of a sequence feature"),
    ("feature_fusion", "add", Literal["add", "concat"], "add vectors of id and features, or map their concatenation"),
    ("feature_output", True, bool, "also use the features in the head's item vectors"),
    ("feature_standardize", True, bool, "scale float features to mean 0 and standard deviation 1"),
    ("feature_id_dropout", 0.0, ShareBelow1, "share of items whose id a training step hides"),
)
_declare(
    "training grows",
    ("epochs", OPEN, NonNegativeInt | Auto, "maximum number of epochs"),
    ("stopping_step", OPEN, NonNegativeInt, "validations without improvement before training stops"),
)
_declare(
    "score ranking",
    ("repeatable", None, bool | None, "RecBole's key: sets exclude_seen to the opposite; ~ does not set it"),
    ("exclude_seen", True, bool, "do not rank items of the history, as in most papers (RecBole ranks them)"),
    ("valid_metric", "NDCG@10", str, "metric for selection on validation"),
)
_declare(
    "score ranking metrics",
    ("metrics", ["NDCG", "Hit", "MRR", "ItemCoverage"], Metrics, "RecBole's, Novelty, IntraListDiversity, ..."),
    ("topk", [1, 5, 10], Cuts, "cut-offs of the metrics"),
    ("metric_decimal_place", 6, Annotated[int, Ge(0), Le(15)], "decimal places of metrics; RecBole's are 4"),
)
_declare(
    "ranking metrics",
    ("eval_batch_size", OPEN, PositiveInt, "rows that RecBole's models score at once"),
    ("tail_ratio", OPEN, PositiveFloat, "share or number of unpopular items for TailPercentage"),
    ("diversity_features", None, list | None, "token columns of the .item file for IntraListDiversity"),
)
_declare(
    "ranking place",
    ("ranking_memory_budget", 268435456, PositiveInt, "bytes of scores in memory at once while ranking"),
    ("confidence", None, InnerShare | None, "level of the bootstrap intervals in result.json; ~ computes none"),
)
_declare(
    "place",
    ("output_dir", None, Text | None, "folder of the run; ~ is saved/<Model>-<dataset>-<time>"),
    ("strict", False, bool, "raise an error for a key of a configuration file that nothing reads"),
    ("offline", False, bool, "do not download data sets"),
    ("resume", False, bool, "continue the run in output_dir from its last checkpoint"),
    ("checkpoint_dir", OPEN, str, "no effect: a run writes everything into output_dir"),
    ("checkpoint_step", 1, PositiveInt, "epochs between resumable checkpoints"),
    ("checkpoint_minutes", 10, PositiveFloat | None, "minutes between checkpoints within an epoch; ~ writes none"),
    ("n_threads", None, Annotated[int, Ge(1), Le(1024)] | None, "torch threads; ~: as affinity and cgroup allow"),
    ("memory_limit", None, PositiveInt | None, "bytes that training may use; ~ is the free memory"),
    ("protocol_report", False, bool, "print how the protocol splits the data before training"),
    ("save_cases", True, bool, "write the rank of every case to a parquet file"),
    ("save_data", True, bool, "save ids and histories in output_dir/data, so that the folder alone can recommend"),
    ("show_progress", True, bool, "progress bars"),
    ("log_tensorboard", False, bool, "write RecBole's tensorboard events into the output folder"),
    ("log_wandb", OPEN, bool, "log to Weights and Biases, through RecBole's logger"),
    ("wandb_project", OPEN, str, "project in Weights and Biases"),
    ("worker", OPEN, NonNegativeInt, "processes that prepare the batches of RecBole's general models"),
    ("state", OPEN, str, "log level"),
    ("matmul_precision", "highest", Literal["highest", "high", "medium"], "on a GPU: float32, TF32, bfloat16"),
    ("cuda_graphs", "auto", Auto | bool, "replay training steps as CUDA graphs if possible; False: never"),
    ("compile", False, bool, "compile the encoder with torch.compile; the first steps take a minute"),
    ("use_gpu", OPEN, bool, "False uses the CPU; True warns if no GPU can be used"),
    ("gpu_id", OPEN, str | int | None, "id of the GPU; empty for the CPU"),
)

# keys that users set most often, for ``run --help``
COMMON = (
    *("epochs", "stopping_step", "learning_rate", "train_batch_size", "hidden_size"),
    *("MAX_ITEM_LIST_LENGTH", "loss_type", "geometry", "curvature", "seed", "eval_args", "exclude_seen"),
    *("metrics", "topk", "valid_metric", "output_dir", "resume", "data_path", "plugins"),
)
# a default that depends on the model or part
BY_MODEL = "..."
# keys for ``evaluate --help``
COMMON_OF_RANKING = ("eval_args", "exclude_seen", "metrics", "topk", "confidence")


@functools.cache
def declared() -> Mapping[str, Option]:
    """Return every option by its key: the settings, and the options of all parts and models."""
    by_key = dict(SETTINGS)
    for kind in registry.WITH_OPTIONS:
        for name in registry.names(kind):
            for option in registry.resolve(kind, name).options().values():
                by_key.setdefault(option.key, option)
    return by_key


def deciding(*what: str, among: Mapping[str, Option] | None = None) -> frozenset[str]:
    """Return the keys that decide at least one of ``what``, by default among those of all parts, which are imported."""
    options = declared() if among is None else among
    return frozenset(key for key, option in options.items() if set(what) & set(option.decides))


def is_text(key: str) -> bool:
    """Return whether the value of ``key`` is text, so that it is not parsed: a folder may be called 1."""
    return key in SETTINGS and consists_of(SETTINGS[key].kind, str, type(None))


def typed(value: Any) -> str:
    """Return a value as one types it on the command line or in YAML."""
    if value is None:
        return "~"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {typed(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(typed, value))}]"
    return repr(value) if isinstance(value, str) and (not value or value.isspace()) else str(value)


def shared_defaults() -> dict[str, Any]:
    """Return the default of every setting whose default does not depend on the model."""
    return {key: one.default for key, one in SETTINGS.items() if one.default is not OPEN}


def general_defaults() -> dict[str, tuple[Any, str]]:
    """Return, by key that all models share, its default and the source of the default."""
    stock = recbole_folder() / "properties"
    files = (stock / "overall.yaml", stock / "dataset" / "sample.yaml")
    defaults = {key: (value, "RecBole") for file in files for key, value in packaged_yaml(file).items()}
    return defaults | {key: (value, "settings") for key, value in shared_defaults().items()}


def common_text(names: Sequence[str] = COMMON) -> str:
    """Return the lines of ``--help`` about the keys ``names``."""
    general = general_defaults()
    lines = ["common configuration keys and their defaults (...: depends on the model; a model may have others):"]
    for name in names:
        value = typed(general[name][0]) if name in general else BY_MODEL
        about = f"{SETTINGS[name].about} ({in_words(SETTINGS[name].kind)})"
        option = f"  --{name}={value}"
        lines.append(f"{option:<34}  {about}" if len(option) <= 34 else f"{option}\n{'':<36}{about}")
    lines.append("other keys are set in the same way; recbole-hyper keys MODEL lists the keys of a model")
    return "\n".join(lines)
