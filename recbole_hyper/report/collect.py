"""Read finished runs and sweeps from their folders."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from recbole_hyper.evaluation.results import costs, protocol_text
from recbole_hyper.files import read_json, validated
from recbole_hyper.report.differences import canonical, read_settings
from recbole_hyper.sweep.folder import OUTCOME, REQUEST, read_request
from recbole_hyper.sweep.trial import FINISHED, RECORD, read_history, read_record

RUN, TRIAL, FINAL = "run", "trial", "final"

Numbers = dict[str, float | None]


class Result(BaseModel, strict=True):
    """The fields of result.json that a report reads."""

    model: str
    dataset: str
    config: dict[str, Any]
    protocol: str | None = None
    commit: str | None = None
    data_fingerprint: str | None = None
    eval_args: dict[str, Any] | None = None
    versions: dict[str, str] | None = None
    valid: Numbers | None = None
    test: Numbers | None = None
    seconds: Numbers | None = None
    peak_memory_bytes_per_phase: Numbers | None = None
    peak_memory_bytes: float | None = None
    best_valid_score: float | None = None
    parameters: float | None = None
    epochs: float | None = None
    seed: int | None = None
    curvature: float | None = None


class Best(BaseModel):
    """The winner of a sweep."""

    settings: dict[str, Any] = {}


class SweepOutcome(BaseModel):
    """The fields of sweep.json that a report reads."""

    trials: dict[str, int] = {}
    best: Best | None = None
    valid_metric: str = "score"
    valid_metric_bigger: bool = True


class ReportError(ValueError):
    """The folders have nothing to report on."""


@dataclass(frozen=True)
class Entry:
    """A run, a trial of a sweep, or a tested run of a sweep's winner."""

    folder: Path
    kind: str  # "run", "trial" or "final"
    result: dict[str, Any]  # content of result.json; empty if there is none
    score: float | None  # best validation score
    history: list[dict[str, float]]  # rows of train.csv
    status: str = FINISHED  # of a trial
    settings: dict[str, Any] = field(default_factory=dict)  # values of the keys that its sweep varies
    reason: str = ""  # why a trial failed

    @property
    def valid_metric(self) -> str:
        """The metric that the epoch was selected by."""
        return str(self.result.get("config", {}).get("valid_metric", "")).lower()

    @property
    def identity(self) -> str:
        """A text that is equal for runs that differ only in their seed and folder."""
        data = [self.result.get(key) for key in ("model", "dataset", "data_fingerprint")]
        return canonical([data, protocol_text(self.result), self.read])

    @property
    def read(self) -> dict[str, Any]:
        """The settings that decide what the model learns."""
        return read_settings(str(self.result.get("model")), self.result.get("config", {}))

    @property
    def model(self) -> str:
        """The model's name, with its loss if the sweep varies the loss."""
        name = str(self.result.get("model"))
        return f"{name} ({self.settings['loss_type']})" if "loss_type" in self.settings else name

    @property
    def costs(self) -> dict[str, float | None]:
        """Training time and peak memory, as column names and values of a report."""
        run_costs = costs(self.result)
        return {"train seconds": run_costs["train_seconds"], "peak MiB": run_costs["peak_memory_mib"]}


@dataclass(frozen=True)
class Sweep:
    """A sweep and its trials."""

    folder: Path
    request: dict[str, Any]
    outcome: SweepOutcome | None  # None until the sweep ends
    trials: list[Entry]
    keys: list[str]  # keys that the space varies

    @property
    def bigger(self) -> bool:
        """Whether a bigger score is better."""
        return self.outcome is None or self.outcome.valid_metric_bigger


@dataclass(frozen=True)
class Collection:
    """All runs and sweeps in some folders."""

    entries: list[Entry]
    sweeps: list[Sweep]
    problems: list[str] = field(default_factory=list)  # one line per unreadable file

    def of(self, *kinds: str) -> list[Entry]:
        """Return the entries of these kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]


def collect(folders: Sequence[str | Path]) -> Collection:
    """Find runs (``result.json``) and sweeps (``sweep.yaml``) in and below ``folders``; ReportError if none."""
    collection = Collection([], [])
    for root in map(Path, folders):
        if not root.is_dir():
            raise ReportError(f"{str(root)!r} is not a folder; name folders of runs or sweeps, or a folder above them")
        for name, subfolders, files in os.walk(root):
            subfolders.sort()
            folder = Path(name)
            with _noted(collection.problems):
                if REQUEST in files:
                    subfolders.clear()
                    _add_sweep(folder, collection)
                elif "result.json" in files and "config.yaml" in files:
                    subfolders.clear()
                    collection.entries.append(run_entry(folder))
    entries = list({entry.folder.resolve(): entry for entry in collection.entries}.values())
    if not entries:
        raise ReportError(
            f"no run was found in or below {', '.join(map(str, folders))}: a run has result.json and config.yaml, a "
            f"sweep has {REQUEST}" + "".join(f"; {line}" for line in collection.problems[:5])
        )
    sweeps = list({sweep.folder.resolve(): sweep for sweep in collection.sweeps}.values())
    return Collection(entries, sweeps, list(dict.fromkeys(collection.problems)))


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Turn an error about an unreadable file into a line of ``problems``."""
    try:
        yield
    except (ValueError, OSError) as error:
        problems.append(f"skipped: {' '.join(str(error).split())[:300]}")


def run_entry(folder: Path, kind: str = RUN, settings: dict[str, Any] | None = None) -> Entry:
    """Return the finished run in ``folder``; ValueError, which names the file, if its result cannot be read."""
    result = read_result(folder / "result.json")
    return Entry(folder, kind, result, result.get("best_valid_score"), read_history(folder), settings=settings or {})


def _add_sweep(folder: Path, collection: Collection) -> None:
    """Add the sweep in ``folder``, its trials and the tested runs of its winner; ValueError if it is damaged."""
    request, outcome, file = read_request(folder), None, folder / OUTCOME
    if file.is_file():
        outcome = validated(SweepOutcome, read_json(file), f"{file} is not the outcome of a sweep")
    trials: list[Entry] = []
    for path in sorted((folder / "trials").glob(f"*/{RECORD}")):
        with _noted(collection.problems):
            record, file = read_record(path.parent), path.with_name("result.json")
            if record is None:
                raise ValueError(f"{path} is not the record of a trial")
            # a trial that did not finish has no result
            result = read_result(file) if file.is_file() else {}
            details = record.status, dict(record.settings), record.reason
            trials.append(Entry(path.parent, TRIAL, result, record.score, read_history(path.parent), *details))
    collection.sweeps.append(
        Sweep(folder, request, outcome, trials, list(dict.fromkeys(key for trial in trials for key in trial.settings)))
    )
    collection.entries.extend(trials)
    best = outcome.best.settings if outcome and outcome.best else {}
    for path in sorted((folder / "best").glob("*/result.json")):
        with _noted(collection.problems):
            collection.entries.append(run_entry(path.parent, FINAL, dict(best)))


def read_result(path: Path) -> dict[str, Any]:
    """Read the result of a run; ConfigError, which names the file, if it is damaged or something else."""
    result = read_json(path)
    validated(Result, result, f"{path} is not the result of a run")
    return {name: value for name, value in result.items() if value is not None}
