"""A trial step before training: what a step takes in memory is measured, and a run that cannot fit is refused."""

import math
from typing import Any

import torch

from recbole_hyper.devices import free_memory, half_precision, moved
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.part_checks import require_loss
from recbole_hyper.random_numbers import seeded
from recbole_hyper.training.memory import PeakMemory, give_back_freed
from recbole_hyper.training.processes import world


def require_memory(config: Any, model: HyperRecommender, batches: Any) -> int:
    """Return the bytes that a training step takes beside the weights, measured on the windows that are longest.

    Of several processes each measures its share of a batch. The step is tried on a few windows first, then on twice as
    many each time, as long as these will fit. Weights, buffers and random generators stay as they are. Two moments for
    each weight, and the average of ``ema_decay``, are added to the measurement.

    ConfigError for a step that needs more than ``memory_limit``, or than what is free; its message names the largest
    batch that fits. Also for a loss that is no finite number with a gradient.
    """
    limit = config["memory_limit"] or free_memory(config["device"])
    weights = sum(one.nbytes for one in model.parameters() if one.requires_grad)
    lasting = weights * (2 + (config["ema_decay"] is not None))
    shares = world()[1]
    largest = max(1, min(batches.batch_size, batches.count) // shares)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    give_back_freed()
    with PeakMemory(config["device"]) as idle:
        pass
    tried, taken = 0, float(lasting)
    with seeded(0):
        for rows in sorted({max(1, largest >> halvings) for halvings in range(7)}):
            before, taken = taken, max(taken, lasting + _measured(config, model, batches, rows) - idle.bytes)
            # beside what every step takes, memory grows in proportion to the rows
            growth = (taken - before) / (rows - tried)
            following = taken + growth * min(rows, largest - rows) * (tried > 0)
            if not following <= limit:
                fits = shares * (rows if taken <= limit else tried)
                raise ConfigError(_refusal(taken + growth * (largest - rows), limit, fits))
            tried = rows
    for buffer, value in buffers:
        buffer.copy_(value)
    return int(taken)


def _measured(config: Any, model: HyperRecommender, batches: Any, rows: int) -> float:
    """Return the peak in bytes of a step on the ``rows`` longest windows; infinity where there was too little."""
    device = config["device"]
    weights = [one for one in model.parameters() if one.requires_grad]
    model.train()
    try:
        with PeakMemory(device, interval=0.001) as memory:
            with torch.autocast(device.type, half_precision(device), enabled=bool(config["enable_amp"])):
                loss = model.calculate_loss(moved(batches.longest(rows), device))
            require_loss(loss, f"{type(model).__name__}.calculate_loss")
            torch.autograd.grad(loss, weights, allow_unused=True)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            return math.inf
        raise
    return memory.bytes


def _refusal(needed: float, limit: int, fits: int) -> str:
    advice = "lower hidden_size, drop rare items (item_inter_num_interval) or use a machine with more memory"
    if fits:
        advice = f"--train_batch_size={fits} would fit"
    what = f"about {needed / 2**30:.1f} GiB" if math.isfinite(needed) else "more memory than there is"
    return f"a training step would need {what}, {limit / 2**30:.1f} GiB are free: {advice}"
