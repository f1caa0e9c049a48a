"""One trial: train and validate one setting in its own folder, and record how that ended."""

import contextlib
import errno
import gc
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from recbole_hyper.config import Config
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.files import is_no_space, locked, read_json, write_json
from recbole_hyper.runs.run import run
from recbole_hyper.sweep.proposals import Settings, Trial
from recbole_hyper.training.checkpoint import CheckpointError, OtherDataError
from recbole_hyper.training.memory import give_back_freed
from recbole_hyper.training.shared import shared_data

RECORD = "trial.json"
FINISHED, FAILED, STOPPED, UNFINISHED = "finished", "failed", "stopped", "unfinished"

Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Plan:
    """What all trials of a sweep share; plain values, sent to the processes that run trials."""

    model: str
    dataset: str
    fixed: Mapping[str, Any]  # configuration of every trial beside its settings
    folder: str  # of the sweep, absolute
    threads: int = 1  # of each trial
    metric: str = "ndcg@10"  # of validation, in lower case
    bigger: bool = True  # whether a bigger score is better

    @property
    def trials(self) -> Path:
        """Folder that holds a folder for each trial."""
        return Path(self.folder) / "trials"

    @property
    def data(self) -> Path:
        """Folder of the shared data."""
        return Path(self.folder) / "data"

    @property
    def mode(self) -> Literal["max", "min"]:
        """Direction of the score, in Ray's words."""
        return "max" if self.bigger else "min"

    def config(self, settings: Settings, **more: Any) -> Config:
        """Bind the configuration of a trial; raises ConfigError where it cannot run."""
        with quiet():
            return Config(self.model, self.dataset, config_dict={**self.fixed, **settings, **more})


@dataclass(frozen=True)
class Record:
    """How a trial ended; the content of trial.json."""

    number: int
    name: str  # of its folder
    settings: Settings  # values of the keys of the space
    status: str  # finished; failed; stopped by the scheduler; unfinished (a resume continues it)
    reason: str = ""  # why it failed, was stopped or was left unfinished
    score: float | None = None  # best validation score
    best_epoch: int | None = None  # of the score, from 0
    epochs: int | None = None  # trained
    valid: Mapping[str, float] = field(default_factory=dict)  # validation metrics
    seconds: float = 0.0  # in its process; earlier sessions of a resumed trial are not counted
    peak_memory_bytes: int | None = None  # of the training process

    @property
    def trial(self) -> Trial:
        """The trial that this is the record of."""
        return Trial(self.number, dict(self.settings))


def run_trial(plan: Plan, trial: Trial, report: Report | None = None) -> Record:
    """Run one trial, or go on with it, and return its record, which is written; an ended trial is not run again.

    While it runs, the record says "unfinished", which is what a killed process leaves. ``report`` is called with
    (epoch, validation score) after every validation. Errors inside the trial end up in the record's ``reason``.

    Raises:
        NoSpaceError: the disk is full; the trial stays unfinished.
    """
    folder = plan.trials / trial.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # a process that outlived its killed driver may still be writing here
        with locked(folder / ".lock"):
            record = read_record(folder)
            if record is not None and record.status != UNFINISHED:
                return record
            begun = Record(trial.number, trial.name, trial.settings, UNFINISHED)
            write_json(folder / RECORD, asdict(begun))
            record = _run(plan, trial, folder, report)
            write_json(folder / RECORD, asdict(record))
            return record
    except Exception as error:
        if is_no_space(error):
            raise NoSpaceError(errno.ENOSPC, f"no space left for trial {trial.name}", str(folder)) from error
        raise


