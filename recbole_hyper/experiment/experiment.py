"""An experiment is a list of runs, which the executor trains: in this process, in several, or on a Ray cluster.

``run --seeds``, ``compare`` and ``reproduce`` plan their runs before the first one starts.
Each run has its own folder, so the same command continues after a kill: finished runs are not repeated, and a stopped
run resumes. The trials of a sweep, which a search may propose one by one, go to the executor themselves.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from recbole_hyper.errors import ConfigError
from recbole_hyper.experiment.executor import Executor
from recbole_hyper.files import read_json, write_yaml
from recbole_hyper.processes import python_command
from recbole_hyper.runs.folder import RESULT
from recbole_hyper.threads import processors

# trains a run and returns its error, None for success
Start = Callable[["Run"], str | None]
OUT_OF_TIME = "the time budget ran out; repeat the command to continue"
# the line that a run logs for an epoch
_EPOCH = re.compile(r"epoch \d+ of 0 to \d+\b.*")


@dataclass(frozen=True)
class Run:
    """One run: a model with its keys, in its own folder.

    ``seed`` is None if each model has one run, ``keys`` is None if the run is finished.
    """

    model: Any
    dataset: str | None
    seed: int | None
    keys: Mapping[str, Any] | None
    folder: Path
    name: str = ""  # of the model or row, "" if all runs have the same

    @property
    def label(self) -> str:
        """The run in words: "SASRecCE, seed 3"."""
        return ", ".join(filter(None, [self.name, "" if self.seed is None else f"seed {self.seed}"]))

    @property
    def result(self) -> Path:
        """The file with its result."""
        return self.folder / RESULT


@dataclass(frozen=True)
class Outcome:
    """The results (content of result.json) by name and seed, and a message for each name that failed."""

    results: dict[str, dict[int | None, dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Runs, and how they are executed.

    At most ``processes`` are trained at a time. ``connect`` yields ray, connected to a cluster whose machines share the
    folders of the runs; None trains here. After ``time_budget`` seconds no run is started; None sets no limit.
    """

    runs: Sequence[Run]
    processes: int = 1
    connect: Callable[[], AbstractContextManager[Any]] | None = None
    time_budget: float | None = None

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ConfigError(f"max_concurrent={self.processes}: at least 1 is needed")
        if self.time_budget is not None and not 0 < self.time_budget < float("inf"):
            raise ConfigError(f"time_budget={self.time_budget}: seconds above 0 are expected")

    @property
    def threads(self) -> int:
        """How many threads each run takes: they share the cores."""
        return max(1, processors() // self.processes)

    @cached_property
    def progress(self) -> "Progress":
        """What is printed about these runs."""
        return Progress(self.runs)

    def execute(self, start: Start) -> Outcome:
        """Train every run that is not finished with ``start`` and return all results.

        A name fails if one of its runs fails, and the other runs go on. An error that ``start`` raises ends all.
        """
        shown = self.progress
        left = {run.folder: run for run in self.runs if run.keys is not None}
        failed: dict[str, str] = {}
        executor = Executor(self.processes, self.connect, {"num_cpus": 1})
        for run, result in executor.run(start, shown.starting(list(left.values())), time_budget=self.time_budget):
            del left[run.folder]
            shown.n_done += 1
            if result is not None:
                failed.setdefault(run.name, str(result) if run.seed is None else f"seed {run.seed}: {result}")
                print(f"{run.label} failed: {result}", file=sys.stderr, flush=True)
        failed = {run.name: OUT_OF_TIME for run in left.values()} | failed
        results: dict[str, dict[int | None, dict[str, Any]]] = {}
        for run in self.runs:
            if run.name not in failed:
                results.setdefault(run.name, {})[run.seed] = read_json(run.result)
        return Outcome(results, failed)


class Progress:
    """Prints which runs are finished or start, their epochs, and the time left at the pace of this session."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.numbers = {run.folder: f"[{number}/{len(runs)}] {run.label}" for number, run in enumerate(runs, 1)}
        self.begun, self.n_done, self.n_todo = perf_counter(), 0, sum(run.keys is not None for run in runs)
        for run in runs:
            if run.keys is None:
                self.say(run, f": finished before, {run.result}")

    def starting(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Yield the ``runs``, and print a line when one is taken."""
        for run in runs:
            text = ": continues for more epochs" if run.result.is_file() else ""
            if self.n_done:
                left = self.n_todo - self.n_done
                text += f"  ({left} left, about {in_minutes((perf_counter() - self.begun) / self.n_done * left)})"
            self.say(run, text)
            yield run

    def note(self, run: Run, line: str) -> None:
        """Print a line of the log of ``run`` if it is that of an epoch."""
        if (found := _EPOCH.search(line)) is not None:
            self.say(run, f": {found[0]}")

    def say(self, run: Run, text: str) -> None:
        """Print a line about a run."""
        print(f"{self.numbers[run.folder]}{text}", flush=True)


def folder_name(name: str) -> str:
    """Return the name of the folder for a row of a table: "w/o BIT" is "w-o BIT"."""
    return name.replace("/", "-")


def run_alone(
    model: str,
    dataset: str | None,
    keys: Path,
    threads: int | None = None,
    note: Callable[[str], None] | None = None,
) -> str | None:
    """Train and test one model with the keys of a YAML file in its own process; return its error, None for success.

    The process measures the peak memory of this model alone, takes at most ``threads`` threads, and ends with this one,
    even if this one is killed, so that it does not keep the lock of its folder. ``note`` gets each line of its log
    while it trains; what it prints is printed at its end.
    """
    command = [*python_command("recbole_hyper"), "run", f"--model={model}", f"--dataset={dataset}"]
    limits = {} if threads is None else dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    environment = {**os.environ, **limits, "RECBOLE_HYPER_ENDS_WITH_INPUT": "1"}
    lines: list[str] = []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as printed,
        subprocess.Popen(
            [*command, f"--config_files={keys}"],
            stdin=subprocess.PIPE,  # never written to: it closes when this process ends
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.rstrip())
            if note is not None:
                note(line.rstrip())
        process.wait()
        printed.seek(0)
        if text := printed.read().rstrip():
            print(text, flush=True)
    if process.returncode == 0:
        return None
    lines = [line for line in lines if line]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [f"exit status {process.returncode}"])[-1]


def keys_file(run: Run, folder: Path) -> Path:
    """Write the keys of ``run`` to a YAML file in ``folder`` and return its path."""
    path = folder / f"{folder_name(run.name)}{'' if run.seed is None else f'-seed-{run.seed}'}.yaml"
    write_yaml(path, dict(run.keys or {}))
    return path


def in_minutes(seconds: float) -> str:
    """Return a time in words: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
