"""May the finished run in a folder stand for the run that is asked for? Else old numbers would pass for new ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.runs.folder import (
    CONFIG,
    RESULT,
    UPWARDS,
    is_read,
    require_continued,
    require_no_seeds,
    require_no_single_run,
    seed_folder,
)
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


def plan_runs(
    model: str | type | None,
    dataset: str | None,
    seeds: Sequence[int | None],
    folder: Path,
    settings: Mapping[str, Any],
    config_files: Sequence[str | Path] = (),
) -> dict[int | None, dict[str, Any] | None]:
    """Return by seed the keys of each run that is left to do in ``folder``, None for one that is finished.

    The seed None stands for the one run that is in ``folder`` itself, with the seed of its configuration. Nothing is
    run, so that whatever is refused is refused before the first training: as :func:`is_finished`, and where ``folder``
    holds a single run in the place of several seeds, or the other way round.
    """
    (require_no_seeds if None in seeds else require_no_single_run)(folder)
    plans: dict[int | None, dict[str, Any] | None] = {}
    for seed in seeds:
        own = {**settings, **({} if seed is None else {"seed": seed})}
        keys = keys_to_run(Config(model, dataset, list(config_files), own), seed_folder(folder, seed))
        plans[seed] = None if keys is None else {**own, **keys}
    return plans


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