def _run(plan: Plan, trial: Trial, folder: Path, report: Report | None) -> Record:
    start = perf_counter()

    def ended(status: str, **values: Any) -> Record:
        return Record(trial.number, trial.name, trial.settings, status, seconds=perf_counter() - start, **values)

    try:
        with isolated(folder, plan.threads):
            result = _train(plan, trial, folder, report)
    except Exception as error:
        if is_no_space(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        if _out_of_memory(error):
            reason = f"out of memory: {reason}"
        return ended(FAILED, reason=reason, epochs=len(read_history(folder)))
    finally:
        _return_memory()
    score = result["best_valid_score"]
    if score is None or not math.isfinite(score):
        return ended(FAILED, reason=f"the validation score is {score}", epochs=result["epochs"])
    values = {key: result[key] for key in ("best_epoch", "epochs", "valid", "peak_memory_bytes")}
    return ended(FINISHED, score=float(score), **values)


def _train(plan: Plan, trial: Trial, folder: Path, report: Report | None) -> dict[str, Any]:
    settings = {**plan.fixed, **trial.settings, "output_dir": str(folder), "n_threads": plan.threads}
    settings |= {"show_progress": False, "save_data": False}

    def attempt(resume: bool) -> dict[str, Any]:
        return run(
            plan.model,
            plan.dataset,
            config_dict={**settings, "resume": resume},
            test=False,
            read=lambda config: shared_data(config, plan.data),
            on_validation=report,
        )

    return resume_or_restart(folder, attempt)


def resume_or_restart(folder: Path, attempt: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
    """Return ``attempt(resume)``, which resumes the run in ``folder`` or starts one where there is none.

    A run that cannot be resumed, as its process was killed while it wrote, is removed and started again.
    OtherDataError for one that was trained on other data.
    """
    try:
        return attempt((folder / "config.yaml").is_file())
    except OtherDataError:
        raise
    except CheckpointError:
        clear(folder)
        return attempt(False)


def read_record(folder: Path) -> Record | None:
    """Read trial.json; None where it is missing, cannot be read, or holds what no trial writes."""
    names = {entry.name for entry in fields(Record)}
    try:
        record = Record(**{key: value for key, value in read_json(folder / RECORD).items() if key in names})
    except (OSError, ValueError, TypeError):
        return None
    typed: list[tuple[Any, type | tuple[type, ...]]] = [
        (record.number, int), (record.name, str), (record.settings, dict), (record.reason, str),
        (record.valid, dict), (record.seconds, (int, float)), (record.score, (int, float, type(None))),
    ]  # fmt: skip
    good = all(isinstance(value, kind) and not isinstance(value, bool) for value, kind in typed)
    return record if good and record.status in (FINISHED, FAILED, STOPPED, UNFINISHED) else None


def read_records(plan: Plan) -> dict[str, Record]:
    """Return the records of a sweep by trial name, in the order of their numbers."""
    read = [read_record(path.parent) for path in plan.trials.glob(f"*/{RECORD}")]
    records = sorted((record for record in read if record is not None), key=lambda record: record.number)
    return {record.name: record for record in records}


def read_history(folder: Path) -> list[dict[str, float]]:
    """Read train.csv; values that are no numbers, and rows without an epoch, are left out."""
    try:
        table = pd.read_csv(folder / "train.csv", dtype=str, encoding_errors="replace", on_bad_lines="skip")
    except (OSError, ValueError):
        return []
    if "epoch" not in table:
        return []
    numbers = table.apply(pd.to_numeric, errors="coerce")
    rows = numbers[np.isfinite(numbers["epoch"])].to_dict("records")
    return [{str(key): float(value) for key, value in row.items() if not math.isnan(value)} for row in rows]


def close_trial(plan: Plan, trial: Trial, status: str, reason: str) -> Record:
    """Write and return the record of a trial that did not end by itself, with the best score of its train.csv."""
    folder = plan.trials / trial.name
    history = read_history(folder)
    name = f"valid_{plan.metric}"
    scores = {int(row["epoch"]): row[name] for row in history if math.isfinite(row.get(name, math.nan))}
    best = (max if plan.bigger else min)(scores, key=scores.__getitem__, default=None)
    record = Record(
        trial.number,
        trial.name,
        trial.settings,
        status,
        reason,
        score=None if best is None else scores[best],
        best_epoch=best,
        epochs=len(history),
        seconds=sum(row.get("train_seconds", 0.0) + row.get("valid_seconds", 0.0) for row in history),
    )
    write_json(folder / RECORD, asdict(record))
    return record


def clear(folder: Path) -> None:
    """Remove what a run left in ``folder``, but not the trial's lock and record."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (".lock", RECORD):
            path.unlink()


def _out_of_memory(error: Exception) -> bool:
    text = f"{type(error).__name__}: {error}".lower()
    phrases = ("out of memory", "outofmemory", "can't allocate memory", "cannot allocate memory")
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log no warning within a block, such as of a key that other trials read."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def isolated(folder: Path, threads: int) -> Iterator[None]:
    """Limit torch, BLAS and OpenMP of this process to ``threads``, and write what a run prints to its folder.

    Trials side by side share the cores and the terminal.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with (
            threadpool_limits(limits=threads),
            open(folder / "output.txt", "a", encoding="utf-8") as file,
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            yield
    finally:
        torch.set_num_threads(before)


def _return_memory() -> None:
    """Return freed memory to the system, so that the next trial's peak is its own."""
    gc.collect()
    give_back_freed()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
