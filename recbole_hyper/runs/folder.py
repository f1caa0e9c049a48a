"""The folder of a finished run: the names of its files, its configuration and result, and whether they still agree."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.files import file_digest, read_json, read_written_yaml
from recbole_hyper.processes import package_version
from recbole_hyper.runs.plugin_files import require_same_plugins
from recbole_hyper.training.checkpoint import REFIT, WEIGHTS

CONFIG, RESULT = "config.yaml", "result.json"
DATA, ABOUT = "data", "about.json"
# format of the folder and version of the package that wrote it
ABOUT_RUN = "format.json"
# format of the folder of a run and of its data; increase it when an older package would misread them
FORMAT = 2


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the run in ``folder``; ConfigError for no run, or a plugin that has changed."""
    file = folder / CONFIG
    if not file.is_file():
        raise ConfigError(no_run(folder))
    content = read_written_yaml(file, "not the configuration of a run")
    if not isinstance(content.get("model"), str) or "dataset" not in content:
        raise ConfigError(f"{file} is not the configuration of a run: it names no model and no dataset")
    require_same_plugins(folder)
    require_format(folder / ABOUT_RUN)
    return content


def no_run(folder: Path) -> str:
    """Return why ``folder`` has no run, with a folder of a run that it may mean."""
    if not folder.exists():
        runs = [other.parent.name for other in folder.parent.glob(f"*/{CONFIG}")] if folder.parent.is_dir() else []
        before = f"; did you mean {str(folder).removesuffix(folder.name)}"
        return f"{folder} has no run: the folder does not exist{did_you_mean(folder.name, runs, before, n=1)}"
    inside = [str(other.parent) for other in sorted(folder.glob(f"*/{CONFIG}"))[:3]]
    hint = f"; runs are in {', '.join(inside)}" if inside else ""
    return f"{folder} has no run: {CONFIG} is missing{hint}"


def read_result(folder: Path) -> Any:
    """Return the content of result.json, {} before a run has finished."""
    result = read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
    for key, kind in {"model": str, "n_items": int, "files": dict}.items():
        if not isinstance(value := result.get(key, kind()), kind):
            raise ConfigError(f"{folder / RESULT} is not the result of a run: {key}={value!r}")
    return result


def require_finished(folder: Path, alternative: str = "") -> None:
    """Raise ConfigError if ``folder`` has no finished run; ``alternative`` ends the message."""
    if not folder.exists():
        raise ConfigError(no_run(folder))
    if not (folder / RESULT).is_file():
        raise ConfigError(
            f"{folder} has no finished run: {RESULT} is missing; if it was stopped, continue it with "
            f"'recbole-hyper run --resume=True --output_dir={folder}'{alternative}"
        )


def require_format(file: Path) -> None:
    """Raise ConfigError unless ``file`` names a format that this version reads."""
    about = read_json(file) if file.is_file() else {}
    if about.get("format") not in range(1, FORMAT + 1):
        raise ConfigError(
            f"{file}: format {about.get('format')} of recbole_hyper {about.get('version', '0.1.0')}; this is version "
            f"{package_version()}, which reads formats up to {FORMAT}: install that version, or train again"
        )


def identity(output_dir: str | Path) -> dict[str, str]:
    """Return digests of configuration, weights and data, which identify the model in a folder."""
    folder = Path(output_dir)
    files = (folder / CONFIG, folder / WEIGHTS, folder / REFIT / WEIGHTS, folder / DATA / ABOUT)
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in files if file.is_file()}


def edited(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """Return a sentence if the configuration was edited since its ``result``, [] if not."""
    if result.get("files", {}).get(CONFIG) in (None, file_digest(folder / CONFIG)):
        return []
    return [f"{folder / CONFIG} was edited after the run: {RESULT} does not describe it"]
