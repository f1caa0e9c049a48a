"""Threads: how many torch takes, and those of work that holds no interpreter lock (Arrow, compiled loops)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


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
