"""Trials one after another in this process: a sweep without Ray, so that most of its tests take seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from recbole_hyper.experiment.experiment import Experiment, Run
from recbole_hyper.sweep.trial import Plan, Trial, run_trial
from recbole_hyper.sweep.workers import Workers


class TimeUpError(BaseException):
    """Ends a trial where Ray would stop its process."""


def run_trials(
    plan: Plan,
    trials: Iterator[Trial],
    on_end: Callable[[Trial], None],
    workers: Workers,
    *,
    scheduler: str = "none",
    max_epochs: int = 1,
    time_budget: float | None = None,
) -> None:
    """Stand in for :func:`recbole_hyper.sweep.workers.run_trials`, without a scheduler."""
    assert scheduler in ("none", "asha")
    start = perf_counter()

    def over() -> bool:
        return time_budget is not None and perf_counter() - start > time_budget

    def report(epoch: int, score: float) -> None:
        if over():
            raise TimeUpError

    while not over() and (trial := next(trials, None)) is not None:
        try:
            on_end(run_trial(plan, trial, report))
        except TimeUpError:
            return


def run_each(runs: Sequence[Run], start: Callable[[Run], None], workers: Workers) -> None:
    """Stand in for :func:`recbole_hyper.sweep.workers.run_each`."""
    Experiment(runs, progress=False).execute(start)
