"""``recbole-hyper compare --models=A,B,C --dataset=NAME``: train each on one split, print and save one table."""

import argparse
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recbole_hyper.cluster import cluster
from recbole_hyper.commands import argument, command, dataset, duration, words
from recbole_hyper.settings import COMMON
from recbole_hyper.threads import processors

if TYPE_CHECKING:
    from recbole_hyper.experiment.comparison import Comparison
    from recbole_hyper.experiment.experiment import Experiment, Run


@command(
    "train several models on one split, and print and save one table with significance against the best",
    argument("--models", type=words, required=True, help="names separated by commas; ours or RecBole's"),
    *dataset(
        "keys of all models (keys below a model's name are for that model, as is --EASER.reg_weight=64)", required=True
    ),
    argument("--output_dir", help="folder with a folder per model; finished models are not run again"),
    argument("--segments", type=words, default="", help="such as history_length,item_popularity,item.COLUMN"),
    argument("--seeds", help="such as 1,2,3: train every model with each, in MODEL/seed-N; shows means and deviations"),
    argument(
        "--scores",
        action="append",
        metavar="NAME=FILE",
        help="csv or parquet of another library: user_id, item_id, score",
    ),
    argument("--tuned", action="append", metavar="MODEL=DIR", help="the sweep whose winner has the settings of MODEL"),
    argument(
        "--package", help="new folder with all that is needed to check and repeat the table (recbole-hyper verify)"
    ),
    argument("--max_concurrent", type=int, help="most models that train at a time; default: one per core"),
    argument("--time_budget", type=duration, help="start no run after 90s, 30m, 1h30m; the same command continues"),
    argument("--ray_address", help="a running Ray cluster, host:port, that shares output_dir; default: this machine"),
    keys=COMMON,
)
def compare(arguments: argparse.Namespace) -> int:
    """Train the models that are not finished, then print and save the table; return 1 if a model failed."""
    from recbole_hyper.evaluation.segments import check_segments
    from recbole_hyper.experiment.comparison import Comparison
    from recbole_hyper.experiment.experiment import Experiment, Run
    from recbole_hyper.experiment.package import write_package
    from recbole_hyper.experiment.scores import missing_text, rank_scores
    from recbole_hyper.experiment.seeds import read_seeds
    from recbole_hyper.runs.folder import plan_runs, read_config, seed_folder
    from recbole_hyper.training.build import read_data

    models, name_of_data = arguments.models, arguments.dataset
    scores, tuned = check_names(arguments)
    seeds = [] if arguments.seeds is None else read_seeds(arguments.seeds, arguments.keys)
    folder = Path(arguments.output_dir or Path("saved") / f"compare-{name_of_data}")
    settings, file_of_key = settings_per_model(models, arguments.config_files, arguments.keys)
    for name, sweep in tuned.items():
        settings[name] = {**chosen_by(sweep, name, models), **settings[name]}
    with each_line_once():
        configs = check_all(models, name_of_data, settings, folder, file_of_key)
    first = configs[models[0]]
    items = Path(first["data_path"]) / f"{name_of_data}.item"
    check_segments(arguments.segments, items)
    # check all of them before the first is trained
    runs = [
        Run(name, name_of_data, seed, keys, seed_folder(folder / name, seed), name)
        for name in models
        for seed, keys in plan_runs(name, name_of_data, seeds or [None], folder / name, settings[name]).items()
    ]
    at_once = arguments.max_concurrent or at_a_time(runs, configs)
    connect = partial(cluster, arguments.ray_address) if arguments.ray_address else None
    experiment = Experiment(runs, at_once, connect, arguments.time_budget, bar=True)
    results, failed = train(experiment, folder)
    places = {name: {seed: seed_folder(folder / name, seed) for seed in by_seed} for name, by_seed in results.items()}
    # on data with few items, runs shorten the default cut-offs
    used = read_config(next(iter(next(iter(places.values())).values())))
    first["topk"], first["valid_metric"] = used["topk"], used["valid_metric"]
    notes = {}
    for name, file in scores.items():
        ranked = rank_scores(name, file, first, folder / name)
        results[name], places[name], notes[name] = {None: ranked}, {None: folder / name}, missing_text(ranked)
    metric = str(first["valid_metric"]).lower()
    compared = Comparison(results, places, metric, first["topk"], seeds, failed, notes)
    paths = save_tables(compared, folder)
    if arguments.segments:
        paths += save_segments(compared, arguments.segments, items, folder)
    if arguments.package:
        _, split = read_data(first)
        package = Path(arguments.package)
        paths.append(write_package(package, compared, folder, split=split, tuned=tuned, scores=scores))
    print(*paths, sep="\n")
    return 1 if failed else 0


