"""Checks of a configuration before any data are read: values, combinations, metrics, eval_args and files."""

import importlib.util
import logging
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from recbole_hyper import registry, settings
from recbole_hyper.config.parts import CURVATURE
from recbole_hyper.errors import ConfigError, MissingDataError, Mistakes, did_you_mean, near_names
from recbole_hyper.host.metrics import DIVERSITY, OWN_METRICS, metric_needs, metrics_dict
from recbole_hyper.host.user_files import EVAL_KEYS
from recbole_hyper.options import AUTO, Option, out_of_range
from recbole_hyper.values import InnerShare, NonNegativeInt, PositiveFloat, PositiveInt, ShareBelow1, allows, in_words
from recbole_hyper.yaml_files import data_addresses, properties_folder, read_yaml

logger = logging.getLogger("recbole_hyper")

_MODE = re.compile(r"full|(uni|pop)[1-9][0-9]*")
# keys whose value is a mapping: what its entries may be, which are required, and an example
_MAPPINGS: dict[str, tuple[dict[str, Any], set[str], str]] = {
    "clip_grad_norm": (
        {"max_norm": PositiveFloat, "norm_type": PositiveFloat | Literal["inf"]},  # inf: also the number
        {"max_norm"},
        "{'max_norm': 5.0, 'norm_type': 2}",
    ),
    "lr_plateau": (
        {"factor": InnerShare, "patience": NonNegativeInt, "threshold": ShareBelow1},
        set(),
        "{factor: 0.5, patience: 5, threshold: 0}, factor in (0, 1),",
    ),
}


def check_all(
    keys: Mapping[str, Any],
    final: Mapping[str, Any],
    defaults: Mapping[str, Any],
    options: Mapping[str, Option],
    model: type,
    others: Collection[str],
    mistakes: Mistakes,
) -> None:
    """Add the mistakes in the configuration ``final`` of the class ``model`` to ``mistakes``.

    Args:
        keys: the keys that the user sets.
        final: all keys.
        defaults: the values that apply where the user sets none.
        options: every declared option.
        model: class of the model.
        others: keys to which a third party's model gives its own meaning; their values are not checked.
        mistakes: gets all mistakes.
    """
    columns = final.get("load_col")
    named = isinstance(columns, dict) and all(names == "*" or isinstance(names, list) for names in columns.values())
    if columns is not None and not named:
        mistakes.add(f"load_col={columns!r}: a mapping such as {{inter: [user_id, item_id]}} is expected")
    before = len(mistakes.errors)
    with mistakes.collected():
        check_metrics(final["metrics"], final["topk"])
    ranked = len(mistakes.errors) == before
    if not final.get("diversity_features") and DIVERSITY in str(final["metrics"]).lower():
        mistakes.add(
            "metrics: IntraListDiversity compares items by columns of the .item file; name these columns, such as "
            "--diversity_features=[class]"
        )
    sequential = model.type.name == "SEQUENTIAL"  # type: ignore[attr-defined]
    with mistakes.collected():
        check_eval_args(final["eval_args"], sequential=sequential, refit=bool(final.get("refit")))
    own = ({key: value for key, value in values.items() if key not in others} for values in (keys, final, defaults))
    for text in wrong_values(*own, options=options):
        mistakes.add(text)
    for text in wrong_combinations(final):
        mistakes.add(text)
    allowed = settings.LEARNERS if registry.parts_of(model) else settings.RECBOLE_LEARNERS
    for key in () if registry.parts_of(model) else final:
        if final[key] == AUTO != defaults.get(key) and key in options and not settings.is_text(key):
            mistakes.add(f"{key}='auto': only neural models of this package choose a value; {model.__name__} needs one")
    # RecBole's trainer silently uses adam for any other name
    if str(final["learner"]).lower() not in allowed:
        mistakes.add(f"learner={final['learner']!r} is unknown to {model.__name__}; allowed: {', '.join(allowed)}")
    if ranked:
        with mistakes.collected():
            check_valid_metric(final["valid_metric"], final["metrics"], final["topk"])


