"""One trial: train and validate one setting in its own folder, record how that ended; and the winner's tested run."""

import contextlib
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

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.files import digest, is_no_space, locked, naming_full_disk, read_json, write_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import is_number, matches
from recbole_hyper.runs.run import run
from recbole_hyper.sweep.space import Settings
from recbole_hyper.training.checkpoint import CheckpointError, OtherDataError
from recbole_hyper.training.memory import give_back_freed
from recbole_hyper.training.shared import shared_data

RECORD = "trial.json"
FINISHED, FAILED, STOPPED, UNFINISHED = "finished", "failed", "stopped", "unfinished"
# what a tested run takes from the winner's trial
CONTINUED = ("config.yaml", "checkpoint.pt", "model.safetensors", "train.csv")

Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Trial:
    """One setting and how it ended, which trial.json in its folder holds."""

    number: int  # in the sweep, from 0
    settings: Settings  # values of the keys of the space
    status: str = UNFINISHED  # finished; failed; stopped by the scheduler; unfinished (a resume continues it)
    reason: str = ""  # why it failed, was stopped or was left unfinished
    score: float | None = None  # best validation score
    best_epoch: int | None = None  # of the score, from 0
    epochs: int | None = None  # trained
    valid: Mapping[str, float] = field(default_factory=dict)  # validation metrics
    seconds: float = 0.0  # in its process; earlier sessions of a resumed trial are not counted
    peak_memory_bytes: int | None = None  # of the training process

    @property
    def name(self) -> str:
        """Name of the trial's folder: its number and a digest of its settings."""
        return f"{self.number:04d}-{digest(self.settings)}"

    def content(self) -> dict[str, Any]:
        """Return the content of trial.json."""
        return {"number": self.number, "name": self.name, **asdict(self)}


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
    def mode(self) -> Literal["max", "min"]:
        """Direction of the score, in Ray's words."""
        return "max" if self.bigger else "min"

    def config(self, settings: Settings, **more: Any) -> Config:
        """Bind the configuration of a trial; raises ConfigError where it cannot run."""
        with quiet():
            return Config(self.model, self.dataset, config_dict={**self.fixed, **settings, **more})

    def data(self, config: Config) -> Any:
        """Return the data that the trials with the data keys of ``config`` share, and its split."""
        return shared_data(config, Path(self.folder) / "data")

    def train(self, folder: Path, keys: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Return the result of the run with ``keys`` in ``folder``, which continues one that has begun there.

        A run that cannot be resumed, as its process was killed while it wrote, is removed and started again. It takes
        no more than the plan's threads, and what it prints goes to a file, since trials side by side share the cores
        and the terminal. OtherDataError for a run that was trained on other data.
        """
        keys = {**self.fixed, **keys, "output_dir": str(folder), "n_threads": self.threads, "show_progress": False}
        with isolated(folder, self.threads):
            return resume_or_restart(
                folder, lambda resume: run(self.model, self.dataset, config_dict={**keys, "resume": resume}, **options)
            )


def run_trial(plan: Plan, trial: Trial, report: Report | None = None) -> Trial:
    """Run one trial, or go on with it, and return how it ended, which is written; an ended trial is not run again.

    While it runs, its record says "unfinished", which is what a killed process leaves. ``report`` is called with
    (epoch, validation score) after every validation. Errors inside the trial end up in the record's ``reason``.

    Raises:
        NoSpaceError: the disk is full; the trial stays unfinished.
    """
    folder = plan.trials / trial.name
    with naming_full_disk(f"no space left for trial {trial.name} in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # a process that outlived its killed driver may still be writing here
        with locked(folder / ".lock"):
            before = read_record(folder)
            if before is not None and before.status != UNFINISHED:
                return before
            write_json(folder / RECORD, Trial(trial.number, trial.settings).content())
            ended = _run(plan, trial, folder, report)
            write_json(folder / RECORD, ended.content())
            return ended


def _run(plan: Plan, trial: Trial, folder: Path, report: Report | None) -> Trial:
    start = perf_counter()

    def ended(status: str, **values: Any) -> Trial:
        return Trial(trial.number, trial.settings, status, seconds=perf_counter() - start, **values)

    try:
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
    keys = {**trial.settings, "save_data": False}
    return plan.train(folder, keys, test=False, read=plan.data, on_validation=report)


def resume_or_restart(folder: Path, attempt: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
    """Return ``attempt(resume)``; a run in ``folder`` that cannot be resumed is removed and started again."""
    try:
        return attempt((folder / "config.yaml").is_file())
    except OtherDataError:
        raise
    except CheckpointError:
        clear(folder)
        return attempt(False)


def read_record(folder: Path) -> Trial | None:
    """Read trial.json; None where it is missing, cannot be read, or holds what no trial writes."""
    names = {entry.name for entry in fields(Trial)}
    try:
        trial = Trial(**{key: value for key, value in read_json(folder / RECORD).items() if key in names})
    except (OSError, ValueError, TypeError):
        return None
    typed: list[tuple[str, Any]] = [
        *(("int", trial.number), ("str", trial.reason), ("dict", trial.settings), ("dict", trial.valid)),
        *(("float", trial.seconds), ("float or ~", trial.score)),
        (f"{FINISHED}, {FAILED}, {STOPPED} or {UNFINISHED}", trial.status),
    ]
    return trial if all(matches(values, value) for values, value in typed) else None


def read_records(plan: Plan) -> dict[str, Trial]:
    """Return the trials of a sweep by name, in the order of their numbers."""
    trials = filter(None, (read_record(path.parent) for path in plan.trials.glob(f"*/{RECORD}")))
    return {trial.name: trial for trial in sorted(trials, key=lambda trial: trial.number)}


def read_history(folder: Path) -> list[dict[str, float]]:
    """Read train.csv; values that are no numbers, and rows without an epoch, are left out."""
    try:
        table = pd.read_csv(folder / "train.csv", dtype=str, encoding_errors="replace", on_bad_lines="skip")
        numbers = table.apply(pd.to_numeric, errors="coerce")
        rows = numbers[np.isfinite(numbers["epoch"])].to_dict("records")
    except (OSError, ValueError, KeyError):
        return []
    return [{str(key): float(value) for key, value in row.items() if not math.isnan(value)} for row in rows]


def close_trial(plan: Plan, trial: Trial, status: str, reason: str) -> Trial:
    """Write and return a trial that did not end by itself, with the best score of its train.csv."""
    folder = plan.trials / trial.name
    history = read_history(folder)
    name = f"valid_{plan.metric}"
    scores = {int(row["epoch"]): row[name] for row in history if math.isfinite(row.get(name, math.nan))}
    best = (max if plan.bigger else min)(scores, key=scores.__getitem__, default=None)
    ended = Trial(
        trial.number,
        trial.settings,
        status,
        reason,
        score=None if best is None else scores[best],
        best_epoch=best,
        epochs=len(history),
        seconds=sum(row.get("train_seconds", 0.0) + row.get("valid_seconds", 0.0) for row in history),
    )
    write_json(folder / RECORD, ended.content())
    return ended


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
    """Limit this process to ``threads``, and write what is printed to output.txt in ``folder``."""
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


def final_folder(plan: Plan, best: Trial, seed: int) -> Path:
    """Return the folder of the winner's tested run with ``seed``."""
    return Path(plan.folder) / "best" / f"{best.name}-seed-{seed}"


def read_final(folder: Path) -> dict[str, Any]:
    """Return the test metrics of a tested run; ConfigError for a damaged one."""
    tested = read_json(folder / "result.json").get("test")
    if not isinstance(tested, dict) or not all(is_number(value) for value in tested.values()):
        raise ConfigError(f"{folder / 'result.json'} is damaged: 'test' holds no numbers; remove {folder} and resume")
    return tested


def run_final(plan: Plan, best: Trial, seed: int, same_seed: bool) -> None:
    """Run the winner with its test part, in :func:`final_folder`.

    With the trial's own seed, the run continues the trial: one that finished is tested (after the refit, where the
    protocol has one) without a new training, another is trained to its end. With other seeds, for models that keep
    their state outside the weights, and for a damaged trial, the winner is trained from the start.
    """
    folder, config = final_folder(plan, best, seed), plan.config(best.settings, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    begun = [plan.trials / best.name / name for name in CONTINUED]
    if same_seed and issubclass(config.model_class, HyperRecommender) and all(path.is_file() for path in begun):
        for path in begun:
            shutil.copy2(path, folder)
    # trials save no data
    plan.train(folder, {**best.settings, "seed": seed, "save_data": config["save_data"]})
