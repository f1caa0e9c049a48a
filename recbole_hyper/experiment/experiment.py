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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from recbole_hyper.errors import positive_int
from recbole_hyper.experiment.executor import Executor
from recbole_hyper.files import read_json, require_free, write_yaml
from recbole_hyper.processes import python_command
from recbole_hyper.runs.folder import CONFIG, RESULT
from recbole_hyper.threads import processors
from recbole_hyper.training.progress import in_time

# trains a run and returns its error, None for success
Start = Callable[["Run"], str | None]
Connect = Callable[[], AbstractContextManager[Any]]
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


# results (content of result.json) by name and seed
Results = dict[str, dict[int | None, dict[str, Any]]]


class Experiment:
    """Runs, how they are executed, and what is printed about them: which starts, its epochs, and the time left.

    At most ``processes`` are trained at a time. ``connect`` yields ray, connected to a cluster whose machines share the
    folders of the runs; None trains here.
    """

    def __init__(self, runs: Sequence[Run], processes: int = 1, connect: Connect | None = None) -> None:
        self.runs = runs
        self.executor = Executor(positive_int("max_concurrent", processes), connect, {"num_cpus": 1})
        self.threads = max(1, processors() // processes)  # of each run: they share the cores
        self.labels = {run.folder: f"[{number}/{len(runs)}] {run.label}" for number, run in enumerate(runs, 1)}
        self.left = {run.folder: run for run in runs if run.keys is not None}
        self.n_missing = len(self.left)

    def execute(self, start: Start) -> tuple[Results, dict[str, str]]:
        """Train every run that is not finished with ``start``; return all results, and a message by failed name.

        A name fails if one of its runs fails, and the other runs go on. An error that ``start`` raises ends all.
        """
        failed: dict[str, str] = {}
        for run in self.runs:
            if run.keys is None:
                self._say(run, f": finished before, {run.folder / RESULT}")
        for run, error in self.executor.run(start, self._starting()):
            del self.left[run.folder]
            if error is not None:
                failed.setdefault(run.name, str(error) if run.seed is None else f"seed {run.seed}: {error}")
                print(f"{run.label} failed: {error}", file=sys.stderr, flush=True)
        results: Results = {}
        for run in self.runs:
            if run.name not in failed:
                results.setdefault(run.name, {})[run.seed] = read_json(run.folder / RESULT)
        return results, failed

    def _starting(self) -> Iterator[Run]:
        """Yield the runs that are not finished, and print a line when one is taken."""
        begun = perf_counter()
        for run in list(self.left.values()):
            text = ": continues for more epochs" if (run.folder / RESULT).is_file() else ""
            self._say(run, text + time_left(begun, self.n_missing - len(self.left), len(self.left)))
            yield run

    def note(self, run: Run, line: str) -> None:
        """Print a line of the log of ``run`` if it is that of an epoch."""
        if (found := _EPOCH.search(line)) is not None:
            self._say(run, f": {found[0]}")

    def _say(self, run: Run, text: str) -> None:
        print(f"{self.labels[run.folder]}{text}", flush=True)


def require_own_table(folder: Path, name: str) -> None:
    """Raise ConfigError if ``folder`` is a file, or has ``name``.csv but no run that this table can be of."""
    has_run = any(next(folder.glob(f"{place}/{CONFIG}"), None) for place in ("*", "*/*"))
    require_free(folder, [] if has_run else [f"{name}.csv"], "the table")


def folder_name(name: str) -> str:
    """Return the name of the folder for a row of a table: "w/o BIT" is "w-o BIT"."""
    return name.replace("/", "-")


def run_alone(
    model: str, dataset: str | None, keys: Path, threads: int | None = None, note: Callable[[str], None] | None = None
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
    """Write the keys of ``run`` to a hidden YAML file in ``folder`` and return its path."""
    path = folder / f".{folder_name(run.name)}{'' if run.seed is None else f'-seed-{run.seed}'}.yaml"
    write_yaml(path, dict(run.keys or {}))
    return path


def time_left(begun: float, n_done: int, n_left: int) -> str:
    """Return what remains at the pace since ``begun``: "  (3 left, about 12 min)"; "" if nothing is done or left."""
    if not (n_done and n_left):
        return ""
    return f"  ({n_left} left, about {in_time((perf_counter() - begun) / n_done * n_left)})"
