"""Memory of a phase: its peak, sampled on the CPU or told by a GPU's allocator, and what is given back after it."""

from __future__ import annotations

import ctypes
import sys
import threading

import psutil
import torch

from recbole_hyper.devices import module_of


class PeakMemory:
    """Context manager that measures the peak memory of its body.

    ``bytes`` is the largest resident set of this process seen while the body ran (sampled every ``interval`` seconds),
    or, on a GPU, the peak of torch's allocator. ``growth`` is that peak less what was in use at the start.
    """

    def __init__(self, device: torch.device | str = "cpu", interval: float = 0.02) -> None:
        self.device, self.interval = torch.device(device), interval
        self.bytes = self.growth = 0

    def __enter__(self) -> PeakMemory:
        if self.device.type != "cpu":
            module_of(self.device).reset_peak_memory_stats(self.device)
            self._start = module_of(self.device).memory_allocated(self.device)
            return self
        self._process = psutil.Process()
        self._start = self._peak = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(self.interval):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def __exit__(self, *error: object) -> None:
        if self.device.type != "cpu":
            self.bytes = module_of(self.device).max_memory_allocated(self.device)
        else:
            self._stop.set()
            self._thread.join()
            self.bytes = max(self._peak, self._process.memory_info().rss)
        self.growth = self.bytes - self._start


def give_back_freed() -> bool:
    """Give pages that were freed back to the system where the C library can (glibc); return whether it could.

    Windows of many lengths leave holes between tensors, which the heap of a long training gathers. Those of an epoch
    are given back in a twentieth of a second. What compiled kernels keep: see ``threads.limit_cached_kernels``.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return False
    trim(0)
    return True
