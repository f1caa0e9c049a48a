"""Checks of a configuration before any data are read: values, combinations, metrics, eval_args and files."""

import importlib.util
import logging
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.config.parts import CURVATURE
from recbole_hyper.errors import ConfigError, MissingDataError, did_you_mean, near_names
from recbole_hyper.host.metrics import DIVERSITY, OWN_METRICS, metric_needs, metrics_dict
from recbole_hyper.options import AUTO, Option, check_options
from recbole_hyper.values import EVALUATION, ShareBelow1, Text, allows, in_words
from recbole_hyper.yaml_files import data_addresses, only, packaged_yaml, properties_folder

logger = logging.getLogger("recbole_hyper")


def check_all(found: Any, others: Collection[str]) -> None:
    """Add the mistakes in the values of a :class:`recbole_hyper.config.resolve.Resolution` to its ``mistakes``.

    ``others`` are keys to which a third party's model gives its own meaning; their values are not checked.
    """
    final, model, mistakes = found.values, found.model_class, found.mistakes
    before = len(mistakes.errors)
    with mistakes.collected():
        check_metrics(final["metrics"], final["topk"])
    if len(mistakes.errors) == before:
        names, wanted = computed(final["metrics"], final["topk"]), final["valid_metric"]
        if str(wanted).lower() not in map(str.lower, names):
            mistakes.add(f"valid_metric={wanted!r} is not computed; set --valid_metric to one of {', '.join(names)}")
    with mistakes.collected():
        sequential = model.type.name == "SEQUENTIAL"
        check_eval_args(final["eval_args"], sequential=sequential, refit=bool(final.get("refit")))
    for text in (*wrong_values(found, others), *wrong_combinations(final)):
        mistakes.add(text)
    allowed = settings.LEARNERS if registry.parts_of(model) else settings.RECBOLE_LEARNERS
    for key in () if registry.parts_of(model) else final:
        if final[key] == AUTO != found.defaults.get(key) and key in found.options and not settings.is_text(key):
            mistakes.add(f"{key}='auto': only neural models of this package choose a value; {model.__name__} needs one")
    if str(final["learner"]).lower() not in allowed:
        mistakes.add(
            f"learner={final['learner']!r} is unknown to {model.__name__}; allowed: {', '.join(allowed)}"
            " (RecBole uses adam for any other name)"
        )


def wrong_values(found: Any, others: Collection[str]) -> Iterator[str]:
    """Yield a message for each value that its option, or the type of RecBole's default, does not allow.

    If an option does not allow the default, a model of RecBole gives the key another meaning.
    """
    # check a curvature even if nothing is curved
    values = {**found.values, **only(CURVATURE, found.given)}
    for key in values:  # a variable with the value would be one file more on the way of a key
        default, option = found.defaults.get(key), found.options.get(key)
        if (
            key in others
            or (values[key] is None and default is None)
            or (option is not None and option.allows(values[key]))
        ):
            continue
        wanted = type(default) if key in found.given and type(default) in (bool, int, float, str) else Any
        wanted = Text if key.endswith(("_FIELD", "_separator", "LIST_SUFFIX")) else wanted
        if option is not None and (default is None or option.allows(default)):
            yield option.why_not(values[key])
        elif (values[key] is not None or wanted is Text) and not allows(wanted, values[key]):
            yield f"{key}={values[key]!r}: {in_words(wanted)} is expected (default: {default!r})"
        elif key.endswith("dropout_prob") and not allows(ShareBelow1, values[key]):
            yield f"{key}={values[key]!r}: a number in [0, 1) is expected"


def is_ours(key: str, default: Any, options: Mapping[str, Option]) -> bool:
    """Return whether ``key``, for a model with this ``default``, means what this package declares."""
    return key in options and (default is None or options[key].allows(default))


def schedule_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that set a schedule of the learning rate over ``epochs``; {} if there is none."""
    # no .get: RecBole's Config has none
    return {key: config[key] for key in ("lr_schedule", "warmup_ratio") if key in config and config[key]}  # noqa: RUF019


def wrong_combinations(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for keys that cannot be combined, or that need a package which is missing."""
    if not config.get("diversity_features") and DIVERSITY in str(config["metrics"]).lower():
        yield (
            "metrics: IntraListDiversity compares items by columns of the .item file; name these columns, such as "
            "--diversity_features=[class]"
        )
    if config.get("lr_plateau") and (schedule := schedule_keys(config)):
        key, value = next(iter(schedule.items()))
        yield (f"{key}={value!r} and lr_plateau={config['lr_plateau']!r} both set the learning rate; choose one")
    if config.get("selected_features") and config.get("interactions") == "given":
        yield ("selected_features needs the .item file of a data set; a frame of interactions has no such file")
    sampling = config.get("train_neg_sample_args") or {}
    number = sampling.get("sample_num", 1) if sampling.get("distribution", "none") != "none" else 1
    if type(number) is not int or number < 1:
        yield f"train_neg_sample_args: sample_num={number!r} must be a whole number of at least 1"
    if config.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        yield ("log_wandb: true needs the package wandb: 'pip install wandb', or leave log_wandb out")


