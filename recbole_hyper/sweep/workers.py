"""Where trials run: Ray's processes, here or on a cluster, under the executor of all experiments; Ray also has ASHA."""

import contextlib
import errno
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from recbole_hyper.cluster import cluster, death, is_full_disk, short
from recbole_hyper.errors import ConfigError, NoSpaceError
from recbole_hyper.experiment.executor import DiedError, Executor
from recbole_hyper.experiment.experiment import Experiment, Run
from recbole_hyper.sweep.trial import FAILED, Plan, StopTrialError, Trial, close_trial, run_trial

SCHEDULERS = ("none", "asha")


@dataclass(frozen=True)
class Workers:
    """Where trials run: each has ``cpu`` cores, which are also its threads, and the share ``gpu`` of a GPU.

    At most ``max_concurrent`` run at a time, None for as many as fit. ``address`` is a running Ray cluster, whose
    machines must share the folder of the sweep; None starts Ray on this machine.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    max_concurrent: int | None = None
    address: str | None = None

    @property
    def resources(self) -> dict[str, float]:
        """What Ray reserves for each trial."""
        return {"num_cpus": self.cpu, "num_gpus": self.gpu}

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield the ray module, connected to a cluster that has the resources of a trial.

        ConfigError if there is none, NoSpaceError for a full disk, ConnectionError if a process of Ray died.
        """
        with cluster(self.address) as ray:
            total = ray.cluster_resources()
            for name, wanted in (("CPU", self.cpu), ("GPU", self.gpu)):
                if wanted > (have := total.get(name, 0)):
                    raise ConfigError(f"--resources needs {wanted:g} {name} per trial; the cluster has {have:g} in all")
            try:
                yield ray
            except Exception as error:
                if is_full_disk(error):
                    raise NoSpaceError(errno.ENOSPC, "the disk is full") from error
                if (died := death(error)) is not None:
                    raise _connection_error(short(died)) from error
                raise


def _connection_error(text: str) -> ConnectionError:
    advice = "continue with --resume=True; if memory ran out, use a smaller --max_concurrent"
    return ConnectionError(f"a process of Ray died: {text}; {advice}")


class Asha:
    """Ray's ASHA scheduler, which the processes of all trials ask whether to stop."""

    def __init__(self, mode: str, max_epochs: int) -> None:
        from ray.tune.schedulers import ASHAScheduler

        # one more than the last epoch, so that the limit itself stops nothing
        self.scheduler = ASHAScheduler("epoch", "score", mode, max_t=max_epochs + 2)
        self.names: set[str] = set()

    def stops(self, name: str, epoch: int, score: float) -> bool:
        """Return whether the trial ``name`` stops with ``score`` after ``epoch`` epochs."""
        trial: Any = SimpleNamespace(trial_id=name)
        tuner: Any = None  # not used by this scheduler
        if name not in self.names:
            self.names.add(name)
            self.scheduler.on_trial_add(tuner, trial)
        result = {"epoch": epoch, "score": score}
        return bool(self.scheduler.on_trial_result(tuner, trial, result) == self.scheduler.STOP)


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
    """Run ``trials`` until there are no more or ``time_budget`` seconds have passed; call ``on_end`` with each.

    The ``scheduler`` "asha" stops trials that fall behind, which train for at most ``max_epochs`` epochs. A trial that
    is running when time is up, or at Ctrl-C, stays unfinished. Raises the errors of :meth:`Workers.connected`.
    """
    with workers.connected() as ray:
        asha = _actor(ray, Asha, "max" if plan.bigger else "min", max_epochs) if scheduler == "asha" else None
        executor = Executor(workers.max_concurrent, lambda: contextlib.nullcontext(ray), workers.resources)
        results = executor.run(_start(plan, asha), trials, time_budget=time_budget, stop=True)
        with contextlib.closing(results):  # if ``on_end`` fails, the trials stop while Ray is connected
            for trial, ended in results:
                on_end(close_trial(plan, trial, FAILED, str(ended)) if isinstance(ended, DiedError) else ended)


def run_each(runs: Sequence[Run], start: Callable[[Run], None], workers: Workers) -> None:
    """Train the ``runs`` that are not finished, in parallel; each has the resources of a trial.

    ConnectionError if the process of a run died too often.
    """
    experiment = Experiment(runs, len(runs), workers.connected, resources=workers.resources, progress=False)
    for text in experiment.execute(start).failed.values():
        raise _connection_error(text)


def _actor(ray: Any, kind: type, *arguments: Any) -> Any:
    """Start an actor on the machine of the driver, so that it lives as long; it takes no core of a trial."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(kind).remote(*arguments)


def _start(plan: Plan, asha: Any) -> Callable[[Trial], Trial]:
    """Return the function that runs a trial in a process of Ray; ``asha`` is the actor of the scheduler or None."""

    def start(trial: Trial) -> Trial:
        def report(epoch: int, score: float | None) -> None:
            import ray

            worst = -math.inf if plan.bigger else math.inf
            score = score if score is not None and math.isfinite(score) else worst
            if asha is not None and ray.get(asha.stops.remote(trial.name, epoch + 1, score)):
                raise StopTrialError

        return run_trial(plan, trial, report)

    return start
