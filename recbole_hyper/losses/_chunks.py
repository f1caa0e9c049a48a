"""What every engine of the exact cross-entropy is given and returns, and tiles that keep its memory within a budget."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recbole_hyper.devices import default_budget
from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates, Theta, compute_dtype

# rows x items of a tile: small enough for a CPU's shared cache, large enough to outweigh the start of its operations
CPU_ROWS, CPU_BLOCK = 256, 2048
# with fewer rows the items are read so often that computing each tile twice is faster (measured at 1M items)
LEAST_KEPT_ROWS = 96


class Gradients(NamedTuple):
    """Gradients of states, weight, offset and theta; None where not needed."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    theta: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """One evaluation: its tensors, and whether gradients are ``needed``.

    ``budget`` bounds the bytes that grow with rows x items, those of the terms if tiles are kept, and those of the
    states' lifts. None is the default budget of the device, plus the lifts if they do not fit. ``smoothing`` is the
    share of the target that is spread evenly over all items; whole rows include it, the other engines leave it to their
    caller.
    """

    states: Tensor
    targets: Tensor
    weight: Tensor
    offset: Tensor | None
    theta: Theta
    geometry: Geometry
    padding_idx: int | None
    budget: int | None = None
    smoothing: float = 0.0
    needed: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the loss is computed."""
        return compute_dtype(self.states, self.weight, self.offset)

    @property
    def width(self) -> int:
        """How many numbers a lift has at most: an offset is one more."""
        return self.states.shape[1] + (self.offset is not None)

    def bounded(self, arrays: int) -> tuple[int, int]:
        """Return the bytes of the states' lifts, and the budget, which holds them and a row of ``arrays``.

        ValueError for a budget below these.
        """
        n, n_items, itemsize = len(self.states), len(self.weight), self.dtype.itemsize
        # without a link the lifts are the states themselves; with one they are extra, with their graph
        fixed = (6 if self.geometry.has_link else 3) * n * self.width * itemsize
        row = n_items * itemsize * arrays
        least, budget = fixed + row, self.budget
        if budget is None:
            budget = default_budget(self.states.device)
            if budget < least:
                budget = fixed + max(budget, row)
        if budget < least:
            raise ValueError(
                f"memory_budget={budget} (the key loss_memory_budget of a run) is under one row of logits: the lifts "
                f"of {n} states take {fixed} bytes, one row of {n_items} items {row}; set it to {least} bytes "
                f"({math.ceil(least / 2**20)} MiB) or more, or leave it out"
            )
        return fixed, budget

    def leaf(self, one: Any) -> Any:
        """Return a tensor in the computing dtype, without its graph; a number and None stay."""
        return one.detach().to(self.dtype).requires_grad_(self.needed) if isinstance(one, Tensor) else one


def kept_gradients(ctx: Any, gradient: Tensor) -> list[Tensor | None]:
    """Return the gradients that a forward pass left in ``ctx``, times ``gradient``; RuntimeError for a second time."""
    gradients, ctx.gradients = ctx.gradients, None
    if gradients is None:
        raise RuntimeError("cross_entropy keeps its gradients for one backward only: compute the loss once more")
    # in place: a copy would double the memory of the item gradient
    torch._foreach_mul_([one for one in gradients if one is not None], gradient)
    return gradients


def exponent_of(lifted: LiftedStates, terms: ItemTerms, rows: slice) -> Tensor | None:
    """Return the exponents (h, m) that were taken out of the products of some rows with items, None for 0."""
    if lifted.exponent is None or terms.exponent is None:
        return None
    return lifted.exponent.detach()[rows].unsqueeze(1) + terms.exponent.detach()


def lifted_back(
    pairs: Iterable[tuple[Tensor | None, Tensor | None]], inputs: Sequence[Tensor | Theta | None]
) -> list[Tensor | None]:
    """Return the gradients of ``inputs`` from pairs (output of a lift, its gradient); None where there is none."""
    known = [(one, by) for one, by in pairs if one is not None and by is not None and one.requires_grad]
    wanted = [one for one in inputs if isinstance(one, Tensor)]
    if not known:
        return [None] * len(inputs)
    outputs, gradients = zip(*known, strict=True)
    found = list(torch.autograd.grad(outputs, wanted, gradients, allow_unused=True))
    return [found.pop(0) if isinstance(one, Tensor) else None for one in inputs]


@dataclass(frozen=True)
class Tiles:
    """``rows`` x ``block`` tiles; with ``keep``, a row chunk's tiles stay in memory between the two passes."""

    rows: int
    block: int
    keep: bool
    bytes: int


def cut(problem: Problem, *, arrays: int, spare: int, terms: int) -> Tiles:
    """Choose the tiles of the exact cross-entropy.

    ``arrays`` counts the numbers per (row, item) that are kept between the passes, ``spare`` those that a tile needs
    besides, and ``terms`` the numbers per item besides the weight and its gradient.
    """
    n, n_items, width, itemsize = len(problem.states), len(problem.weight), problem.width, problem.dtype.itemsize
    fixed, budget = problem.bounded(2 if problem.geometry.has_link else 1)

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


def spans(start: int, stop: int, step: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``step`` from ``start`` to ``stop``."""
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def item_blocks(n_items: int, block: int, padding_idx: int | None) -> list[slice]:
    """Return slices that cover all items but the padding item."""
    if padding_idx is None:
        return list(spans(0, n_items, block))
    return [*spans(0, padding_idx, block), *spans(padding_idx + 1, n_items, block)]
