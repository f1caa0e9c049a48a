"""Every configuration key of this package, once: what it may be, what it decides, what it means.

``config`` checks values by it; a resumed run, a sweep, ``compare``, ``evaluate`` and reports ask it what a key decides;
a test holds the comments of the YAML files to it. Defaults stand in the YAML files of the parts and models. RecBole's
own keys that this package reads in its own way are here too; all others keep RecBole's meaning.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recbole_hyper.errors import ConfigError

# what a key decides; a key may decide more than one thing
DATA = "data"  # what is read from the files
SPLIT = "split"  # who is trained on, validated and tested
TRAINING = "training"  # what is learned
SCORE = "score"  # the validation score, and so what is selected
RANKING = "ranking"  # how cases are ranked: may differ when a finished run is evaluated
METRICS = "metrics"  # of these, what is computed of the ranks alone
PLACE = "place"  # where, how fast and how loud: no number of the result
GROWS = "grows"  # a resumed run may raise it, never lower it

# optimizers of the models of this package, and of RecBole's
PLAIN_LEARNERS = ("adam", "adamw", "sgd", "adagrad", "rmsprop")
RIEMANNIAN_LEARNERS = ("riemannian_adam", "riemannian_sgd")
LEARNERS, RECBOLE_LEARNERS = (*PLAIN_LEARNERS, *RIEMANNIAN_LEARNERS), (*PLAIN_LEARNERS, "sparse_adam")

AUTO = "auto"  # the value that says: find one in the training data


@dataclass(frozen=True)
class Key:
    """One key: what ``values`` it may be, see :func:`matches`, what it ``decides``, and in a line its meaning."""

    name: str
    values: str
    decides: tuple[str, ...]
    about: str

    def check(self, value: Any) -> None:
        """Raise ConfigError unless ``value`` is what the key may be."""
        if not matches(self.values, value):
            raise ConfigError(f"{self.name}={value!r}: {in_words(self.values)} is expected")


KEYS: dict[str, Key] = {}
_PROBABILITY = "float in [0, 1)"


def _declare(decides: str, *rows: tuple[str, str, str]) -> None:
    KEYS.update((name, Key(name, values, tuple(decides.split()), about)) for name, values, about in rows)


_declare(
    "data",
    ("USER_ID_FIELD", "str", "field of the users in the .inter file"),
    ("ITEM_ID_FIELD", "str", "field of the items"),
    ("TIME_FIELD", "str", "field of the times"),
    ("load_col", "dict or ~", "columns by atomic file; ~ is user, item and time of the .inter file"),
    ("user_inter_num_interval", "interval or ~", "users with that many interactions are kept, to a fixed point"),
    ("item_inter_num_interval", "interval or ~", "items with that many interactions are kept, to a fixed point"),
    ("rm_dup_inter", "first, last or ~", "which of equal user-item pairs is kept; ~ keeps all"),
    (
        "benchmark_filename",
        "list or ~",
        "middle names of the files of training, validation and test, or of training and test; ~ is NAME.inter",
    ),
    ("normalize_all", "bool or ~", "rescale float columns to [0, 1], all but the time"),
    ("plugins", "list or ~", "Python files with parts of your own"),
)
_declare(
    "data place",
    ("data_path", "str", "folder that holds a folder for each data set"),
    ("interactions", "files or given", "given: a frame in Python, run(..., interactions=frame), and no file"),
)
_declare("split score ranking", ("eval_args", "dict", "split, order, grouping, candidates: see docs of the protocols"))
_declare(
    "split",
    (
        "candidate_seed",
        "int >= 0",
        "draws candidates (uniN, popN), cases (eval_cases) and a random order (RO), apart from the seed",
    ),
    ("eval_cases", "int >= 1 or ~", "validation and test cases that are ranked, drawn by candidate_seed"),
)
_declare("split grows", ("refit", "bool", "train the tested model anew on train + validation, for the epochs chosen"))
_declare(
    "training",
    ("encoder", "part", "turns a history into states"),
    ("geometry", "part", "scores states against items"),
    ("loss_type", "part", "what is learned from the scores"),
    ("seed", "int >= 0", "of every random number in training"),
    ("learner", "str", ", ".join(LEARNERS)),
    ("learning_rate", "float > 0 or auto", "of the learner"),
    ("adam_betas", "two floats in [0, 1)", "of adam and adamw"),
    ("weight_decay", "float >= 0, auto or ~", "L2 inside the learner"),
    ("clip_grad_norm", "dict or ~", "{max_norm: 5.0, norm_type: 2} bounds the norm of the gradient"),
    ("lr_plateau", "dict or ~", "{factor: 0.5, patience: 5} lowers the rate after stale validations"),
    ("lr_schedule", "cosine, linear or ~", "the rate falls to 0 at the last of the epochs; ~ keeps it"),
    ("warmup_ratio", _PROBABILITY, "share of the epochs over which the rate rises from 0"),
    ("ema_decay", "float in (0, 1) or ~", "what is ranked and kept is an exponential average of the weights"),
    ("manifold_learning_rate", "float > 0 or ~", "of parameters on a manifold; ~ is learning_rate"),
    ("stabilize", "int >= 1", "steps between projections of manifold parameters"),
    ("rowwise_update", "bool", "adam skips items without gradient in a step"),
    ("train_batch_size", "int >= 1 or auto", "sequences (not rows) in a batch"),
    ("num_workers", "int >= 1", "processes of data-parallel training, started by Ray Train"),
    ("train_windows", "all, last or random", "every interaction a target; the last L; one random window"),
    ("drop_last", "bool", "leave out the last, smaller batch of an epoch"),
    ("eval_step", "int >= 0", "epochs between two validations; 0 is none"),
    ("MAX_ITEM_LIST_LENGTH", "int >= 1 or auto", "newest items of a history that a model sees"),
    ("hidden_size", "int >= 1 or auto", "width of items and states"),
    ("inner_size", "int >= 1 or ~", "width inside the feed-forward part; ~ is hidden_size"),
    ("n_layers", "int >= 1", "layers or blocks"),
    ("n_heads", "int >= 1", "attention heads; divides hidden_size"),
    ("attention_dim", "int >= 1 or ~", "width of a head's queries and keys; ~ is hidden_size / n_heads"),
    ("linear_dim", "int >= 1 or ~", "width of a head's values and gates; ~ is hidden_size / n_heads"),
    (
        "n_time_buckets",
        "int >= 1",
        "the last bucket of the time between two items, each 1.35 times as long as the one before",
    ),
    ("hidden_act", "relu, gelu or swish", "inside the feed-forward part"),
    ("hidden_dropout_prob", "float in [0, 1) or auto", "dropout outside the attention weights"),
    ("attn_dropout_prob", "float in [0, 1) or auto", "dropout of attention weights"),
    ("dropout_prob", _PROBABILITY, "dropout of recurrent encoders"),
    ("layer_norm_eps", "float > 0", "added to the variance"),
    ("norm_placement", "query, pre or post", "where a block normalises"),
    ("scale_embeddings", "bool", "item embeddings times sqrt(hidden_size)"),
    ("initializer", "xavier or normal", "of matrices"),
    ("initializer_range", "float > 0", "standard deviation of initializer: normal"),
    ("attention_init", "separate or fused", "query, key and value drawn apart, or as one matrix"),
    ("attend_pads", "bool", "queries also attend to padding"),
    ("dense", "bool", "linear map behind the GRU"),
    ("gru_bias", "bool", "biases in the GRU"),
    ("gru_size", "int >= 1 or ~", "width of the GRU; ~ is hidden_size"),
    ("nonlinearity", "identity or tanh", "of the candidate state of the Moebius GRU"),
    ("reset", "before or after", "reset gate before or after the matrix"),
    ("filter", "causal or circular", "one pass over a sequence, or every prefix by itself as published"),
    ("layer_norm", "bool", "False: DualRec Table 3, w/o LN"),
    ("residual", "bool", "False: DualRec Table 3, w/o RC"),
    ("relative_positions", "transformer_xl, learned or none", "positions of windowed attention"),
    ("windows", "str, list or ~", "~ or multi_scale: DualRec's equation 8; full; [sizes]"),
    ("dual_windows", "str, list or ~", "windows of both directions"),
    ("dual_directions", "both, shared, past or future", "networks of a dual encoder"),
    ("dual_alpha", "float in [0, 1]", "share of the past loss"),
    ("dual_beta", "float >= 0", "weight of the transfer term"),
    ("dual_transfer", "heads, attention or none", "form of the transfer term"),
    ("dual_future_dropout", "bool", "dropout in the layers of the future network"),
    ("curvature", "float32 > 0, auto or learn", "c of curved heads and encoders; auto is estimated from the data"),
    ("curvature_init", "float32 > 0", "where a learned curvature starts"),
    ("curvature_learning_rate", "float > 0 or ~", "of a learned curvature; ~ is learning_rate"),
    ("temperature", "float > 0", "of the euclidean and the cosine head: logits are products, or cosines, over it"),
    ("item_bias", "bool", "trained offset per item in the output head"),
    ("item_bias_init", "float", "where the offsets start"),
    ("reuse_item_embeddings", "bool", "the encoder's item vectors are the head's"),
    ("selected_features", "list or ~", "columns of the .item file that are part of an item's vector"),
    ("pooling_mode", "sum, mean or max", "of the tokens of a feature that is a sequence"),
    ("feature_fusion", "add or concat", "vectors of id and features: their sum, or one map of all"),
    ("feature_output", "bool", "features are part of the head's item vectors too"),
    ("feature_standardize", "bool", "float features get mean 0 and standard deviation 1"),
    ("feature_id_dropout", _PROBABILITY, "share of items that a step sees by their features alone"),
    ("loss_memory_budget", "int >= 1 or ~", "bytes of logits alive at once in exact cross-entropy"),
    ("label_smoothing", _PROBABILITY, "share of the target that exact cross-entropy spreads evenly over all items"),
    ("triton_kernel", "bool", "exact cross-entropy sweeps over the items by Triton kernels, on a CUDA or ROCm device"),
    ("n_negatives", "int >= 1", "negatives per position or sequence"),
    ("gbce_t", "float in [0, 1]", "calibration: 0 is BCE+, 1 fully calibrated"),
    ("sce_n_buckets", "int >= 1 or ~", "buckets per batch"),
    ("sce_bucket_size_x", "int >= 1 or ~", "rows in a bucket"),
    ("sce_bucket_size_y", "int >= 1", "items in a bucket, at most all items"),
    ("sce_mix", "bool", "bucket directions are random mixtures of the states"),
    ("sce_alpha", "float > 0", "scale of number and size of buckets"),
    ("sce_beta", "float > 0", "rows per bucket over number of buckets"),
    ("rece_n_buckets", "int >= 1 or ~", "random directions per round"),
    ("rece_buckets_per_chunk", "int >= 1", "directions that share a chunk, divides rece_n_buckets"),
    ("rece_n_extra_chunks", "int >= 0", "neighbour chunks met on each side"),
    ("rece_rounds", "int >= 1", "independent sortings"),
    ("memory_window", "int >= 1", "steps between two items that count as neighbours, and newest items that are asked"),
    ("memory_neighbours", "int >= 1", "neighbours of an item that its memory keeps, the strongest"),
    ("reg_weight", "float > 0", "ridge of EASER"),
    ("rank", "int >= 1", "factors of PureSVDN"),
    ("scaling", "float in [0, 1]", "columns times popularity^((s-1)/2); 1 is plain SVD"),
)
_declare(
    "training grows",
    ("epochs", "int >= 0", "most epochs"),
    ("stopping_step", "int >= 0", "validations without a better score before training stops"),
)
_declare(
    "score ranking",
    ("exclude_seen", "bool", "items of the case's history are no candidates"),
    ("valid_metric", "str", "what selection looks at"),
)
_declare(
    "score ranking metrics",
    ("metrics", "list or str", "RecBole's names"),
    ("topk", "list or int", "cut-offs"),
    ("metric_decimal_place", "int in [0, 15]", "digits that metrics are rounded to"),
)
_declare("ranking", ("window_at_eval", "bool", "keep the windows of attention outside training"))
_declare(
    "ranking metrics",
    ("eval_batch_size", "int >= 1", "rows that RecBole's models score at one time"),
    ("tail_ratio", "float > 0", "share or count of unpopular items of tail percentage"),
)
_declare(
    "ranking place",
    ("ranking_memory_budget", "int >= 1", "bytes of scores held at one time while ranking"),
    ("confidence", "float in (0, 1) or ~", "level of bootstrap intervals in result.json; ~ computes none"),
)
_declare(
    "place",
    ("output_dir", "str or ~", "folder of the run; ~ is saved/<Model>-<dataset>-<time>"),
    ("strict", "bool", "a key of a configuration file that nothing reads is an error"),
    ("offline", "bool", "fetch no data set"),
    ("resume", "bool", "continue the run in output_dir from its last checkpoint"),
    ("checkpoint_dir", "str", "no effect: everything is in output_dir"),
    ("checkpoint_step", "int >= 1", "epochs between two resumable checkpoints"),
    (
        "checkpoint_minutes",
        "float > 0 or ~",
        "minutes between two resumable checkpoints inside an epoch; ~ writes none",
    ),
    ("n_threads", "int >= 1 or ~", "torch threads; ~ is torch's choice, within what affinity and cgroup allow"),
    ("ray_address", "str or ~", "running Ray cluster for num_workers, host:port; ~ starts one here"),
    ("memory_limit", "int >= 1 or ~", "bytes that training may take; ~ is what is free"),
    ("ease_memory_budget", "int >= 1 or ~", "bytes that EASER may take; ~ is 80% of what is free"),
    ("fit_cache", "str or ~", "folder where decompositions are kept for other runs"),
    ("max_rank", "int >= 1 or ~", "factors that the one decomposition keeps for other ranks"),
    ("protocol_report", "bool", "print what the protocol made of the data before training"),
    ("save_cases", "bool", "write the rank of every case to parquet files"),
    ("save_data", "bool", "keep ids and histories in output_dir/data, which is then enough to recommend"),
    ("show_progress", "bool", "progress bars"),
    ("use_cache", "bool", "keep what was read from the files in the user's cache folder, for other runs"),
    ("log_tensorboard", "bool", "write RecBole's tensorboard events into the output folder"),
    ("log_wandb", "bool", "report to Weights and Biases, through RecBole's logger"),
    ("wandb_project", "str", "project there"),
    ("worker", "int >= 0", "processes that make the batches of RecBole's general models"),
    ("state", "str", "level of the log"),
    ("use_gpu", "bool", "False trains on the CPU; True warns where no GPU can be used"),
    ("matmul_precision", "highest, high or medium", "of float32 products on a GPU: float32, TF32 or bfloat16"),
    ("compile", "bool", "let torch.compile fuse the encoder's operations; the first steps take a minute"),
    ("gpu_id", "str or int", "of the GPU; empty is the CPU"),
)

# what is set most often: shown by ``run --help``
COMMON = (
    *("epochs", "stopping_step", "learning_rate", "train_batch_size", "hidden_size", "n_layers"),
    *("MAX_ITEM_LIST_LENGTH", "loss_type", "geometry", "curvature", "seed", "eval_args", "exclude_seen"),
    *("metrics", "topk", "valid_metric", "output_dir", "resume", "data_path", "plugins"),
)
# what a finished run may be evaluated with
COMMON_OF_RANKING = ("eval_args", "exclude_seen", "metrics", "topk", "confidence")


def deciding(*what: str) -> frozenset[str]:
    """Return the names of the keys that decide one of ``what``."""
    return frozenset(name for name, key in KEYS.items() if set(what) & set(key.decides))


def check(values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
    """Raise ConfigError for the first of ``values`` that is not what its key may be; those of RecBole are passed over.

    A model of RecBole whose default is something else uses the name in its own way.
    """
    for name, value in values.items():
        default = (defaults or {}).get(name)
        open_default = value is None and default is None and defaults is not None
        if has_own(name, default) and not open_default:
            KEYS[name].check(value)


def has_own(name: str, default: Any) -> bool:
    """Return whether ``name`` has the meaning of this package for a model whose default it is."""
    return name in KEYS and (default is None or matches(KEYS[name].values, default))


def is_text(name: str) -> bool:
    """Return whether a word on the command line is the value of ``name`` as it stands: a folder called 1 is text."""
    return name in KEYS and set(_alternatives(KEYS[name].values)) <= {"str", "interval", "~"}


def is_flag(name: str) -> bool:
    """Return whether ``name`` is true or false."""
    return name in KEYS and set(_alternatives(KEYS[name].values)) <= {"bool", "~"}


def takes_list(name: str) -> bool:
    """Return whether a list may be the one value of ``name``."""
    return name in KEYS and any(word == "list" or word.startswith("two") for word in _alternatives(KEYS[name].values))


# --- the words for values --------------------------------------------------------------------------------------------
# the smallest number that float32 holds in full
_SMALLEST = 2.0**-126
_RANGE = re.compile(r"(int|float|float32)(?: (>=|>) (\S+)| in ([\[(])(\S+), (\S+)([\])]))?")
_INTERVAL = re.compile(r"\s*[\[(]\s*(\S+?)\s*,\s*(\S+?)\s*[\])]\s*")


def matches(values: str, value: Any) -> bool:
    """Return whether ``value`` is what ``values`` says.

    ``values`` is alternatives, separated by commas and "or": ~ (nothing), bool, str, list, dict, part (a name or a
    class), interval ("[5,inf)", several joined by ";"), "two floats in [0, 1)", "int" or "float" with "> 0", ">= 1" or
    "in [0, 1)"; any other word stands for itself. A float is a finite number, also one written without a point, a
    float32 one that its 32 bits hold in full.
    """
    return any(_one(word, value) for word in _alternatives(values))


def in_words(values: str) -> str:
    """Return what ``values`` says in plain words: "a whole number of at least 1 or ~"."""
    found = []
    for word in _alternatives(values):
        text = _WORDS.get(word, word)
        if (ends := _RANGE.fullmatch(word.replace("two floats", "float"))) is not None:
            noun = "two numbers" if word.startswith("two") else "a whole number" if ends[1] == "int" else "a number"
            bound = {">=": f" of at least {ends[3]}", ">": f" above {ends[3]}"}.get(ends[2], "")
            text = noun + bound + (word[word.index(" in ") :] if ends[4] else "")
            text += " that float32 holds" if ends[1] == "float32" else ""
        found.append(text)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"


def _alternatives(values: str) -> list[str]:
    # the comma of an interval separates nothing
    return [word.strip() for word in re.split(r", (?![^\[(]*[\])])| or ", values)]


def _one(word: str, value: Any) -> bool:
    if word in _KINDS:
        return _KINDS[word](value)
    if word.startswith("two floats"):
        one = word.replace("two floats", "float")
        return isinstance(value, list) and len(value) == 2 and all(_one(one, entry) for entry in value)
    ends = _RANGE.fullmatch(word)
    if ends is None:
        return value == word
    if not is_number(value) or (ends[1] == "int" and not isinstance(value, int)):
        return False
    return _inside(ends, value) and (ends[1] != "float32" or _SMALLEST <= abs(value) <= 1 / _SMALLEST)


def _inside(ends: re.Match[str], value: float) -> bool:
    _, compare, low, left, least, most, right = ends.groups()
    if compare:
        return value > float(low) if compare == ">" else value >= float(low)
    if left:
        above = value > float(least) if left == "(" else value >= float(least)
        return above and (value < float(most) if right == ")" else value <= float(most))
    return True


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_interval(value: Any) -> bool:
    """Return whether ``value`` is intervals as RecBole reads them: "[5,inf)" or "(0,1];[3,4]"."""
    for part in str(value).split(";"):
        ends = _INTERVAL.fullmatch(part)
        try:
            if ends is None or not float(ends[1]) <= float(ends[2]):
                return False
        except ValueError:
            return False
    return True


_WORDS = {
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "part": "a name or a class",
    "interval": "an interval such as [5,inf)",
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "~": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "part": lambda value: isinstance(value, str | type),
    "interval": is_interval,
}
