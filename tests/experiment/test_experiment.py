"""The executor: order, threads, failures, what a time budget leaves, and progress."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from recbole_hyper.cluster import cluster as connected
from recbole_hyper.errors import ConfigError
from recbole_hyper.experiment import experiment
from recbole_hyper.experiment.executor import Executor
from recbole_hyper.experiment.experiment import Experiment, Run, time_left
from recbole_hyper.files import write_json
from tests.raising import refused


def planned(folder: Path, names: str, done: str = "") -> list[Run]:
    runs = []
    for name in names:
        runs.append(Run(name, "data", None, None if name in done else {"epochs": 1}, folder / name, name))
        if name in done:
            write_json(runs[-1].folder / "result.json", {"model": name})
    return runs


def finish(run: Run) -> None:
    write_json(run.folder / "result.json", {"model": run.model})


def test_what_is_finished_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = []

    def start(run: Run) -> str | None:
        started.append(run.name)
        if run.name == "c":
            return "it broke"
        finish(run)
        return None

    results, failed = Experiment(planned(tmp_path, "abcd", done="b")).execute(start)
    assert started == ["a", "c", "d"]
    assert failed == {"c": "it broke"}
    assert results == {name: {None: {"model": name}} for name in "abd"}
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == [f"[2/4] b: finished before, {tmp_path / 'b' / 'result.json'}", "[1/4] a"]
    assert "[3/4] c  (2 left, about " in printed.out
    assert "c failed: it broke" in printed.err


LOG = "19:38:01 epoch {} of 0 to 3: loss 6.8, 5.0 s, ndcg@10 0.0326 (best 0.0326, epoch 0), at most 15 s left"


def test_each_epoch_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As compare shows them: each run notes two of its four epochs."""
    experiment = Experiment(planned(tmp_path, "ab"))

    def start(run: Run) -> None:
        for line in ("device: cpu", LOG.format(0), LOG.format(1)):
            experiment.note(run, line)
        finish(run)

    experiment.execute(start)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["[1/2] a", *(f"[1/2] a: {LOG.format(number).split(maxsplit=1)[1]}" for number in (0, 1))]
    assert lines[3].startswith("[2/2] b  (1 left, about ")
    assert len(lines) == 6


def test_runs_are_trained_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)

    def start(run: Run) -> None:
        both.wait()  # passes only if two runs are here at once
        finish(run)

    results, _ = Experiment(planned(tmp_path, "abcd"), processes=2).execute(start)
    assert list(results) == list("abcd")


def test_a_task_is_taken_when_the_earlier_results_are_out() -> None:
    """As a search must know a score before it proposes the next trial."""
    events: list[str] = []

    def tasks() -> Iterator[int]:
        for number in range(3):
            events.append(f"take {number}")
            yield number

    for number, doubled in Executor().run(lambda task: 2 * task, tasks()):
        events.append(f"end {number} {doubled}")
    assert events == ["take 0", "end 0 0", "take 1", "end 1 2", "take 2", "end 2 4"]
    with pytest.raises(KeyError):
        list(Executor(2).run({0: 1}.__getitem__, iter([0, 1])))


def test_runs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "processors", lambda: 8)
    assert [Experiment([], n).threads for n in (1, 2, 3, 16)] == [8, 4, 2, 1]


def test_no_process_is_refused() -> None:
    with refused(ConfigError, "max_concurrent=0"):
        Experiment([], 0)


@pytest.mark.parametrize(("seconds", "words"), [(5, "5.0 s"), (90, "1 min 30 s")])
def test_times_as_one_reads_them(seconds: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "perf_counter", lambda: seconds)
    assert time_left(0.0, 2, 2) == f"  (2 left, about {words})"
    assert time_left(0.0, 0, 2) == time_left(0.0, 2, 0) == ""


@pytest.mark.slow
def test_a_cluster_trains_the_runs(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:

        def start(run: Run) -> str | None:
            if run.name == "b":
                return "it broke"
            run.folder.mkdir(parents=True)
            (run.folder / "result.json").write_text(f'{{"model": "{run.model}"}}')
            return None

        results, failed = Experiment(planned(tmp_path, "abc"), 3, partial(connected, cluster.address)).execute(start)
    finally:
        cluster.shutdown()
    assert failed == {"b": "it broke"}
    assert list(results) == ["a", "c"]
