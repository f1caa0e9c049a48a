"""``recbole-hyper compare --models=A,B,C --dataset=NAME``: train each on one split, print and save one table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HELP = "train several models on one split, and print and save one table with significance against the best"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a configuration key."""
    parser.add_argument("--models", required=True, help="names separated by commas; ours or RecBole's")
    parser.add_argument("--dataset", required=True, help="folder below data_path that holds NAME.inter")
    parser.add_argument(
        "--config_files",
        default="",
        help="YAML files, separated by spaces. A key goes to every model; a mapping below a model's name, such as "
        "'EASER: {reg_weight: 64}', to that model. On the command line: --EASER.reg_weight=64",
    )
    parser.add_argument("--output_dir", help="a folder per model; finished ones are not run again")


def main(arguments: argparse.Namespace) -> int:
    """Run what is not finished, then print and save the table; returns 1 if a model failed."""
    from recbole_hyper.config import ConfigError, config_files
    from recbole_hyper.evaluation.compare import caption, comparison, save_tables, shown_columns, text_rows
    from recbole_hyper.evaluation.results import table
    from recbole_hyper.files import write_yaml
    from recbole_hyper.report.reuse import is_finished, resume_keys

    models = list(dict.fromkeys(name.strip() for name in arguments.models.split(",") if name.strip()))
    if not models:
        raise ConfigError(f"--models={arguments.models!r} names no model; such as --models=SASRecCE,Pop is expected")
    folder = Path(arguments.output_dir or Path("saved") / f"compare-{arguments.dataset}")
    settings = settings_per_model(models, config_files(arguments.config_files), arguments.keys)
    configs = check_all(models, arguments.dataset, settings, folder)
    # all of them before the first is trained
    finished = {name: is_finished(configs[name], folder / name) for name in models}
    metric = str(configs[models[0]]["valid_metric"]).lower()

    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(models, 1):
        target = folder / name
        if finished[name]:
            print(f"[{number}/{len(models)}] {name}: finished before, {target / 'result.json'}", flush=True)
        else:
            more = ": goes on, as more is asked for than it was run with" if (target / "result.json").is_file() else ""
            print(f"[{number}/{len(models)}] {name}{more}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            keys = folder / f"{name}.yaml"
            own = {"output_dir": str(target), **resume_keys(configs[name], target)}
            write_yaml(keys, {**settings[name], **own})
            message = run_alone(name, arguments.dataset, keys)
            if message is not None:
                failed[name] = message
                print(f"{name} failed: {message}", file=sys.stderr, flush=True)
                continue
        results[name] = json.loads((target / "result.json").read_text(encoding="utf-8"))
    if not results:
        raise ValueError("no model gave a result: " + "; ".join(f"{name}: {text}" for name, text in failed.items()))

    part = "test" if next(iter(results.values()))["test"] else "valid"
    rows = comparison(results, {name: folder / name for name in results}, metric, part=part, failed=failed)
    columns = shown_columns(rows, configs[models[0]]["topk"])
    note = caption(next(iter(results.values())), metric, part)
    paths = save_tables(folder, rows, columns, note)
    print(f"\n{table(text_rows(rows, columns, bold='*'), columns)}\n\n{note.replace('in bold', 'between stars')}")
    print(*paths, sep="\n")
    return 1 if failed else 0


def settings_per_model(
    models: Sequence[str], files: Sequence[str], keys: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the keys of each model: common keys of files and command line, then the model's own, later ones win.

    Raises:
        ConfigError: keys below the name of a model that is not compared.
    """
    from recbole_hyper.config import ConfigError, merge, parse_keys, read_yaml

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in models}
    for file in files:
        if not Path(file).is_file():
            raise ConfigError(f"config file {file!r} does not exist (looked in {Path.cwd()})")
        content = read_yaml(Path(file))
        for name in models:
            merge(own[name], content.pop(name, None) or {})
        merge(common, content)
    for key, value in keys.items():
        name, dot, rest = key.partition(".")
        if not dot:
            merge(common, parse_keys({key: value}))
        elif name in own:
            merge(own[name], parse_keys({rest: value}))
        else:
            raise ConfigError(f"--{key}: {name!r} is not compared; the models are {', '.join(models)}")
    result: dict[str, dict[str, Any]] = {}
    for name in models:
        result[name] = {}
        merge(result[name], common)
        merge(result[name], own[name])
    return result


def check_all(
    models: Sequence[str], dataset: str, settings: dict[str, dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """Build every configuration, so that a mistake shows before the first model is trained; return them by model.

    Keys that a model does not know are removed from its ``settings``.

    Raises:
        ConfigError: a configuration that cannot run, or models that are not ranked alike.
    """
    from recbole_hyper.config import Config, ConfigError

    configs = {}
    for name in models:
        try:
            configs[name] = Config(name, dataset, config_dict={**settings[name], "output_dir": str(folder / name)})
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        # what a model does not read is no part of its run: it may change without a new run
        settings[name] = {key: value for key, value in settings[name].items() if not configs[name].ignores(key)}
    for key in ("eval_args", "exclude_seen", "metrics", "topk", "valid_metric", "refit", "save_cases"):
        values = {name: configs[name][key] for name in models}
        if any(value != values[models[0]] for value in values.values()):
            raise ConfigError(f"the models must share {key}, but it is {values}")
    return configs


def run_alone(model: str, dataset: str, keys: Path) -> str | None:
    """Train and test one model in a process of its own, so that its memory is its own; return an error or None.

    Args:
        model: its name.
        dataset: name of the data set.
        keys: YAML file with its keys.
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
