"""A run claims its folder: its lock, its log, and what a resume may change.

A finished run is reused only if its configuration and data match, so that old numbers never pass for new ones.
"""

import contextlib
import io
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch.distributed as dist
from tqdm.contrib.logging import logging_redirect_tqdm

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact, parse_keys
from recbole_hyper.config.checks import schedule_keys
from recbole_hyper.errors import LockedError
from recbole_hyper.files import load_written, locked, require_free, require_no_link, yaml_text
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import AUTO, GROWS, PLACE
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.folder import ABOUT_RUN, CONFIG, DATA, RESULT, read_config, read_result
from recbole_hyper.runs.plugin_files import PLUGINS
from recbole_hyper.runs.ready import CHOSEN
from recbole_hyper.settings import SETTINGS, deciding
from recbole_hyper.threads import processors
from recbole_hyper.training.checkpoint import REFIT, STATE, WEIGHTS, CheckpointError
from recbole_hyper.training.processes import world

LOG = "run.log"
# the other files that a run writes after its log
_CASES = ("cases_valid.parquet", "cases_test.parquet")
_WRITTEN = (ABOUT_RUN, PLUGINS, CHOSEN, DATA, "train.csv", WEIGHTS, STATE, REFIT, *_CASES)
# locked while the run trains; a sweep has another lock for the folders of its trials
LOCK = ".run.lock"
# keys that a resume may only raise: more epochs, more patience, a refit
UPWARDS = sorted(deciding(GROWS, among=SETTINGS))


@contextlib.contextmanager
def claimed_folder(config: Config) -> Iterator[Path]:
    """Yield the folder of the run, locked for this process until the block ends.

    ConfigError if the folder cannot be written, another process uses it, or it has a run that ``config`` does not
    resume; CheckpointError if a finished run lacks the files that a resume needs.
    """
    folder = folder_of(config)
    config["output_dir"] = config["output_dir"] or str(folder)
    with alone_in(folder):
        _require_no_seeds(folder)
        if _holds_run(folder):
            _require_resumable(config, folder)
        elif not _has_begun(folder):
            require_free(folder, _WRITTEN, "a run")
        yield folder


@contextlib.contextmanager
def helping_folder(config: Config) -> Iterator[Path]:
    """Yield a temporary folder for a process whose files and texts nobody needs: those of rank 0 are the run's."""
    with tempfile.TemporaryDirectory(prefix="recbole-hyper-") as scratch, contextlib.redirect_stdout(io.StringIO()):
        if config["resume"] and Path(config["output_dir"]).is_dir():
            # what a resume reads, before rank 0 overwrites it
            others = lambda _, names: set(names) - {STATE, WEIGHTS, REFIT}  # noqa: E731
            shutil.copytree(config["output_dir"], scratch, ignore=others, dirs_exist_ok=True)
        config["output_dir"], config["state"], config["log_wandb"] = scratch, "ERROR", False
        yield Path(scratch)


