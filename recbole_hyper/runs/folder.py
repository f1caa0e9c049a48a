"""The folder of a run: whose it is, what a resumed run may change, and the log in it.

May the finished run in a folder stand for the run that is asked for? Else old numbers would pass for new ones.
"""

import contextlib
import logging
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.checks import schedule_keys
from recbole_hyper.errors import LockedError
from recbole_hyper.files import locked, plain, read_json, read_written_yaml, require_no_link
from recbole_hyper.options import AUTO, GROWS, PLACE
from recbole_hyper.runs.plugin_files import require_same_plugins
from recbole_hyper.runs.saved_data import ABOUT, DATA, read_about
from recbole_hyper.settings import deciding
from recbole_hyper.training.build import read_data
from recbole_hyper.training.checkpoint import REFIT, STATE, WEIGHTS, CheckpointError
from recbole_hyper.training.loggers import EVENTS

CONFIG, RESULT, LOG = "config.yaml", "result.json", "run.log"
# format of the folder, and the version of the package that wrote it; those of 0.1.0 have none
ABOUT_RUN = "format.json"
# held for the whole life of a run; a sweep has a lock of its own on the folders of its trials
LOCK = ".run.lock"
_NO_RUN = "not the configuration of a run"
# what changes the outcome and may still differ in a resume, exact upwards only (more epochs, more patience, a refit)
UPWARDS = sorted(deciding(GROWS))
RESUMABLE_KEYS = deciding(PLACE, GROWS)


def files_of_resumed_run(settings: Mapping[str, Any], *, named: bool) -> list[Path]:
    """Return the configuration of the run that ``settings`` continue, [] for a new one; ConfigError for neither."""
    if not settings.get("resume") or not settings.get("output_dir"):
        return []
    file = Path(settings["output_dir"]) / CONFIG
    if file.is_file():
        if read_begun(file.parent).keys() != read_written_yaml(file, _NO_RUN).keys():
            raise ConfigError(
                f"{file.parent} is of an earlier version: it can be loaded and evaluated, but not resumed; train again "
                "in another output_dir"
            )
        return [file]
    if not named:
        raise ConfigError(f"{file.parent} holds no run to resume: {CONFIG} is missing")
    return []


def read_begun(folder: Path) -> dict[str, Any]:
    """Return the configuration of the run in ``folder``; ConfigError for none, and a plugin that has changed since."""
    file = folder / CONFIG
    if not file.is_file():
        raise ConfigError(f"{folder} holds no run: {CONFIG} is missing")
    content = read_written_yaml(file, _NO_RUN)
    if not {"model", "dataset"} <= set(content):
        raise ConfigError(f"{file} is not the configuration of a run: it names no model and no dataset")
    require_same_plugins(folder)
    if (folder / ABOUT_RUN).is_file():
        read_about(folder / ABOUT_RUN)
    elif "exclude_seen" in content:
        # 0.1.0 wrote RecBole's opposite of exclude_seen beside it, which meant nothing
        content.pop("repeatable", None)
    return content


def require_finished(folder: Path, otherwise: str = "") -> None:
    """Raise ConfigError where ``folder`` holds no finished run; ``otherwise`` is what else a caller may do."""
    if not (folder / RESULT).is_file():
        raise ConfigError(
            f"{folder} holds no finished run: {RESULT} is missing; if it was stopped, continue it with "
            f"'recbole-hyper run --resume=True --output_dir={folder}'{otherwise}"
        )


@contextlib.contextmanager
def claimed_folder(config: Config) -> Iterator[Path]:
    """Give the folder of the run, which is this process's alone until the block ends.

    ConfigError for a folder that cannot be written, in which another process is at work, or that holds a run which
    ``config`` does not continue; CheckpointError for a finished run that lacks what a resume goes on from.
    """
    folder = folder_of(config)
    config["output_dir"] = config["output_dir"] or str(folder)
    with alone_in(folder):
        _require_no_seeds(folder)
        if _holds_run(folder):
            _require_resumable(config, folder)
        else:
            others = [name for name in ("train.csv", WEIGHTS, STATE, REFIT) if (folder / name).exists()]
            # a run that was killed before it had a configuration leaves its data, complete
            if (folder / DATA).exists() and not (folder / DATA / ABOUT).is_file():
                others.append(DATA)
            if others:
                said = f"{folder} holds {', '.join(others)} but no run, which would be written over"
                raise ConfigError(f"{said}; choose another output_dir")
        if config["log_tensorboard"]:
            _require_writable(folder / EVENTS)
        yield folder


