"""Trials on Ray Tune, here or on a cluster; Ray does concurrency, ASHA, the time budget and retries."""

import contextlib
import errno
import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recbole_hyper.cluster import cluster
from recbole_hyper.errors import ConfigError, NoSpaceError
from recbole_hyper.experiment.experiment import Experiment, Run
from recbole_hyper.files import is_no_space
from recbole_hyper.sweep.trial import FAILED, STOPPED, UNFINISHED, Plan, Trial, close_trial, read_record, run_trial

SCHEDULERS = ("none", "asha")
# how often Ray restarts a trial whose process died: killed, out of memory, or its machine gone
RETRIES = 2


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
                if _is_full_disk(error):
                    raise NoSpaceError(errno.ENOSPC, "the disk is full") from error
                if (died := _death(error)) is not None:
                    advice = "continue with --resume=True; if memory ran out, use a smaller --max_concurrent"
                    raise ConnectionError(f"a process of Ray died: {_short(died)}; {advice}") from error
                raise


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
    with workers.connected():
        from ray import tune

        mode = "max" if plan.bigger else "min"
        errors: list[Exception] = []  # each ends the search, while Ray would only log it
        stopped: set[str] = set()  # Ray's ids of trials that the scheduler stopped

        def ended(ray_trial: Any, *, died: bool) -> None:
            try:
                trial = _closed(plan, ray_trial, stopped=ray_trial.trial_id in stopped, died=died)
                if trial.status != UNFINISHED:
                    on_end(trial)
            except Exception as error:
                errors.append(error)

        tune.Tuner(
            tune.with_resources(_trainable(plan), {"cpu": workers.cpu, "gpu": workers.gpu}),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(mode, lambda: None if errors else next(trials, None)),
                scheduler=_asha(mode, stopped, max_epochs) if scheduler == "asha" else None,
                num_samples=-1,
                max_concurrent_trials=workers.max_concurrent,
                time_budget_s=time_budget,
                # a process keeps its imports and its mapped data from trial to trial
                reuse_actors=True,
                trial_name_creator=lambda trial: f"{trial.config['number']:04d}",
                trial_dirname_creator=lambda trial: f"{trial.config['number']:04d}-{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name="ray",
                storage_path=str(plan.folder),
                verbose=0,
                callbacks=[_callback(ended)],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
            ),
        ).fit()
        if errors:
            raise errors[0]


def run_each(runs: Sequence[Run], start: Callable[[Run], None], workers: Workers) -> None:
    """Train the ``runs`` that are not finished, in parallel; each has the resources of a trial."""
    resources = {"num_cpus": workers.cpu, "num_gpus": workers.gpu, "max_retries": 0}
    Experiment(runs, len(runs), workers.connected, resources=resources, progress=False).execute(start)


def _closed(plan: Plan, ray_trial: Any, *, stopped: bool, died: bool) -> Trial:
    """Return the record of a trial that Ray ended; write it if the process of the trial could not."""
    trial = _trial(ray_trial.config)
    record = read_record(plan.trials / trial.name)
    error = _error(ray_trial) if died else None
    if died and _is_full_disk(error):
        raise NoSpaceError(errno.ENOSPC, "the disk is full")
    if (record is None or record.status == UNFINISHED) and (died or stopped):
        reason = f"its process died {1 + RETRIES} times: {_short(error)}" if died else "stopped by asha"
        return close_trial(plan, trial, FAILED if died else STOPPED, reason)
    return record or trial


def _trial(config: dict[str, Any]) -> Trial:
    return Trial(int(config["number"]), json.loads(config["settings"]))


# what Ray calls back; each class derives from one of Ray's, which is imported when it is needed
def _trainable(plan: Plan) -> Callable[[dict[str, Any]], None]:
    def trainable(config: dict[str, Any]) -> None:
        from ray import tune

        def report(epoch: int, score: float | None) -> None:
            worst = -math.inf if plan.bigger else math.inf
            tune.report({"score": score if score is not None and math.isfinite(score) else worst, "epoch": epoch + 1})

        trial = run_trial(plan, _trial(config), report)
        report(trial.epochs or 0, trial.score)

    return trainable


def _searcher(mode: str, ask: Callable[[], Trial | None]) -> Any:
    """Return a search of Ray Tune that runs what ``ask`` returns and saves nothing: a resume reads the records."""
    from ray.tune.search import Searcher

    class Adapter(Searcher):
        def __init__(self, ask: Callable[[], Trial | None]) -> None:
            super().__init__(metric="score", mode=mode)
            self.ask: Callable[[], Trial | None] = ask

        def __getstate__(self) -> dict[str, Any]:
            # Ray pickles the search, but a generator of trials cannot be pickled
            return {}

        def suggest(self, trial_id: str) -> Any:
            trial = self.ask()
            if trial is None:
                return Searcher.FINISHED
            return {"number": trial.number, "settings": json.dumps(trial.settings)}

        def on_trial_complete(self, *args: Any, **kwargs: Any) -> None: ...

        save = restore = on_trial_complete

    return Adapter(ask)


def _callback(ended: Callable[..., None]) -> Any:
    from ray import tune

    class Callback(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ended(trial, died=False)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ended(trial, died=True)

    return Callback()


def _asha(mode: str, stopped: set[str], max_epochs: int) -> Any:
    """Return the ASHA scheduler, which adds the trials that it stops to ``stopped``."""
    from ray.tune.schedulers import ASHAScheduler

    class Scheduler(ASHAScheduler):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            action = super().on_trial_result(controller, trial, result)
            if action == self.STOP:
                stopped.add(trial.trial_id)
            return action

    # one more than the last epoch, so that the limit itself stops nothing
    return Scheduler("epoch", "score", mode, max_t=max_epochs + 2)


# how Ray reports errors
def _error(ray_trial: Any) -> Exception | None:
    """Return the error that ended a trial of Ray Tune, None if Ray has not written it."""
    with contextlib.suppress(Exception):
        # Ray writes it beside its own files first, and copies it to the folder of the sweep later
        return pickle.loads(Path(ray_trial.pickled_error_file).read_bytes())
    with contextlib.suppress(Exception):
        return ray_trial.get_pickled_error()
    return None


def _is_full_disk(error: Exception | None) -> bool:
    return is_no_space(error) or "OutOfDiskError" in f"{type(error).__name__} {error}"


def _death(error: BaseException | None) -> BaseException | None:
    """Return the first of ``error`` and its causes in which Ray reports a dead process, None if there is none."""
    from ray.exceptions import RayError, RayTaskError

    while error is not None and not isinstance(error, RayError):
        error = error.__cause__ or error.__context__
    return None if isinstance(error, RayTaskError) else error


def _short(error: BaseException | None) -> str:
    text = " ".join(str(error if error is not None else "no message").split())
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-300:]}"
