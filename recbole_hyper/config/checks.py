"""What a configuration must satisfy before any data are read: values, what goes together, metrics, eval_args, files."""

import importlib.util
import logging
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from recbole.evaluator.register import metric_information, metric_types, smaller_metrics
from recbole.utils import ModelType

from recbole_hyper import registry, settings
from recbole_hyper.config.parts import CURVATURE
from recbole_hyper.errors import ConfigError, MissingDataError, did_you_mean
from recbole_hyper.options import AUTO, Option, in_words, matches

logger = logging.getLogger("recbole_hyper")

EVAL_KEYS = ("split", "order", "group_by", "mode", "successive")
_MODE = re.compile(r"full|(uni|pop)[1-9][0-9]*")


# by key that is a mapping: what its entries may be, those that it needs, and how it looks
_MAPPINGS: dict[str, tuple[dict[str, str], set[str], str]] = {
    "clip_grad_norm": (
        {"max_norm": "float > 0", "norm_type": "float > 0 or inf"},  # inf: also the number
        {"max_norm"},
        "{'max_norm': 5.0, 'norm_type': 2}",
    ),
    "lr_plateau": (
        {"factor": "float in (0, 1)", "patience": "int >= 0", "threshold": "float in [0, 1)"},
        set(),
        "{factor: 0.5, patience: 5, threshold: 0}, factor in (0, 1),",
    ),
}


def check_all(
    given: Mapping[str, Any],
    final: Mapping[str, Any],
    defaults: Mapping[str, Any],
    options: Mapping[str, Option],
    model: type,
    others: Collection[str],
) -> None:
    """Raise ConfigError for the first thing that is wrong with the configuration ``final`` of the class ``model``.

    ``given`` is what the user sets, ``defaults`` is what applies without that, ``options`` are all that are declared.
    The keys ``others`` mean what others' model makes of them.
    """
    columns = final.get("load_col")
    named = isinstance(columns, dict) and all(names == "*" or isinstance(names, list) for names in columns.values())
    if columns is not None and not named:
        raise ConfigError(f"load_col={columns!r}: {{inter: [user_id, ...]}} or the like is expected")
    check_metrics(final["metrics"], final["topk"])
    if not final.get("diversity_features") and DIVERSITY in str(final["metrics"]).lower():
        raise ConfigError(
            "metrics: IntraListDiversity compares items by columns of the .item file; name them, such as "
            "--diversity_features=[class]"
        )
    sequential = model.type == ModelType.SEQUENTIAL  # type: ignore[attr-defined]
    check_eval_args(final["eval_args"], sequential=sequential, refit=bool(final.get("refit")))
    own = ({key: value for key, value in values.items() if key not in others} for values in (given, final, defaults))
    check_values(*own, options=options)
    check_combinations(final)
    allowed = settings.LEARNERS if registry.parts_of(model) else settings.RECBOLE_LEARNERS
    for key, value in final.items():
        if value == AUTO and key in options and not settings.is_text(key) and not registry.parts_of(model):
            raise ConfigError(f"{key}='auto': {model.__name__} takes a number; neural models of this package find one")
    # RecBole's trainer takes adam for any other name
    if str(final["learner"]).lower() not in allowed:
        raise ConfigError(f"learner={final['learner']!r} is unknown to {model.__name__}; allowed: {', '.join(allowed)}")
    check_valid_metric(final["valid_metric"], final["metrics"], final["topk"])


def check_values(
    given: Mapping[str, Any], final: Mapping[str, Any], defaults: Mapping[str, Any], *, options: Mapping[str, Option]
) -> None:
    """Raise ConfigError for a ``given`` value that its key may not have; one of RecBole has the type of its default."""
    for key, value in given.items():
        default = defaults.get(key)
        if value is None or default is None or key == "train_neg_sample_args" or is_ours(key, default, options):
            continue
        kinds = {bool: "bool", int: "int", float: "float", str: "str"}
        wanted = next((word for kind, word in kinds.items() if isinstance(default, kind)), "")
        if wanted and not matches(wanted, value):
            raise ConfigError(f"{key}={value!r}: {in_words(wanted)} is expected (default: {default!r})")
    # a curvature also where nothing is curved
    check_ranges({**final, **{key: given[key] for key in CURVATURE if key in given}}, options, defaults)
    for key, value in final.items():
        # RecBole's models name their rates differently
        if key.endswith("dropout_prob") and value != AUTO and not matches("float in [0, 1)", value):
            raise ConfigError(f"{key}={value!r}: a number in [0, 1) is expected")
    for key, (inside, needed, expected) in _MAPPINGS.items():
        value = final.get(key)
        right = needed <= set(value or needed) <= set(inside)
        entries = {name: "inf" if entry == float("inf") else entry for name, entry in (value or {}).items()}
        if not right or not all(matches(inside[name], entry) for name, entry in entries.items()):
            raise ConfigError(f"{key}={value!r}: {expected} is expected")


