"""A comparison in one folder, with everything that a reviewer needs to check and repeat it.

Audits of the field ask for code and settings of every baseline, how they were tuned, the split, the candidates, and
what was selected on. The folder has the data with their fingerprint, the protocol in words, search space, budget and
chosen values of every model, its seeds, the rank of every test case, the environment, the table, and the command that
repeats it. :func:`verify` checks it against itself, and against a repetition.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.data.source import CARD
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.compare import split_words
from recbole_hyper.evaluation.pairs import read_cases
from recbole_hyper.evaluation.results import candidates_text
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.files import (
    digest,
    file_digest,
    plain,
    read_json,
    replaced_folder,
    write_json,
    write_text,
    write_yaml,
)
from recbole_hyper.host import models
from recbole_hyper.options import PLACE
from recbole_hyper.runs.claim import seed_folder
from recbole_hyper.runs.folder import CONFIG, RESULT
from recbole_hyper.settings import SETTINGS as DECLARED
from recbole_hyper.settings import deciding

ABOUT, README, SETTINGS = "package.json", "README.md", "settings.yaml"
FORMAT = 2
RUNS, DATA, SWEEPS, SCORES, PLUGINS = "runs", "data", "sweeps", "scores", "plugins"
REPEATED = "repeated"
OF_A_RUN = (RESULT, CONFIG, "cases_test.parquet", "cases_valid.parquet", "train.csv")
# keys that the command or the place sets
_SET_ELSEWHERE = {"model", "dataset", "data_path", "output_dir", "resume", "plugins", "epochs_done", "save_cases"}
_PLACES = 6  # a figure in a repetition may differ in the digits behind


def write_package(
    folder: Path,
    comparison: Comparison,
    source: Path,
    *,
    tuned: Mapping[str, Path],
    scores: Mapping[str, Path],
) -> Path:
    """Write the package of the ``comparison`` in the folder ``source`` to ``folder``, which must not exist.

    ``tuned`` are the sweeps that chose a model's settings, ``scores`` the files of other libraries, both by name.
    """
    require_new(folder)
    first = comparison.first
    dataset, root = first["dataset"], Path(first["config"]["data_path"])
    data = root / dataset if (root / dataset).is_dir() else root
    trained = [name for name in comparison.results if name not in scores]
    plugins = _plugins(comparison)
    # its SOURCE.json says which ids are escaped
    files = {f"{DATA}/{dataset}/{file.name}": file for file in (*data.glob(f"{dataset}.*"), *data.glob(CARD))}
    for name, by_seed in comparison.folders.items():
        for seed, run in by_seed.items():
            files |= {str(seed_folder(Path(RUNS, name), seed) / one): run / one for one in OF_A_RUN}
    for name, sweep in tuned.items():
        files |= {f"{SWEEPS}/{name}/{one}": sweep / one for one in ("sweep.yaml", "sweep.json", "trials.csv")}
    files |= {f"{SCORES}/{name}{file.suffix}": file for name, file in scores.items()}
    files |= plugins | _defaults(trained, plugins)
    files |= {file.name: file for file in source.glob("compare*")}
    with replaced_folder(folder) as part:
        for place, file in files.items():
            if file.is_file():
                (part / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, part / place)
        write_yaml(part / SETTINGS, {name: _settings(comparison.results[name]) for name in trained})
        command = _command(comparison, trained, scores, plugins)
        names = {dist.metadata["Name"]: dist.version for dist in distributions()}
        write_text(part / "environment.txt", "".join(f"{name}=={names[name]}\n" for name in sorted(names, key=str)))
        content = {
            "format": FORMAT,
            "command": command,
            "dataset": dataset,
            "data_fingerprint": first["data_fingerprint"],
            "counts": {key: first[key] for key in ("n_users", "n_items", "n_interactions", "n_test_cases")},
            "protocol": protocol_words(first),
            "models": {name: _about(name, comparison, tuned) for name in comparison.results},
            "versions": first["versions"],
            "commit": first["commit"],
            "device": first.get("device"),
            "metric": comparison.metric,
            "topk": list(comparison.topk),
            "seeds": list(comparison.seeds),
            "failed": dict(comparison.failed),
            "notes": dict(comparison.notes),
        }
        write_text(part / README, _readme(content, comparison))
        content["files"] = {str(file.relative_to(part)): file_digest(file) for file in _files(part)}
        write_json(part / ABOUT, {**content, "digest": digest(content, 64)})
    return folder / README


def _plugins(comparison: Comparison) -> dict[str, Path]:
    """Return the plugin files of all models by their place in the package, where two of one name do not meet."""
    lists = [result["config"].get("plugins") or [] for runs in comparison.results.values() for result in runs.values()]
    files = dict.fromkeys(Path(file) for one in lists for file in one)
    return {f"{PLUGINS}/{number}/{file.name}": file for number, file in enumerate(files, 1)}


def _defaults(trained: Sequence[str], plugins: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files of defaults beside plugins, of the models that were trained, by their place in the package."""
    classes = [cls for name, cls in models.models().items() if name in trained]
    files = {file for cls in classes for file in models.defaults_files(cls)}
    places = [(Path(place), plugin.absolute().parent) for place, plugin in plugins.items()]
    return {str(place.with_name(file.name)): file for place, here in places for file in files if file.parent == here}


