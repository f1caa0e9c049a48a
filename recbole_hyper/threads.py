"""Threads: how many torch takes, how they wait, and a pool for work without the interpreter lock (Arrow, kernels)."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# iterations of a wait loop; libgomp's default is 300,000, a millisecond
SPINS = "1000"
# a training step uses about thirty; oneDNN's default is 1024
CACHED_KERNELS = "64"
# runs share the process's random generators, thread counts and log, so only one runs at a time
PROCESS_LOCK = threading.RLock()


def limit_spinning() -> None:
    """Let torch's threads sleep while they wait, instead of spinning, unless the environment says otherwise.

    With spinning, an epoch takes 5 to 40 times as long if two trainings run at once; without, 2.1 times. Alone, the
    small steps of ml-100k become about a tenth slower (``make bench-threads``).
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPINS


def limit_cached_kernels() -> None:
    """Limit the compiled kernels in oneDNN's cache, one per shape, unless the environment sets a limit.

    Without it FMLPRecCE on MovieLens-1M grows to 5.1 GB in 20 epochs. With it the run takes 1.6 GB and is not slower.
    """
    if not {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"} & set(os.environ):
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = CACHED_KERNELS


def processors() -> int:
    """Return how many processors this process may use, by its affinity and the quota of its container (cgroup)."""
    from joblib import cpu_count

    return int(cpu_count())


def default_threads() -> int:
    """Return ``NUMBA_NUM_THREADS`` or ``OMP_NUM_THREADS`` if set, else :func:`processors`."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return processors()


def use_threads(count: int | None) -> None:
    """Let torch use ``count`` threads; None keeps its number, but at most :func:`processors`."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), processors()) if count is None else count)


class Pool(ThreadPoolExecutor):
    """A pool of ``threads`` threads (None: :func:`default_threads`); with one, ``map`` runs in the caller's thread."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = default_threads() if threads is None else max(1, threads)
        super().__init__(self.threads)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:  # type: ignore[override]
        """Return ``function`` of each item."""
        if self.threads == 1 or len(items) == 1:
            return [function(item) for item in items]
        return list(super().map(function, items))

    def stream(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield ``function`` of each item, in order; at most ``threads`` + 1 calls are pending at once."""
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
