"""How an n x items problem is cut, so that what is alive at once stays within a budget of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import torch

# elements of one tile: small enough to stay in a core's cache on CPU, large enough to fill a GPU
CPU_TILE = 1 << 17
GPU_TILE = 1 << 24
# rows whose tiles are kept from the first pass to the second: fewer make the matrix products slow
LEAST_KEPT_ROWS = 16
DEFAULT_BUDGET = 256 << 20


@dataclass(frozen=True)
class Plan:
    """``rows`` x ``block`` tiles; ``keep`` says whether a row chunk's tiles are kept between the two passes."""

    rows: int
    block: int
    keep: bool
    bytes: int


def default_budget(device: torch.device) -> int:
    """Return the default loss_memory_budget in bytes: 256 MiB, or 1/32 of the device's memory if that is less.

    It depends on the memory that exists, not on what happens to be free, so that equal runs are cut equally and give
    equal numbers.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
    else:
        total = psutil.virtual_memory().total
    return min(DEFAULT_BUDGET, total // 32)


def plan(n: int, n_items: int, width: int, *, arrays: int, itemsize: int, budget: int, gpu: bool = False) -> Plan:
    """Choose the tiles of the exact cross-entropy.

    Args:
        n: rows. n_items: items. width: lifted width.
        arrays: numbers kept per (row, item) between the passes: 1 without a link, 2 with one.
        itemsize: bytes of a number.
        budget: bytes for everything that grows with rows x items, and the per-item terms.

    Raises:
        ValueError: the budget does not hold one row of logits.
    """
    # six numbers per item: multiplier, extra, scale and the gradients of extra, scale, offset
    fixed = (6 * n_items if arrays > 1 else 2 * n_items) * itemsize + 4 * n * width * itemsize
    least = fixed + n_items * itemsize * arrays
    if budget < least:
        raise ValueError(
            f"memory budget {budget} bytes is under one row of logits: {n_items} items and {n} rows need "
            f"{least} bytes at least; set loss_memory_budget to {math.ceil(least / 2**20)} MiB or more"
        )
    free = budget - fixed
    tile = GPU_TILE if gpu else CPU_TILE
    tile = max(1, min(tile, free // (4 * (arrays + 2) * itemsize)))
    # tiles of 2 (arrays + 1) buffers live beside what is kept
    spare = free - (arrays + 1) * tile * itemsize
    kept_rows = spare // (n_items * arrays * itemsize)
    if kept_rows >= min(n, LEAST_KEPT_ROWS):
        wanted = max(64, (tile * 32) // n_items)
        rows = int(min(n, kept_rows, wanted))
        keep = True
    else:
        rows = int(min(n, 1024, tile))
        keep = False
    block = max(1, min(n_items, tile // rows))
    used = fixed + (arrays + 1) * rows * block * itemsize + 2 * block * width * itemsize
    used += rows * n_items * arrays * itemsize if keep else arrays * rows * block * itemsize
    return Plan(rows, block, keep, used)


def spans(start: int, stop: int, step: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``step`` from ``start`` to ``stop``."""
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def item_blocks(n_items: int, block: int, padding_idx: int | None) -> list[slice]:
    """Return slices that cover all items but the padding item."""
    if padding_idx is None:
        return list(spans(0, n_items, block))
    return [*spans(0, padding_idx, block), *spans(padding_idx + 1, n_items, block)]
