"""May the finished run in a folder stand for the run that is asked for? Else old numbers would pass for new ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.runs.folder import CONFIG, RESULT, UPWARDS, is_read, require_continued
from recbole_hyper.training.build import read_data


def is_finished(config: Config, folder: Path) -> bool:
    """Return whether ``folder``, an output_dir, holds the result of the run that ``config`` asks for.

    False where there is no result yet, and where a resume of the finished run gives exactly what is asked for: more
    ``epochs``, ``refit`` added, the cases saved that were not. ConfigError for a run of another configuration, one with
    more epochs or with a refit that is not asked for, or on other data; ValueError for a result that cannot be read.
    """
    if not any((folder / name).is_file() for name in (CONFIG, RESULT)):
        return False
    result = require_continued(config, folder)
    if not result:
        return False
    now = config.plain()
    before = {**now, **result.get("config", {})}
    _require_same_data(config, now, before, result, folder)
    return not any(now[key] > before[key] and is_read(key, config) for key in (*UPWARDS, "save_cases"))


def keys_to_run(config: Config, folder: Path) -> dict[str, Any] | None:
    """Return the keys that make a run go on with what is in ``folder``, or begin where nothing is; None if finished.

    A resumed run keeps the values that it had of keys that are not given, so those that may differ are given all.
    Raises as :func:`is_finished`.
    """
    if is_finished(config, folder):
        return None
    content = config.plain()
    given = {key: content[key] for key in (*UPWARDS, "save_cases", "data_path")}
    return {**given, "output_dir": str(folder), "resume": (folder / CONFIG).is_file()}


def _require_same_data(
    config: Config, now: Mapping[str, Any], before: Mapping[str, Any], result: Mapping[str, Any], folder: Path
) -> None:
    """Raise ConfigError where ``data_path`` is another one and holds other data; data that moved are the same."""
    if Path(now["data_path"]).resolve() == Path(before["data_path"]).resolve():
        return
    if read_data(config)[1].store.fingerprint() != result.get("data_fingerprint"):
        raise ConfigError(
            f"{folder} holds a finished run on other data: data_path={before['data_path']!r} before, "
            f"{now['data_path']!r} now; take another output_dir"
        )
