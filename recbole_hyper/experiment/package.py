"""A comparison in one folder, with everything that a reviewer needs to check and repeat it.

Audits of the field ask for code and settings of every baseline, how they were tuned, the split, the candidates, and
what was selected on. The folder has the data with their fingerprint, the protocol in words, search space, budget and
chosen values of every model, its seeds, the rank of every test case, the environment, the table, and the command that
repeats it. :func:`verify` checks it against itself, and against a repetition; ``sha256sum -c SHA256SUMS`` its files.
"""

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field

from recbole_hyper.data.source import CARD
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.pairs import read_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.experiment.experiment import Results
from recbole_hyper.files import (
    file_digest,
    plain,
    read_json,
    replaced_folder,
    validated,
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

ABOUT, README, SETTINGS, SUMS = "package.json", "README.md", "settings.yaml", "SHA256SUMS"
RUNS, DATA, SWEEPS, SCORES, PLUGINS = "runs", "data", "sweeps", "scores", "plugins"
REPEATED = "repeated"
OF_A_RUN = (RESULT, CONFIG, "cases_test.parquet", "cases_valid.parquet", "train.csv")
# keys that the command or the place sets
_SET_ELSEWHERE = {"model", "dataset", "data_path", "output_dir", "resume", "plugins", "epochs_done", "save_cases"}
_PLACES = 6  # a figure in a repetition may differ in the digits behind


class About(BaseModel):
    """The content of package.json: the command that repeats the comparison, and what its table is made of."""

    format: Literal[3] = 3
    command: list[str]
    models: dict[str, str] = Field(min_length=1)  # how the settings of each were chosen
    metric: str
    topk: list[int]
    seeds: list[int]
    failed: dict[str, str]
    notes: dict[str, str]


def write_package(
    folder: Path, comparison: Comparison, *, tuned: Mapping[str, Path], scores: Mapping[str, Path]
) -> Path:
    """Write the package of the ``comparison`` to ``folder``, which must not exist.

    ``tuned`` are the sweeps that chose a model's settings, ``scores`` the files of other libraries, both by name.
    """
    require_new(folder)
    first = comparison.first
    dataset, root = first["dataset"], Path(first["config"]["data_path"])
    data = root / dataset if (root / dataset).is_dir() else root
    trained = [name for name in comparison.results if name not in scores]
    plugins = _plugins(comparison, trained)
    files = {f"{DATA}/{dataset}/{file.name}": file for file in (*data.glob(f"{dataset}.*"), *data.glob(CARD))}
    for name, by_seed in comparison.folders.items():
        for seed, run in by_seed.items():
            files |= {str(seed_folder(Path(RUNS, name), seed) / one): run / one for one in OF_A_RUN}
    for name, sweep in tuned.items():
        files |= {f"{SWEEPS}/{name}/{one}": sweep / one for one in ("sweep.yaml", "sweep.json", "trials.csv")}
    files |= {f"{SCORES}/{name}{file.suffix}": file for name, file in scores.items()}
    files |= plugins
    files |= {file.name: file for file in comparison.folder.glob("compare*")}
    with replaced_folder(folder) as part:
        for place, file in files.items():
            if file.is_file():
                (part / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, part / place)
        write_yaml(part / SETTINGS, {name: _settings(comparison.results[name]) for name in trained})
        names = {dist.metadata["Name"]: dist.version for dist in distributions()}
        write_text(part / "environment.txt", "".join(f"{name}=={names[name]}\n" for name in sorted(names, key=str)))
        command = _command(comparison, trained, scores, plugins)
        chosen = {name: _chosen(name, trained, tuned) for name in comparison.results}
        facts = {key: getattr(comparison, key) for key in ("metric", "topk", "seeds", "failed", "notes")}
        about = About(command=command, models=chosen, **facts)
        write_json(part / ABOUT, about.model_dump())
        write_text(part / README, _readme(about, comparison))
        write_text(part / SUMS, "".join(f"{file_digest(file)}  {name}\n" for name, file in _files(part).items()))
    return folder / README


def _plugins(comparison: Comparison, trained: Sequence[str]) -> dict[str, Path]:
    """Return the plugin files by place, where two of one name do not meet, with the models' defaults beside them."""
    configs = [result["config"] for runs in comparison.results.values() for result in runs.values()]
    plugins = dict.fromkeys(Path(file) for config in configs for file in config.get("plugins") or ())
    classes = [cls for name, cls in models.models().items() if name in trained]
    defaults = {file for cls in classes for file in models.defaults_files(cls)}
    files = dict[str, Path]()
    for number, plugin in enumerate(plugins, 1):
        beside = [file for file in defaults if file.parent == plugin.absolute().parent]
        files |= {f"{PLUGINS}/{number}/{file.name}": file for file in (plugin, *beside)}
    return files


def require_new(folder: Path) -> None:
    """Raise ConfigError if ``folder`` has something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--package={folder} exists; name a new folder")


def _settings(by_seed: Mapping[int | None, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys that repeat a model's runs, with the values that "auto" chose."""
    first = next(iter(by_seed.values()))
    left_out = _SET_ELSEWHERE | (deciding(PLACE) - {"n_threads"}) | ({"seed"} if None not in by_seed else set())
    keys = {key: value for key, value in first["config"].items() if key not in left_out}
    return {**keys, "n_threads": first.get("threads")}


def _chosen(name: str, trained: Sequence[str], tuned: Mapping[str, Path]) -> str:
    """Return how the settings of a model were chosen."""
    if name not in trained:
        return "scores of another library"
    if name in tuned:
        return f"tuned: {SWEEPS}/{name}/ has the space, every trial, their seconds, and the winner"
    return "not tuned: defaults of the model, data set and command"


def _command(
    comparison: Comparison, trained: list[str], scores: Mapping[str, Path], plugins: Iterable[str]
) -> list[str]:
    words = ["recbole-hyper", "compare", f"--models={','.join(trained)}", f"--dataset={comparison.first['dataset']}"]
    words += [f"--config_files={SETTINGS}", f"--data_path={DATA}", f"--output_dir={REPEATED}", "--max_concurrent=1"]
    words += [f"--seeds={','.join(map(str, comparison.seeds))}"] if comparison.seeds else []
    words += [f"--plugins={','.join(one for one in plugins if one.endswith('.py'))}"] if plugins else []
    return [*words, *(f"--scores={name}={SCORES}/{name}{file.suffix}" for name, file in scores.items())]


def _readme(about: About, comparison: Comparison) -> str:
    table, _ = comparison.tables()
    first = comparison.first
    counts = ("data_fingerprint", "n_users", "n_items", "n_interactions", "n_test_cases")
    facts = {key: first.get(key) for key in (*counts, "eval_args", "ties", "device", "commit", "versions")}
    return f"""# {", ".join(comparison.results)} on {first["dataset"]}

{table.markdown()}
Each run tests the epoch with the best {comparison.metric} on validation, once, at the end.

## Repeat

In this folder, with the packages of `environment.txt`:

```sh
{" ".join(about.command)}
recbole-hyper verify . --repeated={REPEATED}
```

`recbole-hyper verify .` checks every file, the metrics by the saved ranks, and the table.

## Models, data, protocol and environment

```yaml
{yaml.safe_dump(plain({"models": about.models} | facts), sort_keys=False, width=120)}```

`{SETTINGS}` has every value of every model. `{RUNS}/` has each run: result, configuration, epochs, and the rank of
every case.
"""


def verify(folder: Path, repeated: Path | None = None) -> list[str]:
    """Return what is wrong with a package, [] if nothing is; ConfigError if ``folder`` has none.

    Checks that no file is changed, missing or new; that the saved ranks give the metrics of the results; and that the
    results give the table. ``repeated`` is the output_dir of its command: every figure must be equal to six places.
    """
    if not (folder / SUMS).is_file():
        raise ConfigError(f"{folder} has no package: {SUMS} is missing")
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    listed, there = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}, _files(folder)
    problems = [f"{name} is missing" for name in listed if name not in there]
    problems += [f"{name} is new" for name in there if name not in listed]
    problems += [f"{name} is a link" for name, file in there.items() if file.is_symlink()]
    both = listed.keys() & there.keys()
    problems += [f"{name} has changed" for name in sorted(both) if listed[name] != file_digest(there[name])]
    if problems:
        return problems
    about = validated(About, read_json(folder / ABOUT), folder / ABOUT)
    comparison = _read(folder, about)
    for name, by_seed in comparison.results.items():
        for seed, result in by_seed.items():
            run = comparison.folders[name][seed]
            again = None if repeated is None else seed_folder(repeated / name, seed)
            problems += [f"{run.relative_to(folder)}: {text}" for text in _wrong_figures(run, result, again)]
    if problems:
        return problems
    table, _ = comparison.tables()
    same = table.csv() == (folder / "compare.csv").read_text(encoding="utf-8")
    return [] if same else ["compare.csv is not the table of the results"]


