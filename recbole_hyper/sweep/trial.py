"""One trial: train and validate one setting in its own folder, and record the outcome; the tested run of a winner."""

import contextlib
import gc
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import TypeAdapter
from threadpoolctl import threadpool_limits

from recbole_hyper.config import Config
from recbole_hyper.config.binding import Exact
from recbole_hyper.files import digest, is_no_space, locked, naming_full_disk, write_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.runs.folder import ABOUT_RUN, CONFIG, RESULT
from recbole_hyper.runs.run import run
from recbole_hyper.sweep.space import Settings
from recbole_hyper.training.checkpoint import CheckpointError, OtherDataError
from recbole_hyper.training.memory import give_back_freed

RECORD = "trial.json"
Status = Literal["finished", "failed", "stopped", "unfinished"]
FINISHED: Status = "finished"
FAILED: Status = "failed"
STOPPED: Status = "stopped"
UNFINISHED: Status = "unfinished"
OUT_OF_TIME = "the time budget ran out"
# files of the winner's trial from which its tested run continues
CONTINUED = (ABOUT_RUN, CONFIG, "checkpoint.pt", "model.safetensors", "train.csv")

Report = Callable[[int, float], None]


class StopTrialError(Exception):
    """What ``report`` of :func:`run_trial` raises to end the trial with a status and a reason, its arguments."""


@dataclass(frozen=True)
class Trial:
    """One setting and its outcome: the content of trial.json in the trial's folder."""

    number: int  # in the sweep, from 0
    settings: Settings  # values of the keys of the space
    status: Status = UNFINISHED  # stopped is what the scheduler did; a resume continues what is unfinished
    reason: str = ""  # why it failed, was stopped or was left unfinished
    score: float | None = None  # best validation score
    best_epoch: int | None = None  # epoch of the score, from 0
    epochs: int | None = None  # number of trained epochs
    valid: Mapping[str, float | None] = field(default_factory=dict)  # validation metrics
    seconds: float = 0.0  # in its process; a resumed trial counts its last session only
    peak_memory_bytes: int | None = None  # of the training process

    @property
    def name(self) -> str:
        """Name of the trial's folder: its number and a digest of its settings."""
        return f"{self.number:04d}-{digest(self.settings)}"