def check_names(arguments: argparse.Namespace) -> tuple[dict[str, Path], dict[str, Path]]:
    """Check what needs no configuration; return the files of ``--scores`` and the sweeps of ``--tuned`` by name."""
    from recbole_hyper.errors import ConfigError
    from recbole_hyper.evaluation.segments import check_segments
    from recbole_hyper.experiment.package import require_new
    from recbole_hyper.experiment.scores import read_scores

    models = arguments.models
    if twice := sorted({name for name in models if models.count(name) > 1}):
        raise ConfigError(
            f"--models names {twice[0]} more than once, but a model is one row; to compare two settings of it, use "
            "'recbole-hyper run' for each, then 'recbole-hyper report'"
        )
    check_segments(arguments.segments)
    if not models:
        raise ConfigError("--models='' names no model; write --models=SASRecCE,Pop, for example")
    scores, tuned = by_name(arguments.scores, "scores"), by_name(arguments.tuned, "tuned")
    if both := sorted(scores.keys() & set(models)):
        raise ConfigError(f"--scores={both[0]}=FILE: {both[0]} is a model of --models; choose another name")
    for file in scores.values():
        read_scores(file)
    if arguments.package:
        require_new(Path(arguments.package))
    return scores, tuned


def save_tables(compared: "Comparison", folder: Path) -> list[Path]:
    """Print the table of a comparison, and save it and the pairs; return the paths."""
    from recbole_hyper.report.page import write_page

    table, pairs = compared.tables()
    paths = [*table.save(folder, "compare"), write_page(table, folder / "compare.html", "Comparison")]
    if pairs is not None:
        paths += pairs.save(folder, "compare_pairs")[:1]
    print(f"\n{table.caption}\n\n{table.text()}\n\n{table.note}")
    return paths


def save_segments(compared: "Comparison", names: Sequence[str], items: Path, folder: Path) -> list[Path]:
    """Print the metric by segment, and save the table and its figure; return the paths."""
    from recbole_hyper.evaluation.segments import segments_of_models
    from recbole_hyper.report.figures import save, segment_figure

    metric, folders = compared.metric, {name: list(runs.values()) for name, runs in compared.folders.items()}
    table = segments_of_models(folders, names, metric, items=items, part=compared.part)
    print(f"\n{table.text()}\n\n{table.note}")
    figure = segment_figure(table, metric, f"{items.stem}: {metric} by segment")
    return [*table.save(folder, "compare_segments"), save(figure, folder, "compare_segments")]


def by_name(given: Sequence[str] | None, option: str) -> dict[str, Path]:
    """Return the paths of ``--option=NAME=PATH`` by name; ConfigError for another form, or a missing path."""
    from recbole_hyper.errors import ConfigError

    paths = {}
    for text in given or ():
        name, equals, path = text.partition("=")
        if not (name and equals and path) or name in paths or Path(name).name != name:
            raise ConfigError(f"--{option}={text}: NAME=PATH is expected, once for each name")
        if not Path(path).exists():
            raise ConfigError(f"--{option}={text}: {path} does not exist")
        paths[name] = Path(path)
    return paths


