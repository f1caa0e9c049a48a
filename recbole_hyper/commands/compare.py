"""``recbole-hyper compare --models=A,B,C --dataset=NAME``: train each on one split, print and save one table."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recbole_hyper.commands import argument, command, dataset, duration, words
from recbole_hyper.experiment.experiment import Experiment, Run, keys_file, run_alone
from recbole_hyper.settings import COMMON
from recbole_hyper.threads import processors


@command(
    "train several models on one split, and print and save one table with significance against the best",
    argument("--models", type=words, required=True, help="names separated by commas; ours or RecBole's"),
    *dataset(
        "keys of all models (keys below a model's name are for that model, as is --EASER.reg_weight=64)", required=True
    ),
    argument("--output_dir", help="folder with a folder per model; finished models are not run again"),
    argument("--segments", type=words, default="", help="such as history_length,item_popularity,item.COLUMN"),
    argument("--seeds", help="such as 1,2,3: train every model with each, in MODEL/seed-N; shows means and deviations"),
    argument("--max_concurrent", type=int, help="most models that train at a time; default: one per core"),
    argument("--time_budget", type=duration, help="start no run after 90s, 30m, 1h30m; the same command continues"),
    argument("--ray_address", help="a running Ray cluster, host:port, that shares output_dir; default: this machine"),
    keys=COMMON,
)
def compare(arguments: argparse.Namespace) -> int:
    """Train the models that are not finished, then print and save the table; return 1 if a model failed."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.evaluation import compare as tables
    from recbole_hyper.evaluation.pairs import count_users
    from recbole_hyper.evaluation.segments import check_segments, segments_of_models
    from recbole_hyper.experiment.seeds import read_seeds
    from recbole_hyper.report.page import write_page
    from recbole_hyper.runs.folder import plan_runs, seed_folder

    models = arguments.models
    if twice := sorted({name for name in models if models.count(name) > 1}):
        raise ConfigError(
            f"--models names {twice[0]} more than once, but a model is one row; to compare two settings of it, use "
            "'recbole-hyper run' for each, then 'recbole-hyper report'"
        )
    check_segments(arguments.segments)
    if not models:
        raise ConfigError("--models='' names no model; write --models=SASRecCE,Pop, for example")
    seeds = [] if arguments.seeds is None else read_seeds(arguments.seeds, arguments.keys)
    folder = Path(arguments.output_dir or Path("saved") / f"compare-{arguments.dataset}")
    settings, file_of_key = settings_per_model(models, arguments.config_files, arguments.keys)
    configs = check_all(models, arguments.dataset, settings, folder, file_of_key)
    items = Path(configs[models[0]]["data_path"]) / f"{arguments.dataset}.item"
    check_segments(arguments.segments, items)
    # check all of them before the first is trained
    runs = [
        Run(name, arguments.dataset, seed, keys, seed_folder(folder / name, seed), name)
        for name in models
        for seed, keys in plan_runs(name, arguments.dataset, seeds or [None], folder / name, settings[name]).items()
    ]
    experiment = Experiment(
        runs, arguments.max_concurrent or at_a_time(runs, configs), arguments.ray_address, arguments.time_budget
    )
    results, failed = train(experiment, folder)
    metric = str(configs[models[0]]["valid_metric"]).lower()

    first = next(iter(next(iter(results.values())).values()))
    part = "test" if first["test"] else "valid"
    places = {name: {seed: seed_folder(folder / name, seed) for seed in by_seed} for name, by_seed in results.items()}
    rows, pairs = tables.comparison(results, places, metric, part=part, failed=failed)
    users = count_users(next(iter(next(iter(places.values())).values())), part)
    note = tables.p_value_text(metric, several=len(seeds) > 1, users=users)
    caption = tables.comparison_caption(first, part, seeds) + tables.measured_on(rows)
    table = tables.comparison_table(rows, configs[models[0]]["topk"], caption=caption, note=note)
    paths = [*table.save(folder, "compare"), write_page(table, folder / "compare.html", "Comparison")]
    if len(pairs) > 1:
        paths += tables.pair_table(pairs, metric).save(folder, "compare_pairs")[:1]
    print(f"\n{table.caption}\n\n{table.text()}\n\n{note}")
    if arguments.segments:
        from recbole_hyper.report.figures import save, segment_figure

        folders = {name: list(by_seed.values()) for name, by_seed in places.items()}
        by_segment = segments_of_models(folders, arguments.segments, metric, items=items, part=part)
        print(f"\n{by_segment.text()}\n\n{by_segment.note}")
        figure = segment_figure(by_segment, metric, f"{items.stem}: {metric} by segment")
        paths += [*by_segment.save(folder, "compare_segments"), save(figure, folder, "compare_segments")]
    print(*paths, sep="\n")
    return 1 if failed else 0


def at_a_time(runs: Sequence[Run], configs: Mapping[str, Any]) -> int:
    """Return how many runs train at once by default: one per core, one alone on a GPU."""
    on_gpu = any(config["device"].type != "cpu" for config in configs.values())
    return 1 if on_gpu else max(1, min(processors(), sum(run.keys is not None for run in runs)))


def train(experiment: Experiment, folder: Path) -> tuple[dict[str, dict[int | None, dict[str, Any]]], dict[str, str]]:
    """Train what is not finished, each run in its own process; return results and failures by model.

    ValueError if no model has a result.
    """
    threads = experiment.threads if experiment.processes > 1 else None

    def start(run: Run) -> str | None:
        return run_alone(run.model, run.dataset, keys_file(run, folder), threads)

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
    from recbole_hyper.config.binding import parse_keys
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
    return {name: merged(common, own[name]) for name in models}, file_of_key


def check_all(
    models: Sequence[str], dataset: str, settings: dict[str, Any], folder: Path, file_of_key: Mapping[str, str]
) -> dict[str, Any]:
    """Return the configuration of each model, and remove from ``settings`` the keys that a model does not read.

    ``file_of_key`` names the file of each key that comes from one. ConfigError if a model cannot run, or if the models
    differ in the split or in how they are ranked.
    """
    from recbole_hyper.config import Config, ConfigError
    from recbole_hyper.config.recbole_keys import TRANSLATED
    from recbole_hyper.data.download import with_data
    from recbole_hyper.options import SCORE, SPLIT
    from recbole_hyper.settings import deciding

    def bound(**more: Any) -> dict[str, Config]:
        configs = {}
        for name in models:
            keys = {**settings[name], "output_dir": str(folder / name), **more}
            places = {key: file for key, file in file_of_key.items() if key in keys}
            try:
                configs[name] = with_data(partial(Config, name, dataset, config_dict=keys, keys_of_files=places))
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from error
        return configs

    # a refusal needs no data, which may have to be prepared first
    configs = bound(interactions="given")
    if share_metrics(configs, settings):
        configs = bound(interactions="given")
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
        settings[name] = {key: value for key, value in settings[name].items() if key not in ignored}
    return configs


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
