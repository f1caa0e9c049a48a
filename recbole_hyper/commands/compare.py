"""``recbole-hyper compare --models=A,B,C --dataset=NAME``: train each on one split, print and save one table."""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.commands import argument, command, dataset, words
from recbole_hyper.settings import COMMON


@command(
    "train several models on one split, and print and save one table with significance against the best",
    argument("--models", type=words, required=True, help="names separated by commas; ours or RecBole's"),
    *dataset(
        "keys of all models (a mapping below a model's name goes to that model, as --EASER.reg_weight=64 does)",
        required=True,
    ),
    argument("--output_dir", help="a folder per model; finished ones are not run again"),
    argument("--segments", type=words, default="", help="such as history_length,item_popularity,item.COLUMN"),
    argument("--seeds", help="such as 1,2,3: every model with each, in MODEL/seed-N; means and deviations"),
    keys=COMMON,
)
def compare(arguments: argparse.Namespace) -> int:
    """Run what is not finished, then print and save the table; return 1 if a model failed."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.evaluation import compare as tables
    from recbole_hyper.evaluation.segments import check_segments, segments_of_models
    from recbole_hyper.report.page import write_page
    from recbole_hyper.runs.folder import plan_runs, seed_folder
    from recbole_hyper.runs.seeds import read_seeds

    models = arguments.models
    if twice := sorted({name for name in models if models.count(name) > 1}):
        raise ConfigError(
            f"--models names {twice[0]} more than once; a model is one row. Two settings of it are two runs: "
            "'recbole-hyper run' each, then 'recbole-hyper report' over both"
        )
    check_segments(arguments.segments)
    if not models:
        raise ConfigError("--models='' names no model; such as --models=SASRecCE,Pop is expected")
    seeds = [] if arguments.seeds is None else read_seeds(arguments.seeds, arguments.keys)
    folder = Path(arguments.output_dir or Path("saved") / f"compare-{arguments.dataset}")
    settings, of_files = settings_per_model(models, arguments.config_files, arguments.keys)
    configs = check_all(models, arguments.dataset, settings, folder, of_files)
    items = Path(configs[models[0]]["data_path"]) / f"{arguments.dataset}.item"
    check_segments(arguments.segments, items)
    # all of them before the first is trained
    plans = {
        (name, seed): keys
        for name in models
        for seed, keys in plan_runs(name, arguments.dataset, seeds or [None], folder / name, settings[name]).items()
    }
    results, failed = run_all(plans, arguments.dataset, folder)
    metric = str(configs[models[0]]["valid_metric"]).lower()

    first = next(iter(next(iter(results.values())).values()))
    part = "test" if first["test"] else "valid"
    places = {name: {seed: seed_folder(folder / name, seed) for seed in of_seeds} for name, of_seeds in results.items()}
    rows, pairs = tables.comparison(results, places, metric, part=part, failed=failed)
    note = tables.p_value_text(metric, several=len(seeds) > 1)
    caption = tables.comparison_caption(first, part, seeds) + tables.measured_on(rows)
    table = tables.comparison_table(rows, configs[models[0]]["topk"], caption=caption, note=note)
    paths = [*table.save(folder, "compare"), write_page(table, folder / "compare.html", "Comparison")]
    if len(pairs) > 1:
        paths += tables.pair_table(pairs, metric).save(folder, "compare_pairs")[:1]
    print(f"\n{table.caption}\n\n{table.text()}\n\n{note}")
    if arguments.segments:
        from recbole_hyper.report.figures import save, segment_figure

        runs = {name: list(by_seed.values()) for name, by_seed in places.items()}
        by_segment = segments_of_models(runs, arguments.segments, metric, items=items, part=part)
        print(f"\n{by_segment.text()}\n\n{by_segment.note}")
        figure = segment_figure(by_segment, metric, f"{items.stem}: {metric} by segment")
        paths += [*by_segment.save(folder, "compare_segments"), save(figure, folder, "compare_segments")]
    print(*paths, sep="\n")
    return 1 if failed else 0


def run_all(
    plans: Mapping[tuple[str, int | None], dict[str, Any] | None], dataset: str, folder: Path
) -> tuple[dict[str, dict[int | None, dict[str, Any]]], dict[str, str]]:
    """Run what is not finished, each in its own process, with the keys of ``plans`` by model and seed.

    Return the results by model and seed, and a message for each model that failed: it has no numbers then, also where
    another seed gave some. ValueError where all failed.
    """
    from recbole_hyper.files import read_json, write_yaml
    from recbole_hyper.runs.folder import RESULT, seed_folder

    results: dict[str, dict[int | None, dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    for number, ((name, seed), keys) in enumerate(plans.items(), 1):
        file = seed_folder(folder / name, seed) / RESULT
        label = name if seed is None else f"{name}, seed {seed}"
        note = f": finished before, {file}" if keys is None else ""
        if keys is not None and file.is_file():
            note = ": continues, for more epochs than before"
        print(f"[{number}/{len(plans)}] {label}{note}", flush=True)
        if keys is not None:
            path = folder / f"{name}{'' if seed is None else f'-seed-{seed}'}.yaml"
            write_yaml(path, keys)
            if (message := run_alone(name, dataset, path)) is not None:
                failed.setdefault(name, message if seed is None else f"seed {seed}: {message}")
                print(f"{label} failed: {message}", file=sys.stderr, flush=True)
                continue
        results.setdefault(name, {})[seed] = read_json(file)
    results = {name: by_seed for name, by_seed in results.items() if name not in failed}
    if not results:
        raise ValueError("no model gave a result: " + "; ".join(f"{name}: {text}" for name, text in failed.items()))
    return results, failed


def settings_per_model(
    models: Sequence[str], files: Sequence[str], keys: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the keys of each model: those of files and command line for all, then its own; later ones win.

    And by key that comes from a file, that file.
    """
    from recbole_hyper.bridge import user_files
    from recbole_hyper.config import ConfigError
    from recbole_hyper.config.binding import parse_keys
    from recbole_hyper.yaml_files import config_file, merge, merged

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in models}
    of_files: dict[str, str] = {}
    for file in files:
        content = user_files.read(config_file(file))
        for name in models:
            keys_of_model = content.pop(name, None) or {}
            if not isinstance(keys_of_model, Mapping):
                raise ConfigError(f"{file}: {name}: keys of this model are expected, such as {{epochs: 3}}")
            merge(own[name], keys_of_model)
            of_files |= dict.fromkeys(keys_of_model, str(file))
        merge(common, content)
        of_files |= dict.fromkeys(content, str(file))
    for key, value in keys.items():
        name, dot, rest = key.partition(".")
        if dot and name not in own:
            raise ConfigError(f"--{key}: {name!r} is not compared; the models are {', '.join(models)}")
        of_files.pop(rest or key, None)
        merge(own[name] if dot else common, parse_keys({rest or key: value}))
    return {name: merged(common, own[name]) for name in models}, of_files