def _require_resumable(config: Config, folder: Path) -> None:
    """Raise where ``config`` does not continue the run in ``folder``, or a finished one lacks a file for that."""
    if not config["resume"]:
        raise ConfigError(f"{folder} already holds a run; choose another output_dir, or continue it with --resume=True")
    result = require_continued(config, folder)
    parts = [folder, folder / REFIT] if result.get("refit_epochs") else [folder] if result else []
    files = [part / name for part in parts for name in (STATE, WEIGHTS)]
    if missing := [str(file.relative_to(folder)) for file in files if not file.is_file()]:
        raise CheckpointError(
            f"{folder} holds a finished run without {' and '.join(missing)}: it would be trained again "
            "over its result; restore the file, or choose another output_dir"
        )


def folder_of(config: Config) -> Path:
    """Return ``output_dir``, or where it is not given a name with model, data set and time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    return Path(config["output_dir"] or Path("saved") / f"{config['model']}-{config['dataset']}-{stamp}")


def seed_folder(folder: Path, seed: int | None) -> Path:
    """Return the folder of the run with ``seed``, among runs of several seeds; None: the only run is in ``folder``."""
    return folder if seed is None else folder / f"seed-{seed}"


def _holds_run(folder: Path) -> bool:
    """Return whether a run trained in ``folder``; a start that was refused before its first epoch left it free."""
    started = (folder / CONFIG).is_file() and (folder / LOG).is_file()
    trained = (RESULT, "train.csv", STATE, WEIGHTS)
    return any((folder / name).is_file() for name in (trained if started else (CONFIG, RESULT)))


def _require_no_seeds(folder: Path) -> None:
    if any(folder.glob(f"seed-*/{CONFIG}")):
        raise ConfigError(f"{folder} holds runs of several seeds; choose another output_dir, or give --seeds again")


@contextlib.contextmanager
def alone_in(folder: Path, lock: str = LOCK, held_elsewhere: str = "") -> Iterator[None]:
    """Hold the ``lock`` of ``folder``, made where it is missing; ConfigError, or ``held_elsewhere``, for no access."""
    with contextlib.ExitStack() as held:
        require_no_link(folder / lock, folder / LOG)
        _require_writable(folder)
        try:
            held.enter_context(locked(folder / lock, wait=False))
        except LockedError as error:
            said = f"another run is at work in {folder}; wait for its end, or choose another output_dir"
            raise ConfigError(held_elsewhere or said) from error
        yield


def _require_writable(folder: Path) -> None:
    """Make ``folder`` where it is missing; ConfigError where no file can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"output_dir={str(folder)!r} cannot be written: {error}") from error


def require_continued(config: Config, folder: Path) -> dict[str, Any]:
    """Return the result of the run in ``folder`` that ``config`` continues, {} where it has none yet.

    ConfigError for a run of another configuration, or with more epochs, patience or a refit; ValueError for a damaged
    result.
    """
    begun = read_begun(folder)
    now = yaml.safe_load(yaml.safe_dump(plain(config.plain(), nan_to_null=False)))
    # a key that came later stands for its default before, or for being off where it has none
    defaults = config.internal_config_dict
    earlier = {key: defaults.get(key, None if value else value) for key, value in now.items()} | begun
    keys = sorted((set(now) | set(begun)) - RESUMABLE_KEYS)
    if changed := [key for key in keys if not config.ignores(key) and now.get(key) not in (earlier.get(key), AUTO)]:
        detail = "; ".join(f"{key}: {earlier.get(key)!r} before, {now.get(key)!r} now" for key in changed[:5])
        raise ConfigError(
            f"{folder}: this run cannot be resumed with another configuration ({detail}); continue it as it was with "
            f"'recbole-hyper run --resume=True --output_dir={folder}', or choose another output_dir"
        )
    if config["epochs"] == AUTO:  # the earlier run found the number
        config["epochs"] = begun.get("epochs")
    if schedule_keys(config) and begun.get("epochs") != config["epochs"]:
        raise ConfigError(
            f"{folder}: the learning rate follows a schedule over epochs={begun.get('epochs')}, and "
            f"epochs={config['epochs']} is asked for; choose another output_dir"
        )
    result = read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
    # config.yaml may be that of a resume which was killed before it had a result
    for file, before in ((CONFIG, begun), (RESULT, result.get("config", {}))):
        for key in UPWARDS:
            value = before.get(key, config[key]) if isinstance(before, dict) else before
            if not isinstance(value, int):
                raise ConfigError(f"{folder / file} is damaged: {key}={value!r}")
            if config[key] < value and not config.ignores(key):
                raise ConfigError(
                    f"{folder} holds a run with {key}={value!r}, but {key}={config[key]!r} is asked for; "
                    "take another output_dir"
                )
    return result