def require_new(folder: Path) -> None:
    """Raise ConfigError if ``folder`` has something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--package={folder} exists; name a new folder")


def protocol_words(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what audits ask about the protocol that all models share, by subject."""
    words = split_words(result["eval_args"]["split"])
    seen = "not candidates" if result["exclude_seen"] else "candidates"
    return {
        "split": f"{result['protocol']}{words and f' ({words})'}",
        "selection": f"the epoch with the best {result['config'].get('valid_metric')} on validation; the test is "
        "ranked once, at the end",
        "candidates": candidates_text(result["eval_args"].get("mode", "full")),
        "seen items": f"items of the history are {seen}",
        "ties": str(result.get("ties", "a target ranks behind every candidate with an equal score")),
    }


def _settings(by_seed: Mapping[int | None, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys that repeat a model's runs, with the values that "auto" chose."""
    first = next(iter(by_seed.values()))
    left_out = _SET_ELSEWHERE | (deciding(PLACE) - {"n_threads"}) | ({"seed"} if None not in by_seed else set())
    keys = {key: value for key, value in first["config"].items() if key not in left_out}
    return {**keys, "n_threads": first.get("threads")}


def _about(name: str, comparison: Comparison, tuned: Mapping[str, Path]) -> dict[str, Any]:
    """Return how a model's settings were chosen, and its seeds."""
    by_seed = comparison.results[name]
    first = next(iter(by_seed.values()))
    content: dict[str, Any] = {"seeds": [result["seed"] for result in by_seed.values()]}
    if "scores" in first:
        return {**content, "scores": first["scores"], "missing": first["missing"]}
    content["epochs"] = [result["epochs"] for result in by_seed.values()]
    content["best_epoch"] = [result["best_epoch"] for result in by_seed.values()]
    if name not in tuned:
        return {**content, "tuning": "none: defaults of the model, data set and command"}
    request, outcome = tuned[name] / "sweep.yaml", read_json(tuned[name] / "sweep.json")
    return {
        **content,
        "tuning": f"{SWEEPS}/{name}/{request.name} has the space, trials.csv every trial",
        "trials": outcome["trials"],
        "chosen": outcome["best"]["settings"],
        "budget_seconds": outcome["seconds"]["trials"],
        "selected_by": outcome["valid_metric"],
    }


def _command(
    comparison: Comparison, trained: list[str], scores: Mapping[str, Path], plugins: Iterable[str]
) -> list[str]:
    words = ["recbole-hyper", "compare", f"--models={','.join(trained)}", f"--dataset={comparison.first['dataset']}"]
    words += [f"--config_files={SETTINGS}", f"--data_path={DATA}", f"--output_dir={REPEATED}", "--max_concurrent=1"]
    words += [f"--seeds={','.join(map(str, comparison.seeds))}"] if comparison.seeds else []
    words += [f"--plugins={','.join(plugins)}"] if plugins else []
    return [*words, *(f"--scores={name}={SCORES}/{name}{file.suffix}" for name, file in scores.items())]


def _readme(content: Mapping[str, Any], comparison: Comparison) -> str:
    table, _ = comparison.tables()
    facts = {key: content[key] for key in ("counts", "data_fingerprint", "protocol", "models", "versions", "commit")}
    return f"""# {", ".join(comparison.results)} on {content["dataset"]}

{table.markdown()}
## Repeat

In this folder, with the packages of `environment.txt`:

```sh
{" ".join(content["command"])}
recbole-hyper verify . --repeated={REPEATED}
```

`recbole-hyper verify .` checks every file, the metrics by the saved ranks, and the table.

## Data, protocol, models and environment

```yaml
{yaml.safe_dump(plain(facts), sort_keys=False, width=120)}```

`{SETTINGS}` has every value of every model. `{RUNS}/` has each run: result, configuration, epochs, and the rank of
every case.
"""


def verify(folder: Path, repeated: Path | None = None) -> list[str]:
    """Return what is wrong with a package, [] if nothing is; ConfigError if ``folder`` has none.

    Checks that no file is changed, missing or new; that the saved ranks give the metrics of the results; and that the
    results give the table. ``repeated`` is the output_dir of its command: every figure must be equal to six places.
    """
    if not (folder / ABOUT).is_file():
        raise ConfigError(f"{folder} has no package: {ABOUT} is missing")
    about = read_json(folder / ABOUT)
    if about.get("format") != FORMAT or not isinstance(about.get("files"), dict):
        raise ConfigError(f"{folder / ABOUT} has format {about.get('format')!r}, but this release reads {FORMAT}")
    if about.pop("digest", None) != digest(about, 64):
        return [f"{ABOUT} has changed"]
    there = {str(file.relative_to(folder)): file for file in _files(folder)}
    problems = [f"{name} is missing" for name in about["files"] if name not in there]
    problems += [f"{name} is new" for name in there if name not in about["files"]]
    problems += [f"{name} is a link" for name, file in there.items() if file.is_symlink()]
    changed = [name for name, file in there.items() if about["files"].get(name, "") not in ("", file_digest(file))]
    problems += [f"{name} has changed" for name in changed]
    if problems or not about["models"]:
        return problems or [f"{ABOUT} names no model"]
    comparison = _read(folder, about)
    for name, by_seed in comparison.results.items():
        for seed, result in by_seed.items():
            run = comparison.folders[name][seed]
            problems += [f"{run.relative_to(folder)}: {text}" for text in _wrong_metrics(run, result)]
            if repeated is not None:
                problems += _differences(result, seed_folder(repeated / name, seed) / RESULT)
    if problems:
        return problems
    table, _ = comparison.tables()
    if table.csv() != (folder / "compare.csv").read_text(encoding="utf-8"):
        problems.append("compare.csv is not the table of the results")
    return problems


def _read(folder: Path, about: Mapping[str, Any]) -> Comparison:
    """Return the comparison that a package has."""
    folders: dict[str, dict[int | None, Path]] = {}
    for name in about["models"]:
        seeds = [None] if (folder / RUNS / name / RESULT).is_file() else about["seeds"]
        folders[name] = {seed: seed_folder(folder / RUNS / name, seed) for seed in seeds}
    results = {
        name: {seed: read_json(run / RESULT) for seed, run in by_seed.items()} for name, by_seed in folders.items()
    }
    facts = {key: about[key] for key in ("metric", "topk", "seeds", "failed", "notes")}
    return Comparison(results, folders, **facts)


def _wrong_metrics(run: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the metrics that the saved ranks do not give; metrics that are not means over cases are not checked."""
    places = result["config"].get("metric_decimal_place", _PLACES)
    if not DECLARED["metric_decimal_place"].allows(places):
        yield f"metric_decimal_place is {places}"
        return
    for part in ("valid", "test"):
        if not (run / f"cases_{part}.parquet").is_file():
            continue
        ranks = read_cases(run, part)["rank"].to_numpy()
        for metric, value in result[part].items():
            values = case_values(metric, ranks)
            if values is not None and not abs(values.mean() - value) <= 0.5 * 10.0**-places + 1e-9:
                yield f"{part} {metric} is {value}, but the ranks give {values.mean():.6f}"


def _differences(result: Mapping[str, Any], file: Path) -> Iterator[str]:
    """Yield the figures that a repeated run does not have."""
    if not file.is_file():
        yield f"{file} is missing"
        return
    other = read_json(file)
    for part in ("valid", "test"):
        for metric, value in result[part].items():
            again = other[part].get(metric)
            if again is None or not abs(again - value) <= 0.5 * 10**-_PLACES:
                yield f"{file.parent}: {part} {metric} was {value}, and is {again}"


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a package, without its list and its repetition."""
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if file.is_file() and inside.parts[0] != REPEATED and str(inside) != ABOUT:
            yield file