def wrong_values(
    keys: Mapping[str, Any], final: Mapping[str, Any], defaults: Mapping[str, Any], *, options: Mapping[str, Option]
) -> Iterator[str]:
    """Yield a message for each value that its option, or the type of RecBole's default, does not allow."""
    for key in keys:
        default = defaults.get(key)
        wanted = type(default)
        if wanted not in (bool, int, float, str) or keys[key] is None or is_ours(key, default, options):
            continue
        if not allows(wanted, keys[key]):
            yield f"{key}={keys[key]!r}: {in_words(wanted)} is expected (default: {default!r})"
    # check a curvature even if nothing is curved
    yield from out_of_range({**final, **{key: keys[key] for key in CURVATURE if key in keys}}, options, defaults)
    for key in final:
        # RecBole's models name their rates differently
        if key.endswith("dropout_prob") and final[key] != AUTO and not allows(ShareBelow1, final[key]):
            yield f"{key}={final[key]!r}: a number in [0, 1) is expected"
    for key, (inside, needed, expected) in _MAPPINGS.items():
        value = final.get(key)
        if value is not None and not isinstance(value, dict):
            continue  # out of range
        right = needed <= set(value or needed) <= set(inside)
        entries = {name: "inf" if entry == float("inf") else entry for name, entry in (value or {}).items()}
        if not right or not all(allows(inside[name], entry) for name, entry in entries.items()):
            yield f"{key}={value!r}: {expected} is expected"


def check_ranges(values: Mapping[str, Any], options: Mapping[str, Option]) -> None:
    """Raise ConfigError for the first of ``values`` that its option does not allow; other keys are skipped."""
    for key, value in values.items():
        if key in options:
            options[key].check(value)


def is_ours(key: str, default: Any, options: Mapping[str, Option]) -> bool:
    """Return whether ``key``, for a model with this ``default``, means what this package declares."""
    return key in options and (default is None or options[key].allows(default))


def schedule_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that set a schedule of the learning rate over ``epochs``; {} if there is none."""
    # no .get: RecBole's Config has none
    return {key: config[key] for key in ("lr_schedule", "warmup_ratio") if key in config and config[key]}  # noqa: RUF019


def wrong_combinations(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for keys that cannot be combined, or that need a package which is missing."""
    learner, decay = config.get("learner"), config.get("weight_decay")
    if config.get("rowwise_update") and (str(learner).lower() != "adam" or decay):
        yield (
            f"rowwise_update: true goes with learner: adam and without weight_decay, which changes every row; "
            f"got learner={learner!r}, weight_decay={decay!r}"
        )
    if config.get("lr_plateau") and (schedule := schedule_keys(config)):
        key, value = next(iter(schedule.items()))
        yield (f"{key}={value!r} and lr_plateau={config['lr_plateau']!r} both set the learning rate; choose one")
    if config.get("selected_features") and config.get("interactions") == "given":
        yield ("selected_features needs the .item file of a data set; a frame of interactions has no such file")
    if config.get("loggers") == "mlflow" and importlib.util.find_spec("mlflow") is None:
        yield "loggers: mlflow needs the package mlflow: pip install 'recbole-hyper[mlflow]', or leave loggers out"
    if config.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        yield ("log_wandb: true needs the package wandb: 'pip install wandb', or leave log_wandb out")


def check_eval_args(arguments: Any, *, sequential: bool, refit: bool = False) -> None:
    """Raise ConfigError for an entry of ``eval_args`` that is wrong or would be ignored.

    ``sequential`` models predict the next item; with ``refit`` a model is trained again on train + validation.
    """
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"eval_args={arguments!r}: a mapping is expected, such as {{mode: full}}")
    for key in arguments:
        if key not in EVAL_KEYS:
            known = ", ".join(EVAL_KEYS)
            raise ConfigError(f"eval_args: unknown key {key!r}; known: {known}{did_you_mean(key, EVAL_KEYS, n=1)}")
    split = arguments.get("split", {})
    if not isinstance(split, Mapping) or len(split) > 1:
        raise ConfigError(f"eval_args split={split!r}: one entry is expected, such as {{LS: valid_and_test}}")
    if not isinstance(arguments.get("successive", False), bool):
        raise ConfigError(f"eval_args successive={arguments['successive']!r}: true or false is expected")
    for name in split:
        _check_order(str(name), arguments, sequential=sequential)
        try:
            registry.checked_protocol(arguments, refit=refit)
        except ValueError as error:
            raise ConfigError(f"eval_args {error}") from error
    mode = arguments.get("mode", "full")
    modes = mode if isinstance(mode, Mapping) else {"valid": mode}
    if not set(modes) <= {"valid", "test"}:
        raise ConfigError(f"eval_args mode={mode!r}: one mode, or {{valid: ..., test: ...}}, is expected")
    for value in modes.values():
        if value == "labeled":
            raise ConfigError(
                "eval_args mode 'labeled' is not offered: every interaction of a sequence is positive, and a score "
                "orders items but is neither a rating nor a probability; drop low ratings with "
                "val_interval={rating: '[4,inf)'}, and rank with full, uniN or popN"
            )
        if not (isinstance(value, str) and (_MODE.fullmatch(value) or Path(value).is_file())):
            raise ConfigError(
                f"eval_args mode {value!r} is not offered; allowed: full, uniN or popN (N sampled candidates: uni99), "
                "or the path of a file with the candidates of each user"
            )