@dataclass(frozen=True)
class Plan:
    """What the trials of a sweep share: plain values, which are sent to the processes that run trials."""

    model: str
    dataset: str
    fixed: Mapping[str, Any]  # keys of every trial, without its settings
    folder: Path  # of the sweep, absolute
    threads: int = 1  # of each trial
    metric: str = "ndcg@10"  # of validation, in lower case
    bigger: bool = True  # whether a bigger score is better

    @property
    def trials(self) -> Path:
        """Folder with one folder per trial."""
        return self.folder / "trials"

    def config(self, settings: Settings) -> Config:
        """Return the configuration of a trial; ConfigError if it cannot run."""
        with quiet():
            return Config(self.model, self.dataset, config_dict=Exact({**self.fixed, **settings}))

    def train(self, folder: Path, keys: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Run with ``keys`` in ``folder``, or resume the run there, and return its result.

        A run that a killed process left in a state that cannot be resumed starts again. Trials that run side by side
        share the cores and the terminal, so a run is limited to the plan's threads and prints to a file.
        OtherDataError if the run in ``folder`` was trained on other data.
        """
        keys = {**self.fixed, **keys, "output_dir": str(folder), "n_threads": self.threads, "show_progress": False}
        with isolated(folder, self.threads):
            try:
                resume = (folder / CONFIG).is_file()
                return run(self.model, self.dataset, config_dict=Exact(keys, resume=resume), **options)
            except OtherDataError:
                raise
            except CheckpointError:
                clear(folder)
                return run(self.model, self.dataset, config_dict=Exact(keys, resume=False), **options)


def run_trial(plan: Plan, trial: Trial, report: Report | None = None) -> Trial:
    """Run or resume a trial, write its record and return it; a trial that has ended is not run again.

    While the trial runs, and after its process was killed, the record says "unfinished". An error inside the trial
    becomes the record's ``reason``, but a full disk is a NoSpaceError, and the trial stays unfinished. ``report`` is
    called with (epoch, validation score) after every validation.
    """
    folder = plan.trials / trial.name
    with naming_full_disk(f"no space left for trial {trial.name} in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # a process that outlived its killed driver may still be writing here
        with locked(folder / ".lock"):
            earlier = read_record(folder)
            if earlier is not None and earlier.status != UNFINISHED:
                return earlier
            start, trial = perf_counter(), Trial(trial.number, trial.settings)
            recorded(plan, trial, reason=OUT_OF_TIME)
            outcome = _outcome(plan, trial, folder, report)
            return recorded(plan, trial, **outcome, seconds=perf_counter() - start)


def recorded(plan: Plan, trial: Trial, **outcome: Any) -> Trial:
    """Write the record of a trial with its ``outcome``, and return it."""
    trial = replace(trial, **outcome)
    folder = plan.trials / trial.name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, asdict(trial))
    return trial


def _outcome(plan: Plan, trial: Trial, folder: Path, report: Report | None) -> dict[str, Any]:
    """Train, and return the fields of the trial's record."""
    keys = {**trial.settings, "save_data": False}
    try:
        result = plan.train(folder, keys, test=False, on_validation=report)
    except StopTrialError as stop:
        history, name = read_history(folder), f"valid_{plan.metric}"
        best = (max if plan.bigger else min)((row[name] for row in history if name in row), default=None)
        status, reason = stop.args
        return {"status": status, "reason": reason, "score": best, "epochs": len(history)}
    except Exception as error:
        if is_no_space(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        return {"status": FAILED, "reason": reason, "epochs": len(read_history(folder))}
    finally:
        # return freed memory to the system, so that the next trial measures its own peak
        gc.collect()
        give_back_freed()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    score = result["best_valid_score"]
    if score is None or not math.isfinite(score):
        return {"status": FAILED, "reason": f"the validation score is {score}", "epochs": result["epochs"]}
    values = {key: result[key] for key in ("best_epoch", "epochs", "valid", "peak_memory_bytes")}
    return {"status": FINISHED, "score": float(score), **values}


def read_record(folder: Path) -> Trial | None:
    """Return the trial that trial.json in ``folder`` describes, None if it is missing or damaged."""
    try:
        return TypeAdapter(Trial).validate_json((folder / RECORD).read_bytes(), strict=True)
    except (OSError, ValueError):  # pydantic's errors are ValueErrors
        return None


def read_records(plan: Plan) -> dict[str, Trial]:
    """Return the trials of a sweep by name, ordered by number."""
    trials = filter(None, (read_record(path.parent) for path in plan.trials.glob(f"*/{RECORD}")))
    return {trial.name: trial for trial in sorted(trials, key=lambda trial: trial.number)}


def read_history(folder: Path) -> list[dict[str, float]]:
    """Return the rows of train.csv without missing values; [] if there are none, or if the file is damaged."""
    try:
        rows = pd.read_csv(folder / "train.csv", index_col="epoch").astype(float).reset_index().to_dict("records")
    except (OSError, ValueError):
        return []
    return [{str(key): float(value) for key, value in row.items() if not math.isnan(value)} for row in rows]


def clear(folder: Path) -> None:
    """Remove everything from ``folder`` but the trial's lock and record."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (".lock", RECORD):
            path.unlink()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log no warnings in this block, such as about a key that only other trials read."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def isolated(folder: Path, threads: int) -> Iterator[None]:
    """Limit the libraries of this process to ``threads``, and redirect its output to output.txt in ``folder``."""
    with (
        threadpool_limits(limits=threads),
        open(folder / "output.txt", "a", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield


def run_final(plan: Plan, best: Trial) -> Path:
    """Train and test the winner ``best``, if that is not done, and return the folder of this run.

    The run continues the trial: it is not trained again, only refit if the protocol says so, and tested. It starts from
    scratch for models that keep state outside their weights, and if the trial's files are damaged.
    """
    folder, config = plan.folder / "best" / best.name, plan.config(best.settings)
    if (folder / RESULT).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    files = [plan.trials / best.name / name for name in CONTINUED]
    if issubclass(config.model_class, HyperRecommender) and all(path.is_file() for path in files):
        for path in files:
            shutil.copy2(path, folder)
    # trials save no data
    plan.train(folder, {**best.settings, "save_data": config["save_data"]})
    return folder