def check_eval_args(arguments: Any, *, sequential: bool, refit: bool = False) -> None:
    """Raise ConfigError for an entry of ``eval_args`` that is wrong or would be ignored.

    ``sequential`` models predict the next item; with ``refit`` a model is trained again on train + validation.
    """
    settings.SETTINGS["eval_args"].check(arguments)
    for key, value in arguments.items():
        if key not in EVALUATION:
            hint = did_you_mean(key, EVALUATION, n=1)
            raise ConfigError(f"eval_args: unknown key {key!r}; known: {', '.join(EVALUATION)}{hint}")
        if key == "mode" and "labeled" in (value.values() if isinstance(value, dict) else (value,)):
            raise ConfigError(
                "eval_args mode 'labeled' is not offered: every interaction is positive; drop low ratings with "
                "val_interval={rating: '[4,inf)'}, and rank with full, uniN or popN"
            )
        if not allows(EVALUATION[key], value):
            raise ConfigError(f"eval_args {key}={value!r}: {in_words(EVALUATION[key])} is expected")
    for name, argument in arguments.get("split", {}).items():
        if argument is None and ":" in str(name):
            raise ConfigError(f"eval_args split {name!r}: write a blank after the colon")
        _check_order(str(name), arguments, sequential=sequential)
        try:
            registry.checked_protocol(arguments, refit=refit)
        except ValueError as error:
            raise ConfigError(f"eval_args {error}") from error


def _check_order(name: str, arguments: Mapping[str, Any], *, sequential: bool) -> None:
    """Raise ConfigError for an order or a grouping that the split ``name`` does not support."""
    split = registry.resolve("protocols", name)
    order, group = arguments.get("order", "TO"), arguments.get("group_by", "user")
    if group != "user" and (registry.grouped_by_user(arguments) or not split.by_rows):
        allowed = "user or none" if split.by_rows else "user, as it splits all users at the same times"
        raise ConfigError(f"eval_args group_by={group!r}: the split {name} needs group_by {allowed}")
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


def computed(metrics: str | list[str], topk: int | list[int]) -> list[str]:
    """Return the names of valid metrics at their cut-offs, such as "NDCG@10"."""
    names, cuts = [metrics] if isinstance(metrics, str) else metrics, [topk] if isinstance(topk, int) else topk
    return [one for name in names for one in ([f"{name}@{k}" for k in cuts] if has_cut_off(name) else [name])]


def check_metrics(metrics: Any, topk: Any) -> None:
    """Raise ConfigError for metrics that cannot be computed from ranks, and cut-offs that are not positive integers."""
    check_options(settings.SETTINGS, {"metrics": metrics, "topk": topk})
    for metric in [metrics] if isinstance(metrics, str) else metrics:
        name, known = metric.lower(), [*metrics_dict, *OWN_METRICS]
        if name not in known:
            hint = did_you_mean(name, known, " Did you mean ", n=2)
            raise ConfigError(f"metric {metric!r} is unknown; known: {', '.join(sorted(known))}.{hint}")
        missing = set(metric_needs(name)) - SUPPORTED_NEEDS
        if missing:
            raise ConfigError(f"metric {name!r} needs {', '.join(sorted(missing))}, which a ranking does not provide")


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
    ours = [] if of_recbole else list(packaged_yaml(properties_folder() / "public_datasets.yaml"))
    theirs = list(data_addresses())
    if name in ours:
        return f"'recbole-hyper prepare {name}' prepares it"
    if name in theirs:
        return "A run downloads it if its folder is empty"
    names = near_names(name.lower().replace("_", "-"), dict.fromkeys([*ours, *theirs]), 3, 0.65)
    offers = [f"recbole-hyper prepare {one}" for one in names if one in ours]
    offers += [f"--dataset=recbole/{one}, which is downloaded" for one in names if one in theirs]
    if offers:
        return f"Known are {'; '.join(offers[:4])}"
    return f"For your table write 'recbole-hyper prepare {name} --source=FILE'"


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths if path.is_file()))