def _check_order(name: str, arguments: Mapping[str, Any], *, sequential: bool) -> None:
    """Raise ConfigError for an order or a grouping that the split ``name`` does not support."""
    split = registry.resolve("protocols", name)
    order, group = arguments.get("order", "TO"), arguments.get("group_by", "user")
    if group != "user" and (registry.grouped_by_user(arguments) or not split.by_rows):
        allowed = "user or none" if split.by_rows else "user, as it splits all users at the same times"
        raise ConfigError(f"eval_args group_by={group!r}: the split {name} needs group_by {allowed}")
    if order not in ("TO", "RO"):
        raise ConfigError(f"eval_args order={order!r}: TO (by time) or RO (at random) is expected")
    if order == "TO":
        return
    if not split.by_rows:
        raise ConfigError(f"eval_args order='RO': the split {name} splits by time; set order: TO")
    if sequential:
        raise ConfigError(
            "eval_args order='RO': a sequential model predicts the next item, and a random order has no next item "
            "(RecBole refuses it too); set order: TO, or use a model without sequences (BPR, EASER, PureSVDN, Pop)"
        )
    if arguments.get("successive"):
        raise ConfigError("eval_args successive: true needs items in the order of time; set order: TO")


# what a ranking provides for RecBole's metrics
SUPPORTED_NEEDS = {f"rec.{name}" for name in ("topk", "items", "meanrank")}
SUPPORTED_NEEDS |= {f"data.{name}" for name in ("num_items", "num_users", "count_items", "count_users")}


def has_cut_off(metric: str) -> bool:
    """Return whether a known metric is computed at cut-offs; GAUC, which uses the mean rank, is not."""
    return "rec.meanrank" not in metric_needs(metric.lower())


def first_metric(metrics: str | list[str], topk: int | list[int]) -> str:
    """Return the first of the metrics at the first cut-off, such as "NDCG@10"; both must be valid."""
    name, k = (one if isinstance(one, str | int) else one[0] for one in (metrics, topk))
    return f"{name}@{k}" if has_cut_off(str(name)) else str(name)


def check_metrics(metrics: Any, topk: Any) -> None:
    """Raise ConfigError for metrics that cannot be computed from ranks, and cut-offs that are not positive integers."""
    names = [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"metrics={metrics!r}: a list of names is expected, such as [NDCG, Hit]")
    for metric in names:
        name, known = metric.lower(), [*metrics_dict, *OWN_METRICS]
        if name not in known:
            hint = did_you_mean(name, known, " Did you mean ", n=2)
            raise ConfigError(f"metric {metric!r} is unknown; known: {', '.join(sorted(known))}.{hint}")
        missing = set(metric_needs(name)) - SUPPORTED_NEEDS
        if missing:
            raise ConfigError(f"metric {name!r} needs {', '.join(sorted(missing))}, which a ranking does not provide")
    cuts = topk if isinstance(topk, list) else [topk]
    if not cuts or not all(allows(PositiveInt, k) for k in cuts):
        raise ConfigError(f"topk={topk!r}: whole numbers of at least 1 are expected, such as [1, 5, 10]")


def check_valid_metric(valid_metric: Any, metrics: str | list[str], topk: int | list[int]) -> None:
    """Raise ConfigError unless ``valid_metric`` is among the metrics that are computed."""
    metrics, topk = [metrics] if isinstance(metrics, str) else metrics, [topk] if isinstance(topk, int) else topk
    name, at, k = str(valid_metric).lower().partition("@")
    known = name in [metric.lower() for metric in metrics]
    cut = known and has_cut_off(name)
    # as it is written in a result: @010 would be another column
    if not known or (cut and k not in map(str, topk)) or (at and not cut):
        raise ConfigError(
            f"valid_metric={valid_metric!r} is not computed: metrics are {metrics} at topk {topk}; set it to one of "
            f"these, such as --valid_metric={first_metric(metrics, topk)}"
        )