def _read(folder: Path, about: About) -> Comparison:
    """Return the comparison that a package has."""
    results: Results = {}
    for name in about.models:
        # scores of another library have no seed
        seeds = [None] if (folder / RUNS / name / RESULT).is_file() else about.seeds
        results[name] = {seed: read_json(seed_folder(folder / RUNS / name, seed) / RESULT) for seed in seeds}
    return Comparison(results, folder / RUNS, **about.model_dump(exclude={"format", "command", "models"}))


def _wrong_figures(run: Path, result: Mapping[str, Any], again: Path | None) -> Iterator[str]:
    """Yield the metrics that the saved ranks do not give, or that a repeated run, in the folder ``again``, has not.

    Metrics that are not means over cases do not follow from ranks.
    """
    places = result["config"].get("metric_decimal_place", _PLACES)
    if not DECLARED["metric_decimal_place"].allows(places):
        yield f"metric_decimal_place is {places}"
        return
    if again is not None and not (again / RESULT).is_file():
        yield f"{again / RESULT} is missing"
        return
    repeated = None if again is None else read_json(again / RESULT)
    for part in ("valid", "test"):
        saved = (run / f"cases_{part}.parquet").is_file()
        ranks = read_cases(run, part)["rank"].to_numpy() if saved else None
        for metric, value in result[part].items():
            values = None if ranks is None else case_values(metric, ranks)
            if values is not None and not abs(values.mean() - value) <= 0.5 * 10.0**-places + 1e-9:
                yield f"{part} {metric} is {value}, but the ranks give {values.mean():.6f}"
            if repeated and not abs(repeated[part].get(metric, math.nan) - value) <= 0.5 * 10**-_PLACES:
                yield f"{part} {metric} was {value}, and is {repeated[part].get(metric)} in {again}"


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a package by name, without its list and its repetition."""
    files = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {name: file for name, file in files.items() if name != SUMS and Path(name).parts[0] != REPEATED}
