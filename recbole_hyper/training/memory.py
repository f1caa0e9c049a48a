"""Memory: the peak of a phase, freed pages, and a trial step that refuses a run that cannot fit."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from typing import Any

import psutil
import torch

from recbole_hyper.devices import free_memory, half_precision, module_of, moved
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.part_checks import require_loss
from recbole_hyper.random_numbers import seeded
from recbole_hyper.training.processes import world
from recbole_hyper.training.settings import TrainSettings

_SMALLER = "lower hidden_size, drop rare items (item_inter_num_interval) or use a machine with more memory"


class PeakMemory:
    """Context manager that measures the peak memory of its body.

    ``bytes`` is the largest resident set of this process, sampled every ``interval`` seconds; on a GPU, the peak of
    torch's allocator. ``growth`` is the peak minus the memory in use at the start.
    """

    def __init__(self, device: torch.device | str = "cpu", interval: float = 0.02) -> None:
        self.device, self.interval = torch.device(device), interval
        self.bytes = self.growth = 0

    def __enter__(self) -> PeakMemory:
        if self.device.type != "cpu":
            module_of(self.device).reset_peak_memory_stats(self.device)
            self._start = module_of(self.device).memory_allocated(self.device)
            return self
        self._process, self._stop = psutil.Process(), threading.Event()
        self._start = self.bytes = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(self.interval):
            self.bytes = max(self.bytes, self._process.memory_info().rss)

    def __exit__(self, *error: object) -> None:
        if self.device.type != "cpu":
            self.bytes = module_of(self.device).max_memory_allocated(self.device)
        else:
            self._stop.set()
            self._thread.join()
            self.bytes = max(self.bytes, self._process.memory_info().rss)
        self.growth = self.bytes - self._start


def give_back_freed() -> bool:
    """Return freed pages to the system if the C library can (glibc); return whether it can.

    Batches of many lengths leave holes between tensors, which pile up in a long training. Returning those of an epoch
    takes a twentieth of a second. For the memory of compiled kernels see ``threads.limit_cached_kernels``.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    return trim is not None


def require_memory(settings: TrainSettings, model: HyperRecommender, batches: Any) -> int:
    """Return the bytes that a training step needs besides the weights, measured on the longest windows.

    The step is tried on a few windows first, then on twice as many each time while these will fit; each of several
    processes tries its share of a batch. Two moments for each weight, and the average of ``ema_decay``, are added.
    Weights, buffers and random generators do not change.

    ConfigError if a step needs more than ``memory_limit``, or more than is free (the message names the largest batch
    that fits), and for a loss that is not finite or has no gradient.
    """
    limit = settings.memory_limit or free_memory(settings.device)
    weights = sum(one.nbytes for one in model.parameters() if one.requires_grad)
    lasting = weights * (2 + (settings.ema_decay is not None))
    shares = world()[1]
    largest = max(1, min(batches.batch_size, batches.count) // shares)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    give_back_freed()
    with PeakMemory(settings.device) as idle:
        pass
    tried, taken = 0, float(lasting)
    with seeded(0):
        for rows in sorted({max(1, largest >> halvings) for halvings in range(7)}):
            before, taken = taken, max(taken, lasting + _measured(settings, model, batches, rows) - idle.bytes)
            # beyond a constant part, memory grows in proportion to the rows
            growth = (taken - before) / (rows - tried)
            following = taken + growth * min(rows, largest - rows) * (tried > 0)
            if not following <= limit:
                needed, fits = taken + growth * (largest - rows), shares * (rows if taken <= limit else tried)
                amount = f"about {needed / 2**30:.1f} GiB" if math.isfinite(needed) else "more memory than there is"
                advice = f"--train_batch_size={fits} would fit" if fits else _SMALLER
                raise ConfigError(f"a training step would need {amount}, {limit / 2**30:.1f} GiB are free: {advice}")
            tried = rows
    for buffer, value in buffers:
        buffer.copy_(value)
    return int(taken)


def _measured(settings: TrainSettings, model: HyperRecommender, batches: Any, rows: int) -> float:
    """Return the peak in bytes of a step on the ``rows`` longest windows; infinity if memory ran out."""
    device = settings.device
    model.train()
    try:
        with PeakMemory(device, interval=0.001) as memory:
            with torch.autocast(device.type, half_precision(device), enabled=bool(settings.enable_amp)):
                loss = model.calculate_loss(moved(batches.longest(rows), device))
            require_loss(loss, f"{type(model).__name__}.calculate_loss")
            torch.autograd.grad(loss, [one for one in model.parameters() if one.requires_grad], allow_unused=True)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            return math.inf
        raise
    return memory.bytes