def is_finished(config: Config, folder: Path) -> bool:
    """Return whether ``folder``, an output_dir, holds the result of the run that ``config`` asks for.

    False where there is no result yet, and where a resume gives exactly what is asked for: more of ``UPWARDS``, the
    cases saved that were not. Raises as :func:`require_continued`; ConfigError for a run on other data.
    """
    result = require_continued(config, folder) if _holds_run(folder) else {}
    if not result:
        return False
    now = config.plain()
    before = {**now, **result.get("config", {})}
    # data that moved are the same
    elsewhere = Path(now["data_path"]).resolve() != Path(before["data_path"]).resolve()
    if elsewhere and read_data(config)[1].store.fingerprint() != result.get("data_fingerprint"):
        raise ConfigError(
            f"{folder} holds a finished run on other data: data_path={before['data_path']!r} before, "
            f"{now['data_path']!r} now; take another output_dir"
        )
    return not any(not config.ignores(key) and now[key] > before[key] for key in (*UPWARDS, "save_cases"))


def plan_runs(
    model: str | type | None,
    dataset: str | None,
    seeds: Sequence[int | None],
    folder: Path,
    settings: Mapping[str, Any],
    config_files: Sequence[str | Path] = (),
) -> dict[int | None, dict[str, Any] | None]:
    """Return by seed the keys of each run that is left to do in ``folder``, None for one that is finished.

    The seed None stands for one run in ``folder`` itself, with the seed of its configuration. Raises before the first
    training: as :func:`is_finished`, and for one run in the place of several seeds, or the other way round.
    """
    if None in seeds:
        _require_no_seeds(folder)
    elif _holds_run(folder):
        raise ConfigError(f"{folder} holds a single run; choose another output_dir for the runs of several seeds")
    plans: dict[int | None, dict[str, Any] | None] = {}
    for seed in seeds:
        own, place = {**settings, **({} if seed is None else {"seed": seed})}, seed_folder(folder, seed)
        config = Config(model, dataset, list(config_files), own)
        plans[seed] = None
        if not is_finished(config, place):
            content = config.plain()
            # a resumed run keeps the values of keys that are not given, so those that may differ are given all
            own |= {key: content[key] for key in (*UPWARDS, "save_cases", "data_path") if key in content}
            plans[seed] = {**own, "output_dir": str(place), "resume": _holds_run(place)}
    return plans


@contextlib.contextmanager
def logging_to(output_dir: Path, level: str) -> Iterator[None]:
    """Log to the terminal and to run.log, without colours in the file."""
    root = logging.getLogger()
    before, old_level = list(root.handlers), root.level
    terminal, file = logging.StreamHandler(sys.stderr), logging.FileHandler(output_dir / LOG, encoding="utf-8")
    for handler, colours in ((terminal, sys.stderr.isatty()), (file, False)):
        kind = logging.Formatter if colours else _NoColour
        handler.setFormatter(kind("%(asctime)s %(message)s", "%H:%M:%S"))
    root.handlers = [terminal, file]
    root.setLevel(str(level).upper() if str(level).upper() in logging.getLevelNamesMapping() else "INFO")
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(old_level)
        file.close()


class _NoColour(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return re.sub(r"\x1B\[[0-?]*[ -/]*[@-~]", "", super().format(record))
