"""What every engine of the exact cross-entropy is given and returns, and tiles that keep its memory within a budget."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recbole_hyper.devices import CPU, default_budget
from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates, Theta, compute_dtype

# rows x items of a tile: small enough for a CPU's shared cache, large enough to outweigh the start of its operations
CPU_ROWS, CPU_BLOCK = 256, 2048
# with fewer rows the items are read so often that computing each tile twice is faster (measured at 1M items)
LEAST_KEPT_ROWS = 96


@dataclass(frozen=True)
class Sizes:
    """``n`` states and ``n_items`` items, lifted to ``width`` numbers of ``itemsize`` bytes.

    ``budget`` bounds the bytes that grow with rows x items, those of the terms if tiles are kept, and those of the
    states' lifts. None is the default budget of the ``device``, plus the lifts if they do not fit.
    """

    n: int
    n_items: int
    width: int
    itemsize: int
    link: bool = False
    budget: int | None = None
    device: torch.device = CPU

    def bounded(self, arrays: int) -> tuple[int, int]:
        """Return the bytes of the states' lifts, and the budget, which holds them and a row of ``arrays``.

        ValueError for a budget below these.
        """
        # without a link the lifts are the states themselves; with one they are extra, with their graph
        fixed = (6 if self.link else 3) * self.n * self.width * self.itemsize
        row = self.n_items * self.itemsize * arrays
        least, budget = fixed + row, self.budget
        if budget is None:
            budget = default_budget(self.device)
            if budget < least:
                budget = fixed + max(budget, row)
        if budget < least:
            raise ValueError(
                f"memory_budget={budget} (the key loss_memory_budget of a run) is under one row of logits: the lifts "
                f"of {self.n} states take {fixed} bytes, one row of {self.n_items} items {row}; set it to {least} "
                f"bytes ({math.ceil(least / 2**20)} MiB) or more, or leave it out"
            )
        return fixed, budget


class Gradients(NamedTuple):
    """Gradients of states, weight, offset and theta; None where not needed."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    theta: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """One evaluation: its tensors, and whether the gradients of states, weight, offset and theta are needed.

    ``budget`` bounds the bytes of the logits, None is the default. ``smoothing`` is the share of the target that is
    spread evenly over all items; whole rows include it, the other engines leave it to their caller.
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
    needs: tuple[bool, ...] = (True, True, True, True)

    @property
    def sizes(self) -> Sizes:
        """The sizes that decide how much is computed at once; an offset is one more number of a lift."""
        (n, width), link, device = self.states.shape, self.geometry.has_link, self.states.device
        lifted = width + (self.offset is not None)
        return Sizes(n, len(self.weight), lifted, self.dtype.itemsize, link, self.budget, device)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the loss is computed."""
        return compute_dtype(self.states, self.weight, self.offset)

    def leaf(self, tensor: Tensor, needed: bool) -> Tensor:
        """Return a tensor in the computing dtype, without its graph."""
        return tensor.detach().to(self.dtype).requires_grad_(needed)

    def leaf_of_theta(self) -> Theta:
        """Return theta as a leaf if it is a tensor."""
        return self.leaf(self.theta, self.needs[3]) if isinstance(self.theta, Tensor) else self.theta


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
    pairs: Iterable[tuple[Tensor | None, Tensor | None]], inputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of ``inputs`` from pairs (output of a lift, its gradient); None where there is none."""
    known = [(one, by) for one, by in pairs if one is not None and by is not None and one.requires_grad]
    wanted = [one for one in inputs if one is not None]
    if not known or not wanted:
        return [None] * len(inputs)
    outputs, gradients = zip(*known, strict=True)
    found = list(torch.autograd.grad(outputs, wanted, gradients, allow_unused=True))
    return [None if one is None else found.pop(0) for one in inputs]


@dataclass(frozen=True)
class Tiles:
    """``rows`` x ``block`` tiles; with ``keep``, a row chunk's tiles stay in memory between the two passes."""

    rows: int
    block: int
    keep: bool
    bytes: int


def cut(sizes: Sizes, *, arrays: int, spare: int, terms: int) -> Tiles:
    """Choose the tiles of the exact cross-entropy.

    ``arrays`` counts the numbers per (row, item) that are kept between the passes, ``spare`` those that a tile needs
    besides, and ``terms`` the numbers per item besides the weight and its gradient.
    """
    n, n_items, width, itemsize = sizes.n, sizes.n_items, sizes.width, sizes.itemsize
    fixed, budget = sizes.bounded(2 if sizes.link else 1)

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
