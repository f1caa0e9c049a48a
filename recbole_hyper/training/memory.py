"""Memory: the peak of a phase, freed pages, and a trial step that refuses a run that cannot fit and times a step."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from typing import Any, NamedTuple

import psutil
import torch

from recbole_hyper.devices import free_memory, half_precision, module_of, moved, synchronize
from recbole_hyper.errors import ConfigError
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.part_checks import require_loss
from recbole_hyper.random_numbers import seeded
from recbole_hyper.training.processes import world
from recbole_hyper.training.settings import TrainSettings

_SMALLER = "lower hidden_size, drop rare items (item_inter_num_interval) or use a machine with more memory"
# a trial begins with a batch halved so often, and takes about so many seconds
_HALVINGS, _SECONDS = 12, 4.0


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


def give_back_freed() -> None:
    """Return freed pages to the system if the C library can (glibc).

    Batches of many lengths leave holes between tensors, which pile up in a long training. Returning those of an epoch
    takes a twentieth of a second. For the memory of compiled kernels see ``threads.limit_cached_kernels``.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class Trial(NamedTuple):
    """What a training step needs."""

    bytes: int  # besides the weights
    seconds: float  # of a whole batch, estimated if the batch is large


def try_step(settings: TrainSettings, model: HyperRecommender, batches: Any) -> Trial:
    """Return the bytes that a training step needs besides the weights, and its seconds, on the longest windows.

    The step is tried on a few windows first, then on twice as many each time while these will fit, for a few seconds at
    most: memory and time of a larger batch follow from those of the last two. Each of several processes tries its share
    of a batch. Two moments for each weight, and the average of ``ema_decay``, are added. Weights, buffers and random
    generators do not change.

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
    tried, taken, last, growth = 0, float(lasting), 0.0, 0.0
    sizes = sorted({max(1, largest >> halvings) for halvings in range(_HALVINGS)})
    with seeded(0):
        _measured(settings, model, batches, sizes[0])  # a first step may compile and allocate
        start = Stopwatch()
        for rows in sizes:
            (peak, seconds), before, earlier = _measured(settings, model, batches, rows), taken, last
            if loaded := 0 < 3 * last < seconds:  # not twice as long: kernels for larger batches, which stay in memory
                seconds = _measured(settings, model, batches, rows)[1]
            taken, last = max(taken, lasting + peak - idle.bytes), seconds
            # beyond a constant part, memory and time grow in proportion to the rows
            growth = growth if loaded else (taken - before) / (rows - tried)
            slope = max(0.0, (last - earlier) / (rows - tried))
            left = largest - rows
            ends = tried > 0 and start.seconds() + 2 * last > _SECONDS
            following = taken + growth * (left if ends else min(rows, left)) * (tried > 0)
            if not following <= limit:
                needed, fits = taken + growth * left, shares * (rows if taken <= limit else tried)
                amount = f"about {needed / 2**30:.1f} GiB" if math.isfinite(needed) else "more memory than there is"
                advice = f"--train_batch_size={fits} would fit" if fits else _SMALLER
                raise ConfigError(f"a training step would need {amount}, {limit / 2**30:.1f} GiB are free: {advice}")
            tried = rows
            if ends:
                taken, last = taken + growth * left, last + slope * left
                break
    for buffer, value in buffers:
        buffer.copy_(value)
    return Trial(int(taken), last + _update_seconds(model, settings.device))


def _update_seconds(model: HyperRecommender, device: torch.device) -> float:
    """Return about how long Adam takes to update all weights, measured on at most 16 million numbers."""
    total = sum(one.numel() for one in model.parameters() if one.requires_grad)
    part = torch.zeros(max(1, min(total, 1 << 24)), device=device, requires_grad=True)
    part.grad = torch.zeros_like(part)
    optimizer = torch.optim.Adam([part])
    optimizer.step()  # makes the moments
    watch = Stopwatch()
    optimizer.step()
    synchronize(device)
    return watch.seconds() * total / part.numel()


def _measured(settings: TrainSettings, model: HyperRecommender, batches: Any, rows: int) -> tuple[float, float]:
    """Return the peak in bytes of a step on the ``rows`` longest windows, and its seconds; infinity without memory."""
    device = settings.device
    model.train()
    watch = Stopwatch()
    try:
        with PeakMemory(device, interval=0.001) as memory:
            with torch.autocast(device.type, half_precision(device), enabled=bool(settings.enable_amp)):
                loss = model.calculate_loss(moved(batches.longest(rows), device))
            require_loss(loss, f"{type(model).__name__}.calculate_loss")
            torch.autograd.grad(loss, [one for one in model.parameters() if one.requires_grad], allow_unused=True)
            synchronize(device)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            return math.inf, math.inf
        raise
    return memory.bytes, watch.seconds()