def chosen_by(sweep: Path, name: str, models: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the winner of a finished sweep, which must be over the model ``name``."""
    from recbole_hyper.errors import ConfigError
    from recbole_hyper.files import read_json

    outcome = read_json(sweep / "sweep.json") if (sweep / "sweep.json").is_file() else {}
    if name not in models or outcome.get("model") != name or not outcome.get("best"):
        raise ConfigError(f"--tuned={name}={sweep}: a finished sweep of one of {', '.join(models)} is expected")
    settings: dict[str, Any] = outcome["best"]["settings"]
    return settings


def at_a_time(runs: Sequence["Run"], configs: Mapping[str, Any]) -> int:
    """Return how many runs train at once by default: one per core, one alone on a GPU."""
    on_gpu = any(config["device"].type != "cpu" for config in configs.values())
    return 1 if on_gpu else max(1, min(processors(), sum(run.keys is not None for run in runs)))


def train(experiment: "Experiment", folder: Path) -> tuple[dict[str, dict[int | None, dict[str, Any]]], dict[str, str]]:
    """Train what is not finished, each run in its own process; return results and failures by model.

    ValueError if no model has a result.
    """
    from recbole_hyper.experiment.experiment import keys_file, run_alone

    threads = experiment.threads if experiment.processes > 1 else None
    # processes of a cluster report nothing before they end
    note = None if experiment.connect is not None else experiment.shown.note

    def start(run: "Run") -> str | None:
        return run_alone(run.model, run.dataset, keys_file(run, folder), threads, note and partial(note, run))

    outcome = experiment.execute(start)
    if not outcome.results:
        texts = "; ".join(f"{name}: {text}" for name, text in outcome.failed.items())
        raise ValueError(f"all models failed: {texts}")
    return outcome.results, outcome.failed


def settings_per_model(
    models: Sequence[str], files: Sequence[str], keys: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the keys of each model, and by key that comes from a file that file.

    A model has the keys for all models, from files and command line, and its own keys, which win.
    """
    from recbole_hyper.config import ConfigError
    from recbole_hyper.config.binding import Exact, parse_keys
    from recbole_hyper.host import user_files
    from recbole_hyper.yaml_files import config_file, merge, merged

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in models}
    file_of_key: dict[str, str] = {}
    for file in files:
        content = user_files.read(config_file(file))
        for name in models:
            keys_of_model = content.pop(name, None) or {}
            if not isinstance(keys_of_model, Mapping):
                raise ConfigError(f"{file}: {name}: keys of this model are expected, such as {{epochs: 3}}")
            merge(own[name], keys_of_model)
            file_of_key |= dict.fromkeys(keys_of_model, str(file))
        merge(common, content)
        file_of_key |= dict.fromkeys(content, str(file))
    for key, value in keys.items():
        name, dot, rest = key.partition(".")
        if dot and name not in own:
            raise ConfigError(f"--{key}: {name!r} is not compared; the models are {', '.join(models)}")
        file_of_key.pop(rest or key, None)
        merge(own[name] if dot else common, parse_keys({rest or key: value}))
    return {name: Exact(merged(common, own[name])) for name in models}, file_of_key


@contextlib.contextmanager
def each_line_once() -> Iterator[None]:
    """Log no line twice inside the block: the models are configured before and after the data are there."""
    logger, logged = logging.getLogger("recbole_hyper"), set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        text, n = record.getMessage(), len(logged)
        logged.add(text)
        return len(logged) > n

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