def check_dataset(config: dict[str, Any], root: str, dataset: str, *, of_recbole: bool) -> None:
    """Raise MissingDataError if the files of ``dataset`` are not in ``data_path``, its folder below ``root``.

    If another file that ``load_col`` names is missing, it is removed from ``load_col``, with a warning.
    """
    if config["interactions"] == "given":
        return
    folder = Path(config["data_path"])
    middles = [f".{part}" for part in config["benchmark_filename"] or ()] or [""]
    files = [folder / f"{dataset}{middle}.inter" for middle in middles]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is None:
        columns = config["load_col"]
        absent = [name for name in columns if name != "inter" and not (folder / f"{dataset}.{name}").is_file()]
        for suffix in absent:
            logger.warning(
                "load_col names columns of %r, but %s does not exist: they are not read; files in the folder: %s",
                *(suffix, folder / f"{dataset}.{suffix}", _names(folder.glob(f"{dataset}.*"))),
            )
        config["load_col"] = {suffix: names for suffix, names in columns.items() if suffix not in absent}
        return
    if folder.is_dir() and len(files) > 1:
        raise ConfigError(
            f"benchmark_filename={config['benchmark_filename']}: {missing.absolute()} does not exist; "
            f"the folder has {_names(folder.glob('*.inter')) or 'no .inter file'}"
        )
    siblings = sorted(path.parent.name for path in Path(root).glob("*/*.inter")) if Path(root).is_dir() else []
    hint = did_you_mean(repr(dataset), map(repr, ["ml-100k", *siblings]), " Did you mean ", n=1)
    if (file := Path(dataset)).suffix == ".inter" and file.is_file():
        hint = f" For this file write --data_path={file.absolute().parent.parent} --dataset={file.parent.name}."
    elif file.is_file():
        source = shlex.quote(dataset)
        hint = f" For a table write recbole-hyper prepare mine --source={source}, and then --dataset=mine."
    elif (Path(root) / f"{dataset}.inter").is_file():
        hint = f" Its files are in {root} itself: set --data_path={Path(root).absolute().parent}."
    present = f" Datasets there: {', '.join(dict.fromkeys(siblings))}." if siblings else ""
    message = (
        f"dataset {dataset!r} was not found: {missing.absolute()} does not exist.{hint}{present} "
        f"{_how_to_get(dataset, of_recbole=of_recbole)}, or set --data_path=DIR to the folder that contains it"
    )
    raise MissingDataError(message, dataset, Path(root), of_recbole=of_recbole, offline=bool(config.get("offline")))


def _how_to_get(name: str, *, of_recbole: bool) -> str:
    """Return how the data set ``name`` is prepared or downloaded, or which data sets have nearly this name."""
    ours = [] if of_recbole else list(read_yaml(properties_folder() / "public_datasets.yaml"))
    theirs = list(data_addresses())
    if name in ours:
        return f"'recbole-hyper prepare {name}' prepares it"
    if name in theirs:
        return "A run downloads it if its folder is empty"
    wanted, spellings = _spelling(name), {one: _spelling(one) for one in [*ours, *theirs]}
    spelled = [one for one, spelling in spellings.items() if spelling == wanted]
    longer = [one for one, spelling in spellings.items() if spelling.startswith(wanted) or spelling.endswith(wanted)]
    names = spelled or longer or near_names(name, spellings, 3, 0.8, _spelling)
    offers = [f"recbole-hyper prepare {one}" for one in names if one in ours]
    offers += [f"--dataset=recbole/{one}, which is downloaded" for one in names if one in theirs]
    if offers:
        return f"Known are {'; '.join(offers[:4])}"
    return f"For your table write 'recbole-hyper prepare {name} --source=FILE'"


def _spelling(name: str) -> str:
    """Return the letters and digits of a data set's name: yelp2018 is yelp-2018, Toys_and_Games is toys-games."""
    words = re.findall(r"[a-z]+|[0-9]+", name.lower().replace("movielens", "ml"))
    return "".join(word for word in words if word != "and")


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths if path.is_file()))