def check_ranges(
    values: Mapping[str, Any], options: Mapping[str, Option], defaults: Mapping[str, Any] | None = None
) -> None:
    """Raise ConfigError for the first of ``values`` that is not what its option may be; others are passed over.

    A model of RecBole whose default is something else uses the name in its own way.
    """
    for key, value in values.items():
        default = (defaults or {}).get(key)
        is_open = value is None and default is None and defaults is not None
        if is_ours(key, default, options) and not is_open:
            options[key].check(value)


def is_ours(key: str, default: Any, options: Mapping[str, Option]) -> bool:
    """Return whether ``key`` has the meaning of this package for a model whose default it is."""
    return key in options and (default is None or options[key].allows(default))


def schedule_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys by which the learning rate follows a schedule over ``epochs``; {} where it does not."""
    # no .get: RecBole's Config has none
    given = {key: config[key] for key in ("lr_schedule", "warmup_ratio") if key in config}
    return {key: value for key, value in given.items() if value}


def check_combinations(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for keys that do not go together, or that this package does not offer."""
    learner, decay = config.get("learner"), config.get("weight_decay")
    if config.get("rowwise_update") and (str(learner).lower() != "adam" or decay):
        raise ConfigError(
            f"rowwise_update: true goes with learner: adam and no weight_decay, which touches every row; "
            f"got learner={learner!r}, weight_decay={decay!r}"
        )
    if config.get("lr_plateau") and (schedule := schedule_keys(config)):
        key, value = next(iter(schedule.items()))
        raise ConfigError(f"{key}={value!r} and lr_plateau={config['lr_plateau']!r} both set the rate; choose one")
    if config.get("selected_features") and config.get("interactions") == "given":
        raise ConfigError("selected_features needs the .item file of a data set; a frame of interactions has none")
    if config.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        raise ConfigError("log_wandb: true needs the package wandb: 'pip install wandb', or leave log_wandb out")


def check_eval_args(arguments: Any, *, sequential: bool, refit: bool = False) -> None:
    """Raise ConfigError for words of ``eval_args`` that have no meaning, or would be ignored.

    ``sequential``: the model predicts the next item; ``refit``: it is trained again on train + validation.
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
            checked_protocol(arguments, refit=refit)
        except ValueError as error:
            raise ConfigError(f"eval_args {error}") from error
    mode = arguments.get("mode", "full")
    modes = mode if isinstance(mode, Mapping) else {"valid": mode}
    if not set(modes) <= {"valid", "test"}:
        raise ConfigError(f"eval_args mode={mode!r}: one mode, or {{valid: ..., test: ...}}, is expected")
    for value in modes.values():
        if value == "labeled":
            raise ConfigError(
                "eval_args mode 'labeled' is not offered: labels are not read, as every interaction of a sequence is a "
                "positive one, and a score orders items but is neither a rating nor a probability; "
                "val_interval={rating: '[4,inf)'} drops those below a rating, and full, uniN and popN rank the others"
            )
        if not (isinstance(value, str) and (_MODE.fullmatch(value) or Path(value).is_file())):
            raise ConfigError(
                f"eval_args mode {value!r} is not offered; allowed: full, uniN or popN (N sampled candidates: uni99), "
                "or the path of a file with the candidates of each user"
            )


def checked_protocol(arguments: Mapping[str, Any], *, refit: bool) -> Any:
    """Build the protocol that the one entry of ``split`` in ``eval_args`` names.

    UnknownPartError for an unknown one; ProtocolError for an argument or options that are wrong for all data.
    """
    ((name, argument),) = arguments["split"].items()
    cls = registry.resolve("protocols", str(name))
    options = {"successive": bool(arguments.get("successive", False)), "refit": refit}
    options |= {"by_user": grouped_by_user(arguments)} if cls.by_rows else {}
    protocol = cls(argument, **options)
    protocol.check_argument()
    return protocol


def grouped_by_user(arguments: Mapping[str, Any]) -> bool:
    """Return whether ``group_by`` says user; RecBole's none may be written as nothing."""
    return str(arguments.get("group_by", "user")).lower() != "none"


def _check_order(name: str, arguments: Mapping[str, Any], *, sequential: bool) -> None:
    """Raise ConfigError for an order or a grouping that the split ``name`` does not have."""
    split = registry.resolve("protocols", name)
    order, group = arguments.get("order", "TO"), arguments.get("group_by", "user")
    if group != "user" and (grouped_by_user(arguments) or not split.by_rows):
        allowed = "user or none" if split.by_rows else "user: points in time part all users alike"
        raise ConfigError(f"eval_args group_by={group!r}: the split {name} has group_by {allowed}")
    if order not in ("TO", "RO"):
        raise ConfigError(f"eval_args order={order!r}: TO (by time) or RO (at random) is expected")
    if order == "TO":
        return
    if not split.by_rows:
        raise ConfigError(f"eval_args order='RO': the split {name} is made by time; set order: TO")
    if sequential:
        raise ConfigError(
            "eval_args order='RO': a sequential model predicts the next item, and a random order has none "
            "(RecBole refuses it too); set order: TO, or take a model without sequences (BPR, EASER, PureSVDN, Pop)"
        )
    if arguments.get("successive"):
        raise ConfigError("eval_args successive: true asks for one item after another in time; order: RO has no such")


