"""Tiles for an n x items problem that keep its memory within a budget of bytes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from recbole_hyper.devices import CPU, default_budget

# rows x items of a tile: small enough for a CPU's shared cache, large enough to outweigh the start of its operations
CPU_ROWS, CPU_BLOCK = 256, 2048
# with fewer rows the items are read so often that computing each tile twice is faster (measured at 1M items)
LEAST_KEPT_ROWS = 96


@dataclass(frozen=True)
class Tiles:
    """``rows`` x ``block`` tiles; with ``keep``, a row chunk's tiles stay in memory between the two passes."""

    rows: int
    block: int
    keep: bool
    bytes: int


def cut(
    n: int,
    n_items: int,
    width: int,
    *,
    arrays: int,
    terms: int,
    itemsize: int,
    budget: int | None,
    compiled: bool = False,
    fused: bool = False,
) -> Tiles:
    """Choose the tiles of the exact cross-entropy for ``n`` rows, lifted to ``width`` numbers of ``itemsize`` bytes.

    ``arrays`` counts the numbers per (row, item) between the passes: 1 without a link, 2 with one (a ``fused`` kernel
    keeps only one). A ``compiled`` loss works in place. ``terms`` counts the numbers per item besides the weight and
    its gradient. ``budget`` bounds the bytes that grow with rows x items, those of the terms if tiles are kept, and
    those of the states' lifts. None is the default budget, plus the lifts if they do not fit. ValueError for a budget
    below the lifts and one row.
    """
    fixed, budget = bounded(n, n_items, width, arrays=arrays, itemsize=itemsize, link=arrays > 1, budget=budget)
    if fused:
        arrays, spare = 1, 0
    else:
        # compiled kernels need no tile besides those that are kept
        spare = arrays - 1 if compiled else arrays

    def cost(rows: int, block: int, keep: bool) -> int:
        saved_numbers = rows * (n_items if keep else block) * arrays
        # lifted items, the same times their scale, and their gradients; the Euclidean head uses the weight itself
        lifts = (2 if keep else 4) * width if terms else 0
        scratch = (rows * spare + lifts) * block + 2 * rows * width
        # maximum, sum and share of each tile
        sums = 3 * rows * -(-n_items // block) if keep else 5 * n
        return fixed + (saved_numbers + scratch + sums + terms * (n_items if keep else block)) * itemsize

    block = widest = min(n_items, CPU_BLOCK)
    while block > 16 and cost(1, block, True) > budget:
        block //= 2
    each = cost(2, block, True) - cost(1, block, True)
    rows = min(n, CPU_ROWS, 1 + (budget - cost(1, block, True)) // each)
    wider = min(n_items, 4 * block)
    if rows <= CPU_ROWS // 4 and cost(rows, wider, True) <= budget:
        block = wider
    if rows >= min(n, LEAST_KEPT_ROWS):
        return Tiles(rows, block, True, cost(rows, block, True))
    rows, block = min(n, 2 * CPU_ROWS // arrays), widest
    # with wide items and few rows, a smaller block saves more memory and keeps the products from becoming thin
    lifts = 4 * width + terms if terms else 0
    while cost(rows, block, False) > budget and max(rows, block) > 1:
        if block == 1 or (rows > 1 and rows * (arrays + spare) >= lifts):
            rows = -(-rows // 2)
        else:
            block = -(-block // 2)
    return Tiles(rows, block, False, cost(rows, block, False))


def bounded(
    n: int,
    n_items: int,
    width: int,
    *,
    arrays: int,
    itemsize: int,
    link: bool,
    budget: int | None,
    device: torch.device = CPU,
) -> tuple[int, int]:
    """Return the bytes of the lifts of ``n`` states, and the budget, which holds them and a row of ``arrays``."""
    # without a link the lifts are the states themselves; with one they are extra, with their graph
    fixed, row = (6 if link else 3) * n * width * itemsize, n_items * itemsize * arrays
    least = fixed + row
    if budget is None:
        budget = default_budget(device)
        if budget < least:
            budget = fixed + max(budget, row)
    if budget < least:
        raise ValueError(
            f"memory_budget={budget} (the key loss_memory_budget of a run) is under one row of logits: the lifts of "
            f"{n} states take {fixed} bytes and one row of {n_items} items {row} bytes; set it to {least} bytes "
            f"({math.ceil(least / 2**20)} MiB) or more, or leave it out"
        )
    return fixed, budget


def spans(start: int, stop: int, step: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``step`` from ``start`` to ``stop``."""
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def item_blocks(n_items: int, block: int, padding_idx: int | None) -> list[slice]:
    """Return slices that cover all items but the padding item."""
    if padding_idx is None:
        return list(spans(0, n_items, block))
    return [*spans(0, padding_idx, block), *spans(padding_idx + 1, n_items, block)]