def check_all(
    models: Sequence[str], dataset: str, settings: dict[str, Any], folder: Path, file_of_key: Mapping[str, str]
) -> dict[str, Any]:
    """Return the configuration of each model, and remove from ``settings`` the keys that a model does not read.

    ``file_of_key`` names the file of each key that comes from one. ConfigError if a model cannot run, or if the models
    differ in the split or in how they are ranked.
    """
    from recbole_hyper.config import Config, ConfigError
    from recbole_hyper.config.binding import Exact
    from recbole_hyper.config.recbole_keys import TRANSLATED
    from recbole_hyper.data.download import with_data
    from recbole_hyper.options import SCORE, SPLIT
    from recbole_hyper.settings import deciding

    def bound(*, early: bool = False) -> dict[str, Config]:
        configs = {}
        for name in models:
            keys = Exact(settings[name], output_dir=str(folder / name))
            if early and not keys.get("benchmark_filename"):  # parts are files, which no command prepares
                keys["interactions"] = "given"
            places = {key: file for key, file in file_of_key.items() if key in keys}
            try:
                configs[name] = with_data(partial(Config, name, dataset, config_dict=keys, keys_of_files=places))
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}{of_another(name, models, keys, places)}") from error
        return configs

    # a refusal needs no data, which may have to be prepared first
    configs = bound(early=True)
    if share_metrics(configs, settings):
        configs = bound(early=True)
    # compare exclude_seen, but not repeatable, which is translated to it
    shared = sorted((deciding(SCORE, SPLIT) | {"save_cases"}) - {*TRANSLATED})
    differ = [key for key in shared if any(config[key] != configs[models[0]][key] for config in configs.values())]
    if differ:
        choices: dict[str, list[str]] = {}
        for name, config in configs.items():
            choices.setdefault(_typed({key: config[key] for key in differ}, configs), []).append(name)
        lines = "".join(f"\n  {typed}   (as {', '.join(names)})" for typed, names in choices.items())
        raise ConfigError(f"the models must share {', '.join(differ)}; set for all of them one of{lines}")
    configs = bound()
    for name, config in configs.items():
        # a key that a model does not read may change without a new run
        ignored = {key for key in settings[name] if config.ignores(key) or key in config.foreign_keys}
        settings[name] = Exact((key, value) for key, value in settings[name].items() if key not in ignored)
    return configs


def of_another(name: str, models: Sequence[str], keys: Mapping[str, Any], places: Mapping[str, str]) -> str:
    """Return how to set a key of a user's model that names a part in ``name`` for that model only; "" for no such key.

    ``places`` names the file of each of ``keys`` that comes from one.
    """
    from recbole_hyper.config.parts import PARTS
    from recbole_hyper.host.models import file_of, keys_in_source
    from recbole_hyper.host.models import models as users_models

    known = users_models()
    if name in known:
        return ""
    lines = ""
    for other in [other for other in models if other in known]:
        for key in sorted(PARTS.keys() & keys.keys() & keys_in_source(known[other])):
            where, file = places.get(key, f"--{key}={keys[key]}"), file_of(known[other])
            beside = f", or in {other}.yaml beside {file.name}" if file is not None else ""
            lines += (
                f"\n{where} sets {key} for all models, but {other} gives {key} its own meaning: "
                f"set --{other}.{key}={keys[key]}, or write '{other}: {{{key}: {keys[key]}}}' in the file{beside}"
            )
    return lines


def share_metrics(configs: Mapping[str, Any], settings: dict[str, dict[str, Any]]) -> bool:
    """Add the metrics in the file beside a user's model to the ``settings`` of models that set none.

    Return whether anything was added. Files that disagree change nothing, so that :func:`check_all` refuses them.
    """
    added = False
    for key in ("metrics", "topk", "valid_metric"):
        own = {name: c[key] for name, c in configs.items() if key in c.file_of_key and key not in settings[name]}
        written = list(own.values())
        if written and all(value == written[0] for value in written):
            for name in configs.keys() - own.keys():
                if key not in settings[name]:
                    settings[name][key] = written[0]
                    added = True
    return added


def _typed(values: Mapping[str, Any], configs: Mapping[str, Any]) -> str:
    """Return the options that give all models ``values``; for eval_args only the entries in which models differ."""
    from recbole_hyper.settings import typed

    words = []
    for key, value in values.items():
        if key == "eval_args":
            others = [config[key] for config in configs.values()]
            value = {name: own for name, own in value.items() if any(other.get(name) != own for other in others)}
            if (mode := value.get("mode")) and mode["valid"] == mode["test"]:
                value["mode"] = mode["test"]
        words.append(f'--{key}="{typed(value)}"')
    return " ".join(words)
