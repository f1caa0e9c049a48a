"""Where trials run: in this process if they run one by one, else in processes of Ray, here or on a cluster."""

import contextlib
from collections.abc import Callable, Iterator
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import BaseModel, NonNegativeFloat, PositiveFloat, PositiveInt

from recbole_hyper.cluster import cluster, death, short
from recbole_hyper.errors import ConfigError
from recbole_hyper.experiment.executor import DiedError, Executor
from recbole_hyper.sweep.trial import (
    FAILED,
    OUT_OF_TIME,
    STOPPED,
    UNFINISHED,
    Plan,
    StopTrialError,
    Trial,
    recorded,
    run_trial,
)
from recbole_hyper.threads import processors


class Options(BaseModel, allow_inf_nan=False):
    """The options of a sweep that need no configuration.

    Each trial has ``cpu`` cores, which are also its threads, and the share ``gpu`` of a GPU. At most ``max_concurrent``
    run at a time, None for as many as fit. ``ray_address`` is a running Ray cluster, whose machines must share the
    folder of the sweep; None starts Ray on this machine.
    """

    search: Literal["grid", "random", "optuna"] = "grid"
    scheduler: Literal["none", "asha"] = "none"
    num_samples: PositiveInt | None = None
    time_budget: PositiveFloat | None = None
    max_concurrent: PositiveInt | None = None
    cpu: PositiveFloat = 1.0
    gpu: NonNegativeFloat = 0.0
    ray_address: str | None = None

    @property
    def alone(self) -> bool:
        """Whether trials run one by one on this machine, which needs no Ray."""
        return self.ray_address is None and 1 in (self.max_concurrent, processors() // self.cpu)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield the ray module, connected to a cluster that has the resources of a trial.

        ConfigError if there is none, ConnectionError if a process of Ray died.
        """
        with cluster(self.ray_address) as ray:
            total = ray.cluster_resources()
            for name, wanted in (("CPU", self.cpu), ("GPU", self.gpu)):
                if wanted > (have := total.get(name, 0)):
                    raise ConfigError(f"--resources needs {wanted:g} {name} per trial; the cluster has {have:g} in all")
            try:
                yield ray
            except Exception as error:
                if (died := death(error)) is not None:
                    advice = "continue with --resume=True; if memory ran out, use a smaller --max_concurrent"
                    raise ConnectionError(f"a process of Ray died: {short(died)}; {advice}") from error
                raise


class Asha:
    """Ray's ASHA scheduler, which the processes of all trials ask whether to stop."""

    def __init__(self, mode: str) -> None:
        from ray.tune.schedulers import ASHAScheduler

        # a limit beyond the epochs of any trial, so that it stops nothing itself
        self.scheduler = ASHAScheduler("epoch", "score", mode, max_t=10**6)
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


def run_trials(plan: Plan, trials: Iterator[Trial], on_end: Callable[[Trial], None], options: Options) -> None:
    """Run ``trials`` until there are no more or the time budget has passed; call ``on_end`` with each.

    A trial that is running when time is up, or at Ctrl-C, stays unfinished. Raises the errors of
    :meth:`Options.connected`.
    """
    mode, time_budget = "max" if plan.bigger else "min", options.time_budget
    with contextlib.ExitStack() as stack:
        asha: Any = None
        if options.alone:
            deadline = None if time_budget is None else perf_counter() + time_budget
            asha = Asha(mode) if options.scheduler == "asha" else None
            executor, start = Executor(), _start(plan, asha and asha.stops, deadline)
        else:
            ray = stack.enter_context(options.connected())
            asha = _actor(ray, Asha, mode) if options.scheduler == "asha" else None
            room = {"num_cpus": options.cpu, "num_gpus": options.gpu}
            executor = Executor(options.max_concurrent, lambda: contextlib.nullcontext(ray), room)
            start = _start(plan, asha and (lambda *arguments: ray.get(asha.stops.remote(*arguments))))
        results = executor.run(start, trials, time_budget=time_budget, stop=True)
        # if ``on_end`` fails, the trials stop while Ray is connected
        stack.enter_context(contextlib.closing(results))
        for trial, ended in results:
            if isinstance(ended, DiedError):
                ended = recorded(plan, trial, status=FAILED, reason=str(ended))
            if ended.status != UNFINISHED:
                on_end(ended)


def _actor(ray: Any, kind: type, *arguments: Any) -> Any:
    """Start an actor on the machine of the driver, so that it lives as long; it takes no core of a trial."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(kind).remote(*arguments)


def _start(
    plan: Plan, stops: Callable[[str, int, float], bool] | None, deadline: float | None = None
) -> Callable[[Trial], Trial]:
    """Return the function that runs a trial, which ends early if ``stops`` says so, or after the ``deadline``."""

    def start(trial: Trial) -> Trial:
        def report(epoch: int, score: float) -> None:
            if stops is not None and stops(trial.name, epoch + 1, score):
                raise StopTrialError(STOPPED, "stopped by asha")
            if deadline is not None and perf_counter() > deadline:
                raise StopTrialError(UNFINISHED, OUT_OF_TIME)

        return run_trial(plan, trial, report)

    return start