def require_several(config: Config) -> None:
    """Prepare a run of several processes, once each has its folder; ConfigError for a model that is fitted in one."""
    if (size := world()[1]) == 1:
        return
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"{config['model']} is fitted in one process: start it without torchrun")
    config["n_threads"] = config["n_threads"] or max(1, processors() // int(os.environ.get("LOCAL_WORLD_SIZE", size)))
    config["show_progress"] = False
    dist.barrier()


def _require_resumable(config: Config, folder: Path) -> None:
    """Raise if ``config`` does not resume the run in ``folder``, or if a finished run lacks a file for a resume."""
    if not config["resume"]:
        raise ConfigError(f"{folder} already has a run; choose another output_dir, or continue it with --resume=True")
    result = require_continued(config, folder)
    parts = [folder, folder / REFIT] if result.get("refit_epochs") else [folder] if result else []
    files = [part / name for part in parts for name in (STATE, WEIGHTS)]
    if missing := [str(file.relative_to(folder)) for file in files if not file.is_file()]:
        raise CheckpointError(
            f"{folder} has a finished run without {' and '.join(missing)}: a resume would train it again and overwrite "
            "its result; restore the file, or choose another output_dir"
        )


def folder_of(config: Config) -> Path:
    """Return ``output_dir``, by default a name with model, data set and time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    return Path(config["output_dir"] or Path("saved") / f"{config['model']}-{config['dataset']}-{stamp}")


def seed_folder(folder: Path, seed: int | None) -> Path:
    """Return the folder of the run with ``seed``; None stands for a single run, in ``folder`` itself."""
    return folder if seed is None else folder / f"seed-{seed}"


def _holds_run(folder: Path) -> bool:
    """Return whether ``folder`` has a run; a run that failed before its first epoch does not count."""
    started = (folder / CONFIG).is_file() and _has_begun(folder)
    trained = (RESULT, "train.csv", STATE, WEIGHTS)
    return any((folder / name).is_file() for name in (trained if started else (CONFIG, RESULT)))


def _has_begun(folder: Path) -> bool:
    """Return whether a run began here: a shell may have made a log, but not the format."""
    return (folder / LOG).is_file() and (folder / ABOUT_RUN).is_file()


def _require_no_seeds(folder: Path) -> None:
    if any(folder.glob(f"seed-*/{CONFIG}")):
        raise ConfigError(f"{folder} has runs with several seeds; choose another output_dir, or set --seeds")


@contextlib.contextmanager
def alone_in(folder: Path, lock: str = LOCK, held_elsewhere: str = "") -> Iterator[None]:
    """Create ``folder`` if needed and lock it.

    ConfigError if no file can be written there, or, with ``held_elsewhere``, if another process has it.
    """
    require_no_link(folder / lock, folder / LOG)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"output_dir={str(folder)!r} cannot be written: {error}") from error
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / lock, wait=False))
        except LockedError as error:
            message = f"another run uses {folder}; wait until it ends, or choose another output_dir"
            raise ConfigError(held_elsewhere or message) from error
        yield


def require_continued(config: Config, folder: Path) -> dict[str, Any]:
    """Return the result of the run in ``folder`` that ``config`` resumes, {} if it has none yet.

    ConfigError if that run has another configuration, more epochs, more patience or a refit; ValueError for a damaged
    result.
    """
    before = read_config(folder)
    now = load_written(yaml_text(config.plain()))
    # a key that did not exist then had its present default
    earlier = {**config.internal_config_dict, **before}
    resumable = deciding(PLACE, GROWS, among=config.resolved.options)
    keys = sorted(key for key in (now.keys() | before.keys()) - resumable if not config.ignores(key))
    # a key that one of both versions lacks may be off
    if changed := [key for key in keys if now.get(key) != AUTO and (now.get(key) or 0) != (earlier.get(key) or 0)]:
        detail = "; ".join(f"{key}: {earlier.get(key)!r} before, {now.get(key)!r} now" for key in changed[:5])
        raise ConfigError(
            f"{folder}: this run cannot be resumed with another configuration ({detail}); continue it unchanged with "
            f"'recbole-hyper run --resume=True --output_dir={folder}', or choose another output_dir"
        )
    if config["epochs"] == AUTO:  # the earlier run chose the number
        config["epochs"] = before.get("epochs")
    if schedule_keys(config) and before.get("epochs") != config["epochs"]:
        raise ConfigError(
            f"{folder}: the learning rate follows a schedule over epochs={before.get('epochs')}, which cannot change "
            f"to {config['epochs']}; choose another output_dir"
        )
    for key in UPWARDS:
        if config[key] < before.get(key, config[key]) and not config.ignores(key):
            raise ConfigError(
                f"{folder} has a run with {key}={before[key]!r}, which cannot be lowered to {config[key]!r}; choose "
                "another output_dir"
            )
    return read_result(folder)


def is_finished(config: Config, folder: Path, given: Callable[[Config], Any] | None = None) -> bool:
    """Return whether ``folder``, an output_dir, already has the result of ``config``.

    False if there is no result yet, or if a resume would add to it: more of ``UPWARDS``, or saved cases. Raises as
    :func:`require_continued`; ConfigError for a run on other data than ``given`` reads, by default those in data_path.
    """
    result = require_continued(config, folder) if _holds_run(folder) else {}
    if not result:
        return False
    now = config.plain()
    before = {**now, **result.get("config", {})}
    # the same data may have moved, and others may be in their place
    moved = Path(now["data_path"]).resolve() != Path(before["data_path"]).resolve()
    written = (folder / RESULT).stat().st_mtime
    newer = any(file.stat().st_mtime > written for file in Path(config["data_path"]).glob("*.inter"))
    read = given or (read_data if moved or newer else None)
    if read and read(config)[1].store.fingerprint() != result.get("data_fingerprint"):
        where = "these interactions" if given else f"those in data_path={now['data_path']!r}"
        raise ConfigError(f"{folder} has a finished run on other data than {where}")
    return not any(not config.ignores(key) and now[key] > before[key] for key in (*UPWARDS, "save_cases"))


def plan_runs(
    model: str | type | None,
    dataset: str | None,
    seeds: Sequence[int | None],
    folder: Path,
    settings: Mapping[str, Any],
    config_files: Sequence[str | Path] = (),
    given: Callable[[Config], Any] | None = None,
) -> dict[int | None, dict[str, Any] | None]:
    """Return, by seed, the keys of each run that remains to be done in ``folder``, and None for finished runs.

    The seed None stands for a single run in ``folder`` itself, with the seed of its configuration. Raises as
    :func:`is_finished`; ConfigError if ``folder`` has a single run where several seeds belong, or the reverse.
    """
    if None in seeds:
        _require_no_seeds(folder)
    elif _holds_run(folder):
        raise ConfigError(f"{folder} has a single run; choose another output_dir for several seeds")
    plans: dict[int | None, dict[str, Any] | None] = dict.fromkeys(seeds)
    settings = parse_keys(settings)
    for seed in seeds:
        keys, run_folder = Exact(settings, **({} if seed is None else {"seed": seed})), seed_folder(folder, seed)
        config = Config(model, dataset, list(config_files), keys)
        if not is_finished(config, run_folder, given):
            content = config.plain()
            # a resumed run keeps the earlier values of missing keys, so pass all keys that may change
            keys |= {key: content[key] for key in (*UPWARDS, "save_cases", "data_path") if key in content}
            plans[seed] = Exact(keys, output_dir=str(run_folder), resume=_holds_run(run_folder))
    return plans


@contextlib.contextmanager
def logging_to(output_dir: Path, level: str) -> Iterator[None]:
    """Log to the terminal and to run.log, without RecBole's colours."""
    root = logging.getLogger()
    before, old_level = list(root.handlers), root.level
    terminal, file = logging.StreamHandler(), logging.FileHandler(output_dir / LOG, encoding="utf-8")
    for handler in (terminal, file):
        handler.setFormatter(_NoColour("%(asctime)s %(message)s", "%H:%M:%S"))
    # RecBole's loop logs all metrics of a validation; train.csv has them
    terminal.addFilter(lambda record: "valid result" not in str(record.msg))
    root.handlers = [terminal, file]
    root.setLevel(str(level).upper() if str(level).upper() in logging.getLevelNamesMapping() else "INFO")
    try:
        with logging_redirect_tqdm():  # above the bars
            yield
    finally:
        root.handlers = before
        root.setLevel(old_level)
        file.close()


class _NoColour(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return re.sub(r"\x1B\[[0-?]*[ -/]*[@-~]", "", super().format(record))