# what a ranking gives to RecBole's metrics
SUPPORTED_NEEDS = {f"rec.{name}" for name in ("topk", "items", "meanrank")}
SUPPORTED_NEEDS |= {f"data.{name}" for name in ("num_items", "num_users", "count_items", "count_users")}
# beside RecBole's: recbole_hyper.evaluation.beyond_accuracy
NOVELTY, DIVERSITY, MISCALIBRATION = "novelty", "intralistdiversity", "popularitymiscalibration"
OWN_METRICS = (NOVELTY, DIVERSITY, MISCALIBRATION)


def has_cut_off(metric: str) -> bool:
    """Return whether a known metric is computed at cut-offs; one of the mean rank (GAUC) is not."""
    return "rec.meanrank" not in metric_information.get(metric.lower(), ())


def is_smaller_better(metric: str) -> bool:
    """Return whether a metric such as "averagepopularity@10" is better when it is smaller."""
    return metric.lower().partition("@")[0] in (*smaller_metrics, MISCALIBRATION)


def check_metrics(metrics: Any, topk: Any) -> None:
    """Raise ConfigError for metrics that ranks do not give, or cut-offs that are no whole numbers above 0."""
    names = [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"metrics={metrics!r}: a list of names is expected, such as [NDCG, Hit]")
    for metric in names:
        name, known = metric.lower(), [*metric_types, *OWN_METRICS]
        if name not in known:
            hint = did_you_mean(name, known, " Did you mean ", n=2)
            raise ConfigError(f"metric {metric!r} is unknown; known: {', '.join(sorted(known))}.{hint}")
        missing = set(metric_information.get(name, ())) - SUPPORTED_NEEDS
        if missing:
            raise ConfigError(f"metric {name!r} needs {', '.join(sorted(missing))}, which a ranking does not give")
    cuts = topk if isinstance(topk, list) else [topk]
    if not cuts or not all(matches("int >= 1", k) for k in cuts):
        raise ConfigError(f"topk={topk!r}: whole numbers of at least 1 are expected, such as [1, 5, 10]")


def check_valid_metric(valid_metric: Any, metrics: str | list[str], topk: int | list[int]) -> None:
    """Raise ConfigError unless the metric of the selection is among those that are computed."""
    metrics, topk = [metrics] if isinstance(metrics, str) else metrics, [topk] if isinstance(topk, int) else topk
    name, at, k = str(valid_metric).lower().partition("@")
    known = name in [metric.lower() for metric in metrics]
    cut = known and has_cut_off(name)
    # as in a result: @010 would be another column
    if not known or (cut and k not in map(str, topk)) or (at and not cut):
        raise ConfigError(f"valid_metric={valid_metric!r} is not computed: metrics are {metrics} at topk {topk}")


def check_dataset(config: dict[str, Any], root: str, dataset: str, *, of_recbole: bool) -> None:
    """Raise MissingDataError where the files of the ``dataset`` are not in ``data_path``, its folder below ``root``.

    A file beside them that ``load_col`` names and that is not there is left out of ``load_col``, with a warning.
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
                "load_col names columns of %r, but %s does not exist: they are not read; the folder holds %s",
                *(suffix, folder / f"{dataset}.{suffix}", _names(folder.glob(f"{dataset}.*"))),
            )
        config["load_col"] = {suffix: names for suffix, names in columns.items() if suffix not in absent}
        return
    if folder.is_dir() and len(files) > 1:
        raise ConfigError(
            f"benchmark_filename={config['benchmark_filename']}: {missing.absolute()} does not exist; "
            f"the folder holds {_names(folder.glob('*.inter')) or 'no .inter file'}"
        )
    siblings = sorted(path.parent.name for path in Path(root).glob("*/*.inter")) if Path(root).is_dir() else []
    hint = did_you_mean(repr(dataset), map(repr, ["ml-100k", *siblings]), " Did you mean ", n=1)
    if (given := Path(dataset)).suffix == ".inter" and given.is_file():
        hint = f" For this file write --data_path={given.absolute().parent.parent} --dataset={given.parent.name}."
    elif given.is_file():
        source = shlex.quote(dataset)
        hint = f" For a table write recbole-hyper prepare mine --source={source}, and then --dataset=mine."
    present = f" Datasets there: {', '.join(dict.fromkeys(siblings))}." if siblings else ""
    message = (
        f"dataset {dataset!r} was not found: {missing.absolute()} does not exist.{hint}{present} Prepare it with "
        f"'recbole-hyper prepare {dataset}', or give the folder that holds it with --data_path=DIR"
    )
    raise MissingDataError(message, dataset, Path(root), of_recbole=of_recbole, offline=bool(config.get("offline")))


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths if path.is_file()))
