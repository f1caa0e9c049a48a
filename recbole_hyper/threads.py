"""Threads: how many torch takes, how they wait, and those of work that holds no interpreter lock (Arrow, kernels)."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# turns of a loop; libgomp's own default is 300,000, a millisecond
SPINS = "1000"
# a training step takes some thirty; oneDNN's own default is 1024
CACHED_KERNELS = "64"
# random numbers, the number of threads and the log belong to the process: of runs in several threads one is at work
PROCESS_LOCK = threading.RLock()


def limit_spinning() -> None:
    """Let torch's threads wait for each other asleep rather than in a loop, unless the environment says how.

    A thread that spins keeps its processor from the one that it waits for, where another process computes too: of two
    trainings at once an epoch took 5 to 40 times that of one alone, and takes 2.1 times that so; alone, steps as small
    as those of ml-100k are about a tenth slower (``make bench-threads``).
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPINS


def limit_cached_kernels() -> None:
    """Let oneDNN keep fewer of the kernels that it compiles, one for each shape, unless the environment says how many.

    Batches differ in length and in their number of targets, so that most kernels serve one step, and each holds a
    megabyte or two: FMLPRecCE on MovieLens-1M grew to 5.1 GB in 20 epochs, and has 1.6 GB in its third so, no slower.
    """
    if not {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"} & set(os.environ):
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = CACHED_KERNELS


def processors() -> int:
    """Return what the affinity of this process and the quota of its cgroup, such as a container's, leave it."""
    from joblib import cpu_count

    return int(cpu_count())


def default_threads() -> int:
    """``NUMBA_NUM_THREADS`` or ``OMP_NUM_THREADS`` where set, else :func:`processors`."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return processors()


def use_threads(count: int | None) -> None:
    """Let torch compute with ``count`` threads; None: its own choice, but no more than :func:`processors`."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), processors()) if count is None else count)


class Pool(ThreadPoolExecutor):
    """As many threads as are given (None: :func:`default_threads`); a single one is the caller's own."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = default_threads() if threads is None else max(1, threads)
        super().__init__(self.threads)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:  # type: ignore[override]
        """Return what ``function`` gives for each item."""
        if self.threads == 1 or len(items) == 1:
            return [function(item) for item in items]
        return list(super().map(function, items))

    def stream(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield what ``function`` gives for each item, in order; no more than ``threads`` wait beyond those at work."""
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(self.submit(function, item))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
