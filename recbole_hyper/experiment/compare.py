"""Train several models on one split: their settings, the checks before the first run, and the runs."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recbole_hyper.cluster import cluster
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact, parse_keys
from recbole_hyper.config.recbole_keys import TRANSLATED
from recbole_hyper.data.download import with_data
from recbole_hyper.evaluation.segments import check_segments
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.experiment.experiment import Experiment, Run, keys_file, run_alone
from recbole_hyper.experiment.package import require_new
from recbole_hyper.experiment.scores import missing_text, rank_scores, read_scores
from recbole_hyper.experiment.seeds import read_seeds
from recbole_hyper.files import read_json
from recbole_hyper.host import user_files
from recbole_hyper.options import SCORE, SPLIT
from recbole_hyper.runs.folder import plan_runs, read_config, seed_folder
from recbole_hyper.settings import deciding, typed
from recbole_hyper.threads import processors
from recbole_hyper.yaml_files import config_file, merge, merged


def compare(
    models: Sequence[str],
    dataset: str,
    folder: Path,
    *,
    config_files: Sequence[str] = (),
    keys: Mapping[str, Any] | None = None,
    segments: Sequence[str] = (),
    seeds: str | None = None,
    scores: Mapping[str, Path] | None = None,
    tuned: Mapping[str, Path] | None = None,
    package: Path | None = None,
    max_concurrent: int | None = None,
    time_budget: float | None = None,
    ray_address: str | None = None,
) -> Comparison:
    """Train the models that are not finished in ``folder``, each run in its own process, and return the comparison.

    Everything is checked before the first training. The arguments are the options of the command ``compare``; a key
    ``MODEL.key`` is for that model.

    Raises:
        ConfigError: a model cannot run, or the models differ in the split or in how they are ranked.
        ValueError: no model has a result.
    """
    keys, scores, tuned = keys or {}, scores or {}, tuned or {}
    _check_names(models, scores)
    check_segments(segments)
    if package is not None:
        require_new(package)
    numbers = [] if seeds is None else read_seeds(seeds, keys)
    settings, file_of_key = settings_per_model(models, config_files, keys)
    for name, sweep in tuned.items():
        settings[name] = {**chosen_by(sweep, name, models), **settings[name]}
    configs = check_all(models, dataset, settings, folder, file_of_key)
    first = configs[models[0]]
    items = Path(first["data_path"]) / f"{dataset}.item"
    check_segments(segments, items)
    runs = [
        Run(name, dataset, seed, run_keys, seed_folder(folder / name, seed), name)
        for name in models
        for seed, run_keys in plan_runs(name, dataset, numbers or [None], folder / name, settings[name]).items()
    ]
    on_gpu = any(config["device"].type != "cpu" for config in configs.values())
    by_default = 1 if on_gpu else max(1, min(processors(), sum(run.keys is not None for run in runs)))
    connect = partial(cluster, ray_address) if ray_address else None
    at_once = by_default if max_concurrent is None else max_concurrent
    results, failed = train(Experiment(runs, at_once, connect, time_budget), folder)
    folders = {name: {seed: seed_folder(folder / name, seed) for seed in by_seed} for name, by_seed in results.items()}
    # on data with few items, runs shorten the default cut-offs
    used = read_config(next(iter(next(iter(folders.values())).values())))
    first["topk"], first["valid_metric"] = used["topk"], used["valid_metric"]
    notes = {}
    for name, file in scores.items():
        ranked = rank_scores(name, file, first, folder / name)
        results[name], folders[name], notes[name] = {None: ranked}, {None: folder / name}, missing_text(ranked)
    metric = str(first["valid_metric"]).lower()
    return Comparison(results, folders, metric, first["topk"], numbers, failed, notes, items)


def _check_names(models: Sequence[str], scores: Mapping[str, Path]) -> None:
    """Check what needs no configuration."""
    if not models:
        raise ConfigError("--models='' names no model; write --models=SASRecCE,Pop, for example")
    if twice := sorted({name for name in models if models.count(name) > 1}):
        raise ConfigError(
            f"--models names {twice[0]} more than once, but a model is one row; to compare two settings of it, use "
            "'recbole-hyper run' for each, then 'recbole-hyper report'"
        )
    if both := sorted(scores.keys() & set(models)):
        raise ConfigError(f"--scores={both[0]}=FILE: {both[0]} is a model of --models; choose another name")
    for file in scores.values():
        read_scores(file)


def chosen_by(sweep: Path, name: str, models: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the winner of a finished sweep, which must be over the model ``name``."""
    outcome = read_json(sweep / "sweep.json") if (sweep / "sweep.json").is_file() else {}
    if name not in models or outcome.get("model") != name or not outcome.get("best"):
        raise ConfigError(f"--tuned={name}={sweep}: a finished sweep of one of {', '.join(models)} is expected")
    settings: dict[str, Any] = outcome["best"]["settings"]
    return settings


