"""Where trials run: in this process one after another, or on Ray Tune side by side."""

import contextlib
import errno
import json
import math
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from recbole_hyper.errors import ConfigError, NoSpaceError
from recbole_hyper.files import is_no_space
from recbole_hyper.sweep.proposals import Proposals, Trial
from recbole_hyper.sweep.trial import FAILED, STOPPED, UNFINISHED, Plan, Record, close_trial, read_record, run_trial
from recbole_hyper.training.cluster import cluster

# Ray Tune's name for leaving SIGINT alone
_NO_HANDLER = "TUNE_DISABLE_SIGINT_HANDLER"
SCHEDULERS = ("none", "asha")
OUT_OF_TIME, INTERRUPTED = "the time budget ran out", "interrupted"


class Local:
    """One trial after another in this process; for debugging and where Ray is not wanted."""

    def search(self, plan: Plan, proposals: Proposals, on_end: Callable[[Record], None]) -> None:
        """Run trials until there are none or time is up, without a scheduler; NoSpaceError when the disk is full."""
        start = perf_counter()

        def over() -> bool:
            return plan.time_budget is not None and perf_counter() - start > plan.time_budget

        def report(epoch: int, score: float) -> None:
            if over():
                raise SystemExit

        while not over() and (trial := proposals.ask()) is not None:
            try:
                record = run_trial(plan, trial, report)
            except NoSpaceError:
                _leave(plan, trial)
                raise
            except SystemExit:
                record = close_trial(plan, trial, UNFINISHED, OUT_OF_TIME)
            proposals.tell(trial, record.score)
            on_end(record)

    def map(self, function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
        """Call ``function`` with each tuple of arguments and return the results in order."""
        return [function(*arguments) for arguments in calls]


class RayTune:
    """Trials as Ray Tune function trainables, on this machine or on the cluster at ``address``.

    Each has ``cpu`` cores, which are also its threads, and the share ``gpu`` of a GPU; ``max_concurrent`` run at a
    time, None for as many as fit. On a cluster the folder of the sweep must be one that all machines share.
    """

    def __init__(
        self, cpu: float = 1.0, gpu: float = 0.0, max_concurrent: int | None = None, address: str | None = None
    ) -> None:
        self.cpu, self.gpu, self.max_concurrent, self.address = cpu, gpu, max_concurrent, address

    def search(self, plan: Plan, proposals: Proposals, on_end: Callable[[Record], None]) -> None:
        """Run trials until there are none or time is up; NoSpaceError when the disk is full.

        After Ctrl-C those at work end as unfinished, and KeyboardInterrupt is raised then; at once after a second one.
        """
        with cluster(self.address) as ray:
            self._require_resources(ray)
            from ray import tune

            ends = _Ends(plan, proposals, on_end)
            searcher, callback, stop = _adapters(ends)
            scheduler = None
            if plan.scheduler == "asha":
                # one more than the last epoch, so that the limit itself stops nothing
                scheduler = tune.schedulers.ASHAScheduler("epoch", "score", plan.mode, max_t=plan.epochs + 2)
            tuner = tune.Tuner(
                tune.with_resources(_trainable(plan), {"cpu": self.cpu, "gpu": self.gpu}),
                tune_config=tune.TuneConfig(
                    search_alg=searcher,
                    scheduler=scheduler,
                    num_samples=-1,
                    max_concurrent_trials=self.concurrent(ray),
                    time_budget_s=plan.time_budget,
                    # a process keeps its imports and its mapped data from trial to trial
                    reuse_actors=True,
                    trial_name_creator=lambda trial: f"{trial.config['number']:04d}",
                    trial_dirname_creator=lambda trial: f"{trial.config['number']:04d}-{trial.trial_id}",
                ),
                run_config=tune.RunConfig(
                    name="ray",
                    storage_path=plan.folder,
                    verbose=0,
                    callbacks=[callback],
                    failure_config=None,
                    stop=stop,
                ),
            )
            try:
                with _ray_errors(), _held_interrupt(ends):
                    tuner.fit()
            except ConnectionError as error:
                ends.bury_open(str(error))
                raise
            ends.close_open()
            if ends.fatal is not None:
                raise ends.fatal
            if ends.interrupted:
                raise KeyboardInterrupt

    def map(self, function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
        """Call side by side, each with the resources of a trial."""
        with cluster(self.address) as ray:
            self._require_resources(ray)
            remote = ray.remote(num_cpus=self.cpu, num_gpus=self.gpu, max_retries=0)(function)
            with _ray_errors():
                return ray.get([remote.remote(*arguments) for arguments in calls])

    def concurrent(self, ray: Any) -> int:
        """Return how many trials the cluster holds at a time."""
        total = ray.cluster_resources()
        fits = int(total.get("CPU", 1) / self.cpu) if self.cpu else 10**6
        if self.gpu:
            fits = min(fits, int(total.get("GPU", 0) / self.gpu))
        return max(1, min(fits, self.max_concurrent or fits))

    def _require_resources(self, ray: Any) -> None:
        total = ray.cluster_resources()
        for name, wanted in (("CPU", self.cpu), ("GPU", self.gpu)):
            if wanted > total.get(name, 0):
                have = total.get(name, 0)
                raise ConfigError(f"--resources asks for {wanted:g} {name} per trial; the cluster has {have:g} in all")


Executor = Local | RayTune


def _trainable(plan: Plan) -> Callable[[dict[str, Any]], None]:
    def trainable(config: dict[str, Any]) -> None:
        from ray import tune

        def report(epoch: int, score: float | None) -> None:
            known = score is not None and math.isfinite(score)
            tune.report({"score": score if known else plan.worst, "epoch": epoch + 1})

        record = run_trial(plan, _trial(config), report)
        report(record.epochs or 0, record.score)

    return trainable


class _Ends:
    """Records how the trials of a search on Ray Tune end, and tells the proposals and the driver."""

    def __init__(self, plan: Plan, proposals: Proposals, on_end: Callable[[Record], None]) -> None:
        self.plan, self.proposals, self.on_end = plan, proposals, on_end
        self.open: dict[str, Trial] = {}
        self.fatal: Exception | None = None
        self.interrupted = False
        self.start = perf_counter()

    def ask(self) -> Trial | None:
        """Return the next trial to run, None where there is none or the search has failed or is interrupted."""
        trial = None if self.fatal is not None or self.interrupted else self.proposals.ask()
        if trial is not None:
            self.open[trial.name] = trial
        return trial

    @property
    def _why(self) -> str:
        """Why a trial that neither failed nor was stopped by the scheduler did not finish."""
        return INTERRUPTED if self.interrupted else OUT_OF_TIME

    def close_open(self) -> None:
        """Record the trials that Ray stopped without a word, which it does when the time budget runs out."""
        for trial in list(self.open.values()) if self.fatal is None else ():
            self._end(trial, UNFINISHED, self._why)

    def bury_open(self, reason: str) -> None:
        """Record the trials that ran when Ray Tune itself ended, as it does when Ray kills one for want of memory.

        It does not say which: a death counts only for a trial that was alone.
        """
        status = None if len(self.open) == 1 else UNFINISHED
        for trial in list(self.open.values()):
            self._end(trial, status, reason)

    def complete(self, trial: Trial) -> None:
        """Record a trial that ended by itself, by the scheduler, by the time budget or by an interrupt."""
        budget = self.plan.time_budget
        over = budget is not None and perf_counter() - self.start >= budget
        if self.interrupted or self.plan.scheduler == "none" or over:
            self._end(trial, UNFINISHED, self._why)
        else:
            self._end(trial, STOPPED, "stopped by asha")

    def fail(self, trial: Trial, error: Exception | None) -> None:
        """Record a trial that an error ended; None where Ray left no word of it."""
        if _is_full_disk(error):
            _leave(self.plan, self.open.pop(trial.name, trial))
            self.fatal = self.fatal or NoSpaceError(errno.ENOSPC, "the disk is full", self.plan.folder)
        elif _raised_itself(error):
            self._end(trial, FAILED, f"its process ended: {_short(error)}")
        else:
            self._end(trial, None, _short(error))

    def _end(self, trial: Trial, status: str | None, reason: str) -> None:
        """Record the end of a trial that has no record of its own; ``status`` None: its process died."""
        self.open.pop(trial.name, None)
        try:
            record = read_record(self.plan.trials / trial.name)
            if record is None or record.status == UNFINISHED:
                record = close_trial(self.plan, trial, status, reason)
            self.proposals.tell(trial, record.score)
            self.on_end(record)
        except Exception as error:  # raised after the search: Ray would only log it
            self.fatal = self.fatal or error


def _adapters(ends: _Ends) -> tuple[Any, Any, Any]:
    """Return Ray Tune's searcher, callback and stopper, which ask ``ends`` what to do and tell it how trials ended."""
    from ray import tune
    from ray.tune.search import Searcher

    class Callback(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ends.complete(_trial(trial.config))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ends.fail(_trial(trial.config), _error(trial))

    class Adapter(Searcher):
        def suggest(self, trial_id: str) -> Any:
            trial = ends.ask()
            if trial is None:
                return Searcher.FINISHED
            return {"number": trial.number, "settings": json.dumps(trial.settings)}

        def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
            """Proposals are told by the callback, which knows the record."""

        def save(self, checkpoint_path: str) -> None:
            """Resume goes by the records of the trials, not by Ray's own state."""

        def restore(self, checkpoint_path: str) -> None:
            """See :meth:`save`."""

    class Stopper(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return ends.interrupted

    return Adapter(metric="score", mode=ends.plan.mode), Callback(), Stopper()


@contextlib.contextmanager
def _held_interrupt(ends: _Ends) -> Iterator[None]:
    """Let a first Ctrl-C mark ``ends`` alone, and a second one interrupt.

    Ray's own handler of the signal does not say afterwards that there was one, and stays when the search is over. Only
    the main thread may set handlers: elsewhere there is none, and none of Ray's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def mark(number: int, frame: Any) -> None:
        ends.interrupted = True
        signal.signal(signal.SIGINT, before)

    asked = os.environ.get(_NO_HANDLER)
    os.environ[_NO_HANDLER] = "1"
    signal.signal(signal.SIGINT, mark)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        os.environ.pop(_NO_HANDLER) if asked is None else os.environ.update({_NO_HANDLER: asked})


def _leave(plan: Plan, trial: Trial) -> None:
    """Record a trial that a full disk ended as unfinished, where there is room for that much; else it has no record."""
    with contextlib.suppress(OSError):
        close_trial(plan, trial, UNFINISHED, "the disk was full")


def _trial(config: dict[str, Any]) -> Trial:
    return Trial(int(config["number"]), json.loads(config["settings"]))


def _error(ray_trial: Any) -> Exception | None:
    """Return what ended a trial of Ray Tune; None where no word of it was left."""
    with contextlib.suppress(Exception):
        # Ray writes it beside its own files first, and copies it to the folder of the sweep later
        return pickle.loads(Path(ray_trial.pickled_error_file).read_bytes())
    with contextlib.suppress(Exception):
        return ray_trial.get_pickled_error()
    return None


def _is_full_disk(error: Exception | None) -> bool:
    return is_no_space(error) or "OutOfDiskError" in f"{type(error).__name__} {error}"


def _raised_itself(error: BaseException | None) -> bool:
    """Whether the code of a trial raised ``error``; else its process died: killed, out of memory, its machine gone."""
    from ray.exceptions import RayTaskError

    return isinstance(error, RayTaskError)


def _short(error: BaseException | None) -> str:
    text = " ".join(str(error if error is not None else "no message").split())
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-300:]}"


def _died(error: BaseException | None) -> BaseException | None:
    """Return the word of Ray's about a process that died among ``error`` and what led to it, if any."""
    from ray.exceptions import RayError

    while error is not None and (not isinstance(error, RayError) or _raised_itself(error)):
        error = error.__cause__ or error.__context__
    return error


@contextlib.contextmanager
def _ray_errors() -> Iterator[None]:
    """Turn what Ray raises into one line: NoSpaceError for a full disk, ConnectionError where a process died."""
    try:
        yield
    except Exception as error:
        if _is_full_disk(error):
            raise NoSpaceError(errno.ENOSPC, "the disk is full") from error
        died = None if _raised_itself(error) else _died(error)
        if died is not None:
            advice = "continue with --resume=True, and where memory ran out with a smaller --max_concurrent"
            raise ConnectionError(f"a process of Ray died: {_short(died)}; {advice}") from error
        raise
