"""A comparison in one folder, with everything that a reviewer needs to check and repeat it.

Audits of the field ask for code and settings of every baseline, how they were tuned, the split, the candidates, and
what was selected on. The folder has the data with their fingerprint, the protocol in words, search space, budget and
chosen values of every model, its seeds, the rank of every test case, the environment, the table, and the command that
repeats it. ``sha256sum -c SHA256SUMS`` checks its files.
"""

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.data.source import CARD
from recbole_hyper.errors import ConfigError
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.files import file_digest, plain, replaced_folder, require_empty, write_text, write_yaml
from recbole_hyper.host import models
from recbole_hyper.options import PLACE
from recbole_hyper.runs.claim import seed_folder
from recbole_hyper.runs.folder import CONFIG, RESULT
from recbole_hyper.settings import deciding

README, SETTINGS, SUMS = "README.md", "settings.yaml", "SHA256SUMS"
RUNS, DATA, SWEEPS, SCORES, PLUGINS = "runs", "data", "sweeps", "scores", "plugins"
REPEATED = "repeated"
OF_A_RUN = (RESULT, CONFIG, "cases_test.parquet", "cases_valid.parquet", "train.csv")
# keys that the command or the place sets
_SET_ELSEWHERE = {"model", "dataset", "data_path", "output_dir", "resume", "plugins", "epochs_done", "save_cases"}


def write_package(
    folder: Path, comparison: Comparison, *, tuned: Mapping[str, Path], scores: Mapping[str, Path]
) -> Path:
    """Write the package of the ``comparison`` to ``folder``, which must not exist.

    ``tuned`` are the sweeps that chose a model's settings, ``scores`` the files of other libraries, both by name.
    """
    require_new(folder, comparison.folder)
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
    files |= plugins | {file.name: file for file in comparison.folder.glob("compare*")}
    with replaced_folder(folder) as part:
        for place, file in files.items():
            if file.is_file():
                (part / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, part / place)
        write_yaml(part / SETTINGS, {name: _settings(comparison.results[name]) for name in trained})
        names = {dist.metadata["Name"]: dist.version for dist in distributions()}
        write_text(part / "environment.txt", "".join(f"{name}=={names[name]}\n" for name in sorted(names, key=str)))
        chosen = {name: _chosen(name, trained, tuned) for name in comparison.results}
        write_text(part / README, _readme(comparison, chosen, _command(comparison, trained, scores, plugins)))
        written = [file for file in sorted(part.rglob("*")) if file.is_file()]
        write_text(part / SUMS, "".join(f"{file_digest(file)}  {file.relative_to(part)}\n" for file in written))
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


def require_new(folder: Path, runs: Path) -> None:
    """Raise ConfigError if ``folder`` is not empty, or will have the ``runs``."""
    if runs.absolute().is_relative_to(folder.absolute()):
        raise ConfigError(f"--package={folder} has --output_dir={runs} in it; name another folder")
    require_empty(folder, "--package")


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


def _readme(comparison: Comparison, chosen: Mapping[str, str], command: Sequence[str]) -> str:
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
sha256sum -c {SUMS}
{shlex.join(command)}
```

The first line says whether a file has changed; the second writes `{REPEATED}/compare.csv`, whose metrics are those of
`compare.csv`.

## Models, data, protocol and environment

```yaml
{yaml.safe_dump(plain({"models": dict(chosen)} | facts), sort_keys=False, width=120)}```

`{SETTINGS}` has every value of every model. `{RUNS}/` has each run: result, configuration, epochs, and the rank of
every case.
"""