def settings_per_model(
    models: Sequence[str], files: Sequence[str], keys: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the keys of each model, and by key that comes from a file that file.

    A model has the keys for all models, from files and command line, and its own keys, which win.
    """
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


def check_all(
    models: Sequence[str], dataset: str, settings: dict[str, Any], folder: Path, file_of_key: Mapping[str, str]
) -> dict[str, Config]:
    """Return the configuration of each model, and remove from ``settings`` the keys that a model does not read.

    ``file_of_key`` names the file of each key that comes from one. ConfigError if a model cannot run, or if the models
    differ in the split or in how they are ranked.
    """

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
                raise ConfigError(f"{name}: {error}") from error
        return configs

    with _each_line_once():
        # a refusal needs no data, which may have to be prepared first
        _require_shared(bound(early=True))
        configs = bound()
    for name, config in configs.items():
        # a key that a model does not read may change without a new run
        ignored = {key for key in settings[name] if config.ignores(key) or key in config.resolved.foreign}
        settings[name] = Exact((key, value) for key, value in settings[name].items() if key not in ignored)
    return configs


def _require_shared(configs: Mapping[str, Config]) -> None:
    """Raise ConfigError if the models differ in the split or in how they are ranked; it says what to type."""
    first = next(iter(configs.values()))
    # compare exclude_seen, but not repeatable, which is translated to it
    shared = sorted((deciding(SCORE, SPLIT) | {"save_cases"}) - {*TRANSLATED})
    if differ := [key for key in shared if any(config[key] != first[key] for config in configs.values())]:
        choices: dict[str, list[str]] = {}
        for name, config in configs.items():
            choices.setdefault(_typed({key: config[key] for key in differ}, configs), []).append(name)
        lines = "".join(f"\n  {typed}   (as {', '.join(names)})" for typed, names in choices.items())
        raise ConfigError(f"the models must share {', '.join(differ)}; set for all of them one of{lines}")


def _typed(values: Mapping[str, Any], configs: Mapping[str, Any]) -> str:
    """Return the options that give all models ``values``; for eval_args only the entries in which models differ."""
    words = []
    for key, value in values.items():
        if key == "eval_args":
            others = [config[key] for config in configs.values()]
            value = {name: own for name, own in value.items() if any(other.get(name) != own for other in others)}
            if (mode := value.get("mode")) and mode["valid"] == mode["test"]:
                value["mode"] = mode["test"]
        words.append(f'--{key}="{typed(value)}"')
    return " ".join(words)


@contextlib.contextmanager
def _each_line_once() -> Iterator[None]:
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


def train(experiment: Experiment, folder: Path) -> tuple[dict[str, dict[int | None, dict[str, Any]]], dict[str, str]]:
    """Train what is not finished, each run in its own process; return results and failures by model."""
    threads = experiment.threads if experiment.processes > 1 else None
    # processes of a cluster report nothing before they end
    note = None if experiment.connect is not None else experiment.progress.note

    def start(run: Run) -> str | None:
        return run_alone(run.model, run.dataset, keys_file(run, folder), threads, note and partial(note, run))

    outcome = experiment.execute(start)
    if not outcome.results:
        texts = "; ".join(f"{name}: {text}" for name, text in outcome.failed.items())
        raise ValueError(f"all models failed: {texts}")
    return outcome.results, outcome.failed
