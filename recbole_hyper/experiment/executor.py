"""The executor of all experiments: it runs tasks here, in threads, or on a Ray cluster."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from recbole_hyper.cluster import death, short

Task = TypeVar("Task")
Result = TypeVar("Result")

# how often a task starts again after its process on a cluster died: killed, out of memory, or its machine gone
RETRIES = 2


class DiedError(Exception):
    """The process of a task died too often."""


@dataclass(frozen=True)
class Executor:
    """Runs at most ``n_at_once`` tasks at a time; None is for as many as a cluster has room for.

    ``connect`` yields ray, connected to a cluster, and ``resources`` are what Ray reserves for each task. Without it
    the tasks run in this process, in threads if there are several at a time.
    """

    n_at_once: int | None = 1
    connect: Callable[[], AbstractContextManager[Any]] | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def run(
        self,
        start: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        time_budget: float | None = None,
        stop: bool = False,
    ) -> Generator[tuple[Task, Result | DiedError], None, None]:
        """Yield each task with what ``start`` returned for it, in the order in which they end.

        A task is taken from ``tasks`` when it can start, after all earlier results. An error that ``start`` raises ends
        all. A task whose process on the cluster died starts again ``RETRIES`` times. After ``time_budget`` seconds no
        task starts; with ``stop`` the cluster also stops those that run, which are not yielded.
        """
        waiting, begun = iter(tasks), perf_counter()
        running: dict[Future[Result], tuple[Task, int]] = {}  # with the number of retries
        with self._submitter(start, running) as (submit, n_at_once):
            while True:
                left = None if time_budget is None else time_budget - (perf_counter() - begun)
                if left is not None and left <= 0:
                    if stop:
                        return
                    waiting, left = iter(()), None
                while len(running) < n_at_once and (task := next(waiting, None)) is not None:
                    running[submit(task)] = task, 0
                if not running:
                    return
                for future in wait(running, timeout=left, return_when=FIRST_COMPLETED).done:
                    task, retries = running.pop(future)
                    died = death(future.exception())
                    if died is None:
                        yield task, future.result()
                    elif retries < RETRIES:
                        running[submit(task)] = task, retries + 1
                    else:
                        yield task, DiedError(f"its process died {1 + RETRIES} times: {short(died)}")

    @contextmanager
    def _submitter(
        self, start: Callable[[Task], Result], running: Iterable[Future[Result]]
    ) -> Iterator[tuple[Callable[[Task], Future[Result]], int]]:
        """Yield a function that starts a task, and how many run at a time; stop those ``running`` at the end."""
        if self.connect is not None:
            with self.connect() as ray:
                total = ray.cluster_resources()
                names = {"num_cpus": "CPU", "num_gpus": "GPU"}
                room = [total.get(names[name], 0) // n for name, n in self.resources.items() if n]
                # Ray replaces a process that has used a GPU, as the next task may get another GPU
                reuse = {"max_calls": 0} if total.get("GPU", 0) <= 1 else {}
                remote = ray.remote(**self.resources, **reuse, max_retries=0)(start)
                references: dict[Future[Result], Any] = {}

                def submit(task: Task) -> Future[Result]:
                    reference = remote.remote(task)
                    future = reference.future()
                    references[future] = reference
                    return future

                try:
                    yield submit, self.n_at_once or max(1, int(min(room, default=1)))
                finally:
                    left = list(running)
                    for future in left:
                        ray.cancel(references[future], force=True)
                    wait(left, timeout=60)
        elif (n_at_once := self.n_at_once or 1) > 1:
            with ThreadPoolExecutor(n_at_once) as pool:
                yield lambda task: pool.submit(start, task), n_at_once
        else:
            yield lambda task: _done(start(task)), 1


def _done(value: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(value)
    return future
