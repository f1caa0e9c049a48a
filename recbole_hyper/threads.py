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
# random numbers, thread counts and the log belong to the process: one run at a time
PROCESS_LOCK = threading.RLock()


def limit_spinning() -> None:
    """Let torch's threads sleep while they wait, instead of spinning, unless the environment sets this.

    With two trainings at once an epoch took 5 to 40 times as long as alone; without spinning it takes 2.1 times. Alone,
    the small steps of ml-100k get about a tenth slower (``make bench-threads``).
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPINS


def limit_cached_kernels() -> None:
    """Let oneDNN cache fewer of its compiled kernels, one for each shape, unless the environment sets how many.

    FMLPRecCE on MovieLens-1M grew to 5.1 GB in 20 epochs; with this limit it takes 1.6 GB and is no slower.
    """
    if not {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"} & set(os.environ):
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = CACHED_KERNELS


def processors() -> int:
    """Return the processors that this process may use, by its affinity and its cgroup's quota (a container's)."""
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
