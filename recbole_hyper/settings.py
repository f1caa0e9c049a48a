"""The settings of every run: default, values, what they decide, meaning. Options of parts are beside the parts.

OPEN means that RecBole or the model's parts give the default. RecBole's keys are here where this package gives them a
meaning; all others keep RecBole's. :func:`deciding` tells resumed runs, sweeps, ``compare``, ``evaluate`` and reports
what a key decides.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from recbole_hyper import registry
from recbole_hyper.options import OPEN, Option, in_words
from recbole_hyper.recbole_files import recbole_folder
from recbole_hyper.yaml_files import read_yaml

# optimizers of the models of this package, and of RecBole's
PLAIN_LEARNERS = ("adam", "adamw", "sgd", "adagrad", "rmsprop")
RIEMANNIAN_LEARNERS = ("riemannian_adam", "riemannian_sgd")
LEARNERS, RECBOLE_LEARNERS = (*PLAIN_LEARNERS, *RIEMANNIAN_LEARNERS), (*PLAIN_LEARNERS, "sparse_adam")

EVAL_ARGS = {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"}

SETTINGS: dict[str, Option] = {}


def _declare(decides: str, *rows: tuple[str, Any, str, str]) -> None:
    for key, default, values, about in rows:
        SETTINGS[key] = Option(values, about, default, tuple(decides.split()), key)


_declare(
    "data",
    ("USER_ID_FIELD", OPEN, "str", "field of the users in the .inter file"),
    ("ITEM_ID_FIELD", OPEN, "str", "field of the items"),
    ("TIME_FIELD", OPEN, "str", "field of the times"),
    ("load_col", None, "dict or ~", "columns by atomic file; ~ is user, item and time of the .inter file"),
    ("user_inter_num_interval", OPEN, "interval or ~", "users with that many interactions are kept, to a fixed point"),
    ("item_inter_num_interval", OPEN, "interval or ~", "items with that many interactions are kept, to a fixed point"),
    ("rm_dup_inter", OPEN, "first, last or ~", "which of equal user-item pairs is kept; ~ keeps all"),
    ("benchmark_filename", None, "list or ~", "[train, valid, test]: the parts are NAME.train.inter and so on"),
    ("normalize_all", None, "bool or ~", "rescale float columns to [0, 1], all but the time"),
    ("plugins", None, "list or ~", "Python files with your parts"),
)
_declare(
    "data place",
    ("data_path", OPEN, "str", "folder that holds a folder for each data set"),
    ("interactions", "files", "files or given", "given: a frame in Python, run(..., interactions=frame), and no file"),
)
_declare(
    "split score ranking",
    ("eval_args", EVAL_ARGS, "dict", "split, order, grouping, candidates: see docs of the protocols"),
)
_declare(
    "split",
    ("candidate_seed", 2020, "int >= 0", "draws candidates (uniN, popN), cases (eval_cases) and random orders (RO)"),
    ("eval_cases", None, "int >= 1 or ~", "validation and test cases to rank, drawn by candidate_seed; ~ is all"),
)
_declare(
    "split grows",
    ("refit", False, "bool", "train the tested model anew on train + validation, for the epochs chosen (GT, RS, LS)"),
)
_declare(
    "training",
    ("encoder", OPEN, "part", "turns a history into states"),
    ("geometry", OPEN, "part", "scores states against items"),
    ("loss_type", OPEN, "part", "what is learned from the scores"),
    ("seed", OPEN, "int in [0, 4294967295]", "of every random number in training"),
    ("learner", OPEN, "str", "adam, adamw, sgd, adagrad, rmsprop, riemannian_adam, riemannian_sgd"),
    ("learning_rate", OPEN, "float > 0 or auto", "of the learner"),
    ("adam_betas", [0.9, 0.999], "two floats in [0, 1)", "of adam and adamw"),
    ("weight_decay", OPEN, "float >= 0, auto or ~", "L2 inside the learner"),
    ("clip_grad_norm", OPEN, "dict or ~", "{max_norm: 5.0, norm_type: 2} bounds the norm of the gradient"),
    ("lr_plateau", None, "dict or ~", "{factor: 0.5, patience: 5}: multiplies the rate after stale validations"),
    ("lr_schedule", None, "cosine, linear or ~", "the rate falls to 0 at the last of the epochs; ~ keeps it"),
    ("warmup_ratio", 0.0, "float in [0, 1)", "share of the epochs over which the rate rises from 0"),
    ("ema_decay", None, "float in (0, 1) or ~", "what is ranked and kept is an exponential average of the weights"),
    ("manifold_learning_rate", None, "float > 0 or ~", "of parameters on a manifold; ~ is learning_rate"),
    ("stabilize", 10, "int >= 1", "steps between projections of manifold parameters"),
    ("rowwise_update", False, "bool", "adam skips items without gradient in a step (for large catalogues)"),
    ("train_batch_size", OPEN, "int >= 1 or auto", "sequences (not rows) in a batch"),
    ("init_from", None, "str or ~", "folder of a finished run: start from its weights, matched by ids"),
    ("num_workers", 1, "int >= 1", "processes of data-parallel training, started by Ray Train"),
    ("train_windows", "all", "all, last or random", "every interaction a target; the last L; one random window"),
    ("drop_last", False, "bool", "leave out the last, smaller batch of an epoch"),
    ("eval_step", OPEN, "int >= 0", "epochs between two validations; 0 is none"),
    ("MAX_ITEM_LIST_LENGTH", OPEN, "int >= 1 or auto", "newest items of a history that a model sees"),
    ("hidden_size", OPEN, "int >= 1 or auto", "width of items and states"),
    ("initializer", OPEN, "xavier or normal", "of item vectors, and of the encoder's matrices where it says so"),
    ("initializer_range", OPEN, "float > 0", "standard deviation of initializer: normal"),
    ("curvature", 1.0, "float32 > 0, auto or learn", "c of curved heads and encoders; auto is estimated from the data"),
    ("curvature_init", 1.0, "float32 > 0", "where a learned curvature starts"),
    ("curvature_learning_rate", None, "float > 0 or ~", "of a learned curvature; ~ is learning_rate"),
    ("item_bias", False, "bool", "trained offset per item in the output head"),
    ("item_bias_init", 0.0, "float", "where the offsets start; -log(n_negatives) suits binary losses"),
    ("reuse_item_embeddings", True, "bool", "the head has the encoder's item vectors; False: a second table"),
    ("selected_features", None, "list or ~", "columns of the .item file for item vectors: [class, release_year]"),
    ("pooling_mode", "sum", "sum, mean or max", "of the tokens of a feature that is a sequence"),
    ("feature_fusion", "add", "add or concat", "vectors of id and features: their sum, or one map of all"),
    ("feature_output", True, "bool", "features are part of the head's item vectors too"),
    ("feature_standardize", True, "bool", "float features get mean 0 and standard deviation 1"),
    ("feature_id_dropout", 0.0, "float in [0, 1)", "share of items that a step sees by their features alone"),
)
_declare(
    "training grows",
    ("epochs", OPEN, "int >= 0 or auto", "most epochs"),
    ("stopping_step", OPEN, "int >= 0", "validations without a better score before training stops"),
)
_declare(
    "score ranking",
    ("repeatable", None, "bool or ~", "RecBole's opposite of exclude_seen, which it sets; ~ leaves it"),
    ("exclude_seen", True, "bool", "items of the case's history are no candidates (the papers' way; RecBole: False)"),
    ("valid_metric", "NDCG@10", "str", "what selection looks at, on validation only"),
)
_declare(
    "score ranking metrics",
    (
        "metrics",
        ["NDCG", "Hit", "MRR", "ItemCoverage"],
        "list or str",
        "RecBole's names, or Novelty, IntraListDiversity, ...",
    ),
    ("topk", [1, 5, 10], "list or int", "cut-offs"),
    ("metric_decimal_place", 6, "int in [0, 15]", "digits of metrics; RecBole compares scores with 4 digits"),
)
_declare(
    "ranking metrics",
    ("eval_batch_size", OPEN, "int >= 1", "rows that RecBole's models score at one time"),
    ("tail_ratio", OPEN, "float > 0", "share or count of unpopular items of tail percentage"),
    ("diversity_features", None, "list or ~", "token columns of the .item file that IntraListDiversity compares"),
)
_declare(
    "ranking place",
    ("ranking_memory_budget", 268435456, "int >= 1", "bytes of scores held at one time while ranking"),
    ("confidence", None, "float in (0, 1) or ~", "level of bootstrap intervals in result.json; ~ computes none"),
)
_declare(
    "place",
    ("output_dir", None, "str or ~", "folder of the run; ~ is saved/<Model>-<dataset>-<time>"),
    ("strict", False, "bool", "a key of a configuration file that nothing reads is an error"),
    ("offline", False, "bool", "fetch no data set"),
    ("resume", False, "bool", "continue the run in output_dir from its last checkpoint"),
    ("checkpoint_dir", OPEN, "str", "no effect: everything is in output_dir"),
    ("checkpoint_step", 1, "int >= 1", "epochs between two resumable checkpoints"),
    ("checkpoint_minutes", 10, "float > 0 or ~", "minutes between resumable checkpoints inside an epoch; ~ is none"),
    ("n_threads", None, "int >= 1 or ~", "torch threads; ~ is torch's choice, within what affinity and cgroup allow"),
    ("ray_address", None, "str or ~", "running Ray cluster for num_workers, host:port; ~ starts one here"),
    ("memory_limit", None, "int >= 1 or ~", "bytes that training may take; ~ is what is free"),
    ("protocol_report", False, "bool", "print what the protocol made of the data before training"),
    ("save_cases", True, "bool", "write the rank of every case to parquet files"),
    ("save_data", True, "bool", "keep ids and histories in output_dir/data, which is then enough to recommend"),
    ("show_progress", True, "bool", "progress bars"),
    ("use_cache", True, "bool", "keep what was read from the files in the user's cache folder, for other runs"),
    ("log_tensorboard", False, "bool", "write RecBole's tensorboard events into the output folder"),
    ("log_wandb", OPEN, "bool", "report to Weights and Biases, through RecBole's logger"),
    ("wandb_project", OPEN, "str", "project there"),
    ("worker", OPEN, "int >= 0", "processes that make the batches of RecBole's general models"),
    ("state", OPEN, "str", "level of the log"),
    ("matmul_precision", "highest", "highest, high or medium", "of float32 products on a GPU: float32, TF32, bfloat16"),
    ("compile", False, "bool", "let torch.compile fuse the encoder's operations; the first steps take a minute"),
    ("use_gpu", OPEN, "bool", "False trains on the CPU; True warns where no GPU can be used"),
    ("gpu_id", OPEN, "str, int or ~", "of the GPU; empty is the CPU"),
)

# what is set most often: shown by ``run --help``
COMMON = (
    *("epochs", "stopping_step", "learning_rate", "train_batch_size", "hidden_size"),
    *("MAX_ITEM_LIST_LENGTH", "loss_type", "geometry", "curvature", "seed", "eval_args", "exclude_seen"),
    *("metrics", "topk", "valid_metric", "output_dir", "resume", "data_path", "plugins"),
)
# shown for a default that depends on the model or part
BY_MODEL = "..."
# keys with which a finished run may be evaluated
COMMON_OF_RANKING = ("eval_args", "exclude_seen", "metrics", "topk", "confidence")


@functools.cache
def declared() -> Mapping[str, Option]:
    """Return every option by its key: the settings, and those of all parts and models of the package."""
    by_key = dict(SETTINGS)
    for kind in registry.WITH_OPTIONS:
        for name in registry.names(kind):
            for option in registry.options(registry.resolve(kind, name)).values():
                by_key.setdefault(option.key, option)
    return by_key


def deciding(*what: str) -> frozenset[str]:
    """Return the names of the keys that decide one of ``what``."""
    return frozenset(key for key, option in declared().items() if set(what) & set(option.decides))


def is_text(key: str) -> bool:
    """Return whether a word on the command line is the value of ``key`` unchanged: a folder called 1 is text."""
    return key in SETTINGS and SETTINGS[key].consists_of("str", "interval", "~")


def typed(value: Any) -> str:
    """Return a value as it is typed on the command line and written in YAML."""
    if value is None:
        return "~"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {typed(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(typed, value))}]"
    return repr(value) if isinstance(value, str) and (not value or value.isspace()) else str(value)


def shared_defaults() -> dict[str, Any]:
    """Return the default of every setting that has one whatever the model is."""
    return {key: one.default for key, one in SETTINGS.items() if one.default is not OPEN}


def general_defaults() -> dict[str, tuple[Any, str]]:
    """Return the default of every key that all models share, and where it comes from, by key."""
    stock = recbole_folder() / "properties"
    files = (stock / "overall.yaml", stock / "dataset" / "sample.yaml")
    defaults = {key: (value, "RecBole") for file in files for key, value in read_yaml(file).items()}
    return defaults | {key: (value, "settings") for key, value in shared_defaults().items()}


def common_text(names: Sequence[str] = COMMON, *, more: str = "recbole-hyper keys MODEL") -> str:
    """Return the lines of ``--help`` on the keys ``names``, with general defaults; ``more`` lists all others."""
    general = general_defaults()
    lines = ["common configuration keys and their defaults (...: by model; a model may have its own):"]
    for name in names:
        value = typed(general[name][0]) if name in general else BY_MODEL
        said = f"{SETTINGS[name].about} ({in_words(SETTINGS[name].values)})"
        option = f"  --{name}={value}"
        lines.append(f"{option:<34}  {said}" if len(option) <= 34 else f"{option}\n{'':<36}{said}")
    lines.append(f"every other key is set likewise; {more} tells what a model reads, with default, range and source")
    return "\n".join(lines)