def check_all(
    models: Sequence[str],
    dataset: str,
    settings: dict[str, dict[str, Any]],
    folder: Path,
    of_files: Mapping[str, str],
) -> dict[str, Any]:
    """Bind every configuration, so that a mistake shows before the first model is trained; return them by model.

    Keys that a model does not know are removed from its ``settings``; ``of_files`` names the files of those that come
    from one. ConfigError where one cannot run, or where models are not ranked alike.
    """
    from recbole_hyper.config import Config, ConfigError
    from recbole_hyper.config.recbole_keys import TRANSLATED
    from recbole_hyper.data.download import with_data
    from recbole_hyper.options import SCORE, SPLIT
    from recbole_hyper.settings import deciding

    configs = {}
    for name in models:
        keys = {**settings[name], "output_dir": str(folder / name)}
        places = {key: file for key, file in of_files.items() if key in keys}
        try:
            config = with_data(lambda: Config(name, dataset, config_dict=keys, keys_of_files=places))  # noqa: B023
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        configs[name] = config
        # what a model does not read is no part of its run: it may change without a new run
        unread = {key for key in settings[name] if config.ignores(key) or key in config.foreign_keys}
        settings[name] = {key: value for key, value in settings[name].items() if key not in unread}
    # a translated key decides nothing by itself: exclude_seen is compared, and repeatable is not
    shared = sorted((deciding(SCORE, SPLIT) | {"save_cases"}) - {*TRANSLATED})
    differ = [key for key in shared if any(config[key] != configs[models[0]][key] for config in configs.values())]
    if differ:
        choices: dict[str, list[str]] = {}
        for name, config in configs.items():
            choices.setdefault(_typed({key: config[key] for key in differ}, configs), []).append(name)
        lines = "".join(f"\n  {typed}   (as {', '.join(names)})" for typed, names in choices.items())
        raise ConfigError(f"the models must share {', '.join(differ)}; give all of them one of{lines}")
    return configs


def _typed(values: Mapping[str, Any], configs: Mapping[str, Any]) -> str:
    """Return what to type so that all models have ``values``; of eval_args only that in which the models differ."""
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


def run_alone(model: str, dataset: str, keys: Path) -> str | None:
    """Train and test one model with the keys of a YAML file in a separate process.

    Returns its error, None for success.
    """
    command = [sys.executable, "-m", "recbole_hyper", "run", f"--model={model}", f"--dataset={dataset}"]
    done = subprocess.run([*command, f"--config_files={keys}"], stderr=subprocess.PIPE, text=True)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [f"exit status {done.returncode}"])[-1]
