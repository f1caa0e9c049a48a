"""Train several models on one split: their settings, the checks before the first run, and the runs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recbole_hyper.cluster import cluster
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact, parse_keys
from recbole_hyper.config.recbole_keys import TRANSLATED
from recbole_hyper.data.tables.download import with_data
from recbole_hyper.evaluation.segments import check_segments
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.experiment.experiment import Experiment, Run, folder_name, keys_file, require_own_table, run_alone
from recbole_hyper.experiment.package import require_new
from recbole_hyper.experiment.scores import missing_text, rank_scores, read_scores
from recbole_hyper.experiment.seeds import read_seeds
from recbole_hyper.files import read_json
from recbole_hyper.host import user_files
from recbole_hyper.options import SCORE, SPLIT
from recbole_hyper.runs.claim import plan_runs, seed_folder
from recbole_hyper.runs.folder import CONFIG
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
    _check_names(models, scores, folder)
    if package is not None:
        require_new(package, folder)
    numbers = [] if seeds is None else read_seeds(seeds, keys)
    settings, file_of_key = settings_per_model(models, config_files, keys)
    for name, sweep in tuned.items():
        settings[name] = {**chosen_by(sweep, name, models), **settings[name]}
    rows = {name: name for name in models}
    configs = check_all(rows, dataset, settings, folder, file_of_key)
    require_shared(configs)
    first = configs[models[0]]
    check_segments(segments, Path(first["data_path"]) / f"{dataset}.item")
    runs = planned(rows, dataset, folder, settings, numbers)
    compared = train(runs, folder, configs, max_concurrent=max_concurrent, ray_address=ray_address)
    for name, file in scores.items():
        ranked = rank_scores(name, file, first, folder / name)
        compared.results[name] = {None: ranked}
        compared.notes[name] = missing_text(ranked)
    return compared


def planned(
    rows: Mapping[str, str], dataset: str, folder: Path, settings: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]
) -> list[Run]:
    """Return the runs of the ``rows`` (models by name) in ``folder``; without ``seeds`` each row is one run."""
    require_own_table(folder, "compare")
    return [
        Run(model, dataset, seed, keys, seed_folder(folder / folder_name(name), seed), name)
        for name, model in rows.items()
        for seed, keys in plan_runs(model, dataset, seeds or [None], folder / folder_name(name), settings[name]).items()
    ]


def train(
    runs: Sequence[Run],
    folder: Path,
    configs: Mapping[str, Config],
    *,
    max_concurrent: int | None = None,
    ray_address: str | None = None,
) -> Comparison:
    """Train the ``runs`` that are not finished, each in its own process, and compare all; ValueError if all fail.

    ``configs`` are those of :func:`check_all`; ``folder`` gets the keys of each run.
    """
    on_gpu = any(config["device"].type != "cpu" for config in configs.values())
    by_default = 1 if on_gpu else max(1, min(processors(), sum(run.keys is not None for run in runs)))
    connect = partial(cluster, ray_address) if ray_address else None
    experiment = Experiment(runs, by_default if max_concurrent is None else max_concurrent, connect)
    threads = experiment.threads if experiment.executor.n_at_once != 1 else None

    def start(run: Run) -> str | None:
        # processes of a cluster report nothing before they end
        note = None if connect is not None else partial(experiment.note, run)
        return run_alone(run.model, run.dataset, keys_file(run, folder), threads, note)

    results, failed = experiment.execute(start)
    if not results:
        raise ValueError(f"all models failed: {'; '.join(f'{name}: {text}' for name, text in failed.items())}")
    first = next(iter(configs.values()))
    items = Path(first["data_path"]) / f"{runs[0].dataset}.item"
    metric, seeds = str(first["valid_metric"]).lower(), dict.fromkeys(run.seed for run in runs if run.seed is not None)
    return Comparison(results, folder, metric, first["topk"], list(seeds), failed, {}, items)


def _check_names(models: Sequence[str], scores: Mapping[str, Path], folder: Path) -> None:
    """Check what needs no configuration."""
    if not models:
        raise ConfigError("--models='' names no model; write --models=SASRecCE,Pop, for example")
    names = [*models, *scores]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"--models and --scores name {twice[0]} more than once, but a name is one row of the table")
    for name, file in scores.items():
        if (folder / name / CONFIG).is_file():
            raise ConfigError(f"--scores={name}: {folder / name} has a run of this name; choose another name")
        read_scores(file)


def chosen_by(sweep: Path, name: str, models: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the winner of a finished sweep, which must be over the model ``name``."""
    outcome = read_json(sweep / "sweep.json") if (sweep / "sweep.json").is_file() else {}
    settings: dict[str, Any] | None = (outcome.get("best") or {}).get("settings")
    if name not in models or outcome.get("model") != name or settings is None:
        raise ConfigError(f"--tuned={name}={sweep}: a finished sweep of one of {', '.join(models)} is expected")
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
    rows: Mapping[str, str],
    dataset: str,
    settings: dict[str, Any],
    folder: Path,
    file_of_key: Mapping[str, str] | None = None,
) -> dict[str, Config]:
    """Return the configuration of each of the ``rows`` (models by name), and remove what it does not read.

    ``settings`` lose the keys that a model does not read. ``file_of_key`` names the file of each key that comes from
    one. ConfigError if a model cannot run.
    """
    configs = {}
    for name, model in rows.items():
        keys = Exact(settings[name], output_dir=str(folder / folder_name(name)))
        places = {key: file for key, file in (file_of_key or {}).items() if key in keys}
        try:
            configs[name] = with_data(partial(Config, model, dataset, config_dict=keys, keys_of_files=places))
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
    for name, config in configs.items():
        # a key that a model does not read may change without a new run
        ignored = {key for key in settings[name] if config.ignores(key) or key in config.resolved.foreign}
        settings[name] = Exact((key, value) for key, value in settings[name].items() if key not in ignored)
    return configs


def require_shared(configs: Mapping[str, Config]) -> None:
    """Raise ConfigError if the models differ in the split or in how they are ranked; it says what to type."""
    first = next(iter(configs.values()))
    # compare exclude_seen, but not repeatable, which is translated to it
    shared = sorted((deciding(SCORE, SPLIT) | {"save_cases"}) - {*TRANSLATED})
    if differ := [key for key in shared if any(config[key] != first[key] for config in configs.values())]:
        choices: dict[str, list[str]] = {}
        for name, config in configs.items():
            choices.setdefault(" ".join(f'--{key}="{typed(config[key])}"' for key in differ), []).append(name)
        lines = "".join(f"\n  {words}   (as {', '.join(names)})" for words, names in choices.items())
        raise ConfigError(f"the models must share {', '.join(differ)}; set for all of them one of{lines}")
