"""Exact cross-entropy on a GPU: products, link and softmax of a tile in registers, by Triton.

Never timed: no GPU was at hand. What it computes is tested by Triton's interpreter on the CPU.
Plain twin: the torch operations of ``losses._stream.ItemStream``.
Kept for: its memory. No tile of logits exists: beside the gradients it holds three numbers a row, six an item, and
``SPLITS`` copies of the gradient of the states; the twin holds eight numbers for each logit of a tile with a link.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

#: rows and items of a tile, and the widest vectors that are held at once
ROWS, ITEMS, WIDEST = 64, 64, 256
#: parts of the catalogue that row blocks meet side by side: a GPU has more processors than there are blocks of rows
SPLITS = 8


@dataclass(frozen=True)
class Operands:
    """What logits are computed from; all float32 and contiguous, None for what a geometry does not have.

    logit(i, j) = scale_j * link(multiplier_j * <space_i, weight_j> + column_i * extra_j), link being the identity or
    asinh(. * exp(state_exponent_i + item_exponent_j)).

    Attributes:
        space: (n, d). column, state_exponent: (n,).
        weight: (m, d). multiplier, extra, scale, item_exponent: (m,).
        asinh: whether link is asinh.
        padding: the item that is not scored; -1 for none.
    """

    space: Tensor
    weight: Tensor
    column: Tensor | None
    state_exponent: Tensor | None
    multiplier: Tensor | None
    extra: Tensor | None
    scale: Tensor | None
    item_exponent: Tensor | None
    asinh: bool
    padding: int

    def arguments(self) -> list[Tensor]:
        """Return the tensors in the order of the kernels; what is None is never read."""
        given = (self.column, self.state_exponent, self.multiplier, self.extra, self.scale, self.item_exponent)
        return [self.space, self.weight, *(self.space if tensor is None else tensor for tensor in given)]

    def constants(self) -> dict[str, object]:
        """Return what is known when a kernel is compiled."""
        precise = torch.get_float32_matmul_precision() == "highest"
        return {
            "EXTRA": self.extra is not None,
            "MULTIPLIER": self.multiplier is not None,
            "SCALE": self.scale is not None,
            "EXPONENT": self.state_exponent is not None and self.item_exponent is not None,
            "ASINH": self.asinh,
            "ROWS": ROWS,
            "ITEMS": ITEMS,
            "WIDTH": max(16, triton.next_power_of_2(self.space.shape[1])),
            "PRECISION": "ieee" if precise else "tf32",
        }

    def sizes(self) -> tuple[int, int, int, int]:
        """Return n, m, d and the padding item."""
        return len(self.space), len(self.weight), self.space.shape[1], self.padding


def totals(given: Operands) -> tuple[Tensor, Tensor]:
    """Return the largest logit of each row (n,) and the sum of exp(logit - largest) (n,)."""
    n, m, *_ = given.sizes()
    top, total = given.space.new_empty(2, SPLITS, n)
    grid = (triton.cdiv(n, ROWS), SPLITS)
    share = triton.cdiv(triton.cdiv(m, ITEMS), SPLITS) * ITEMS
    _totals[grid](*given.arguments(), top, total, *given.sizes(), share, **given.constants())
    highest = top.amax(0)
    return highest, (total * torch.exp(top - highest)).sum(0)


def state_gradients(given: Operands, top: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``space`` (n, d) and ``column`` (n,), of losses whose softmax is weighed by ``factor``.

    ``top`` (n,) is the largest logit, ``factor`` (n,) the weight of the row's loss over its total.
    """
    n, m, d, _ = given.sizes()
    space, column = given.space.new_empty(SPLITS, n, d), given.space.new_empty(SPLITS, n)
    grid = (triton.cdiv(n, ROWS), SPLITS)
    share = triton.cdiv(triton.cdiv(m, ITEMS), SPLITS) * ITEMS
    _state_gradients[grid](*given.arguments(), top, factor, space, column, *given.sizes(), share, **given.constants())
    return space.sum(0), column.sum(0)


def item_gradients(given: Operands, top: Tensor, factor: Tensor, weight: Tensor, extra: Tensor, scale: Tensor) -> None:
    """Write the gradients by the lifted items: by their first d columns (m, d), the extra one (m,) and the scale (m,).

    As ``losses._stream`` holds them: not times the scale, and that of the scale times the scale.
    """
    grid = (triton.cdiv(given.sizes()[1], ITEMS),)
    _item_gradients[grid](*given.arguments(), top, factor, weight, extra, scale, *given.sizes(), **given.constants())


@triton.jit
def _rows_of(
    space, column, state_exponent, row, n, d, EXTRA: tl.constexpr, EXPONENT: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Load a block of states (ROWS, WIDTH), their columns (ROWS,) and exponents (ROWS,)."""
    place = tl.arange(0, WIDTH)
    here = row < n
    vectors = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & (place < d)[None, :], 0.0)
    columns = tl.load(column + row, here, 0.0) if EXTRA else tl.zeros_like(row).to(tl.float32)
    exponents = tl.load(state_exponent + row, here, 0.0) if EXPONENT else tl.zeros_like(row).to(tl.float32)
    return vectors, columns, exponents


@triton.jit
def _items_of(weight, item, m, d, WIDTH: tl.constexpr):
    """Load a block of items (ITEMS, WIDTH)."""
    place = tl.arange(0, WIDTH)
    return tl.load(
        weight + item.to(tl.int64)[:, None] * d + place[None, :], (item < m)[:, None] & (place < d)[None, :], 0.0
    )


@triton.jit
def _term(pointer, item, m, there: tl.constexpr, otherwise: tl.constexpr):
    """Load a number for each item, or ``otherwise`` where the geometry has none."""
    return tl.load(pointer + item, item < m, otherwise) if there else tl.zeros_like(item).to(tl.float32) + otherwise


@triton.jit
def _tile(
    states, columns, exponents, items, multiplier, extra, scale, item_exponent, item, m, padding,
    EXTRA: tl.constexpr, MULTIPLIER: tl.constexpr, SCALE: tl.constexpr, EXPONENT: tl.constexpr, ASINH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return logits and slopes of a tile (ROWS, ITEMS), with the terms of the items; -inf where nothing is scored."""
    factor = _term(multiplier, item, m, MULTIPLIER, 1.0)
    own_extra = _term(extra, item, m, EXTRA, 0.0)
    own_scale = _term(scale, item, m, SCALE, 1.0)
    value = tl.dot(states, tl.trans(items), input_precision=PRECISION) * factor[None, :]
    value += columns[:, None] * own_extra[None, :]
    slope = tl.zeros_like(value) + 1.0
    if ASINH:
        exponent = exponents[:, None] + _term(item_exponent, item, m, EXPONENT, 0.0)[None, :]
        # as geometry._math.scaled_asinh_values
        taken = tl.minimum(exponent, 41.36)
        floor, size = tl.exp(-taken), tl.abs(value)
        root = tl.sqrt(floor * floor + size * size)
        y = size * (1.0 + size / (floor + root)) / floor
        # log1p: the rounding of 1 + y is divided out
        one = 1.0 + y
        log = tl.where(one == 1.0, y, tl.log(one) * (y / tl.where(one == 1.0, 1.0, one - 1.0))) + (exponent - taken)
        value = tl.where(value < 0, -log, tl.where(value > 0, log, 0.0))
        slope = 1.0 / root
    scored = (item < m) & (item != padding)
    logit = tl.where(scored[None, :], value * own_scale[None, :], float("-inf"))
    return logit, slope, factor, own_extra, own_scale


@triton.jit
def _totals(
    space, weight, column, state_exponent, multiplier, extra, scale, item_exponent, top, total, n, m, d, padding, share,
    EXTRA: tl.constexpr, MULTIPLIER: tl.constexpr, SCALE: tl.constexpr, EXPONENT: tl.constexpr, ASINH: tl.constexpr,
    ROWS: tl.constexpr, ITEMS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the largest logit and the sum of exponentials of a block of rows over its share of the items."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    states, columns, exponents = _rows_of(space, column, state_exponent, row, n, d, EXTRA, EXPONENT, WIDTH)
    first = tl.program_id(1) * share
    highest = tl.full((ROWS,), -3.0e38, tl.float32)
    found = tl.zeros((ROWS,), tl.float32)
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        items = _items_of(weight, item, m, d, WIDTH)
        logit, _, _, _, _ = _tile(
            states, columns, exponents, items, multiplier, extra, scale, item_exponent, item, m, padding,
            EXTRA, MULTIPLIER, SCALE, EXPONENT, ASINH, PRECISION,
        )  # fmt: skip
        above = tl.maximum(highest, tl.max(logit, 1))
        found = found * tl.exp(highest - above) + tl.sum(tl.exp(logit - above[:, None]), 1)
        highest = above
    place = tl.program_id(1) * n + row
    tl.store(top + place, highest, row < n)
    tl.store(total + place, found, row < n)


@triton.jit
def _state_gradients(
    space, weight, column, state_exponent, multiplier, extra, scale, item_exponent, top, factor, d_space, d_column,
    n, m, d, padding, share,
    EXTRA: tl.constexpr, MULTIPLIER: tl.constexpr, SCALE: tl.constexpr, EXPONENT: tl.constexpr, ASINH: tl.constexpr,
    ROWS: tl.constexpr, ITEMS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of states from its share of the items."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    states, columns, exponents = _rows_of(space, column, state_exponent, row, n, d, EXTRA, EXPONENT, WIDTH)
    highest, weigh = tl.load(top + row, row < n, 0.0), tl.load(factor + row, row < n, 0.0)
    first = tl.program_id(1) * share
    by_space = tl.zeros((ROWS, WIDTH), tl.float32)
    by_column = tl.zeros((ROWS,), tl.float32)
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        items = _items_of(weight, item, m, d, WIDTH)
        logit, slope, own_factor, own_extra, own_scale = _tile(
            states, columns, exponents, items, multiplier, extra, scale, item_exponent, item, m, padding,
            EXTRA, MULTIPLIER, SCALE, EXPONENT, ASINH, PRECISION,
        )  # fmt: skip
        share_of = tl.exp(logit - highest[:, None]) * weigh[:, None] * slope * own_scale[None, :]
        by_column += tl.sum(share_of * own_extra[None, :], 1)
        by_space += tl.dot(share_of * own_factor[None, :], items, input_precision=PRECISION)
    part = tl.program_id(1) * n + row
    place = tl.arange(0, WIDTH)
    tl.store(d_space + part[:, None] * d + place[None, :], by_space, (row < n)[:, None] & (place < d)[None, :])
    tl.store(d_column + part, by_column, row < n)


@triton.jit
def _item_gradients(
    space, weight, column, state_exponent, multiplier, extra, scale, item_exponent, top, factor, d_weight, d_extra,
    d_scale, n, m, d, padding,
    EXTRA: tl.constexpr, MULTIPLIER: tl.constexpr, SCALE: tl.constexpr, EXPONENT: tl.constexpr, ASINH: tl.constexpr,
    ROWS: tl.constexpr, ITEMS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of items from all rows."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    items = _items_of(weight, item, m, d, WIDTH)
    by_weight = tl.zeros((ITEMS, WIDTH), tl.float32)
    by_extra = tl.zeros((ITEMS,), tl.float32)
    by_scale = tl.zeros((ITEMS,), tl.float32)
    scored = (item < m) & (item != padding)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        states, columns, exponents = _rows_of(space, column, state_exponent, row, n, d, EXTRA, EXPONENT, WIDTH)
        highest, weigh = tl.load(top + row, row < n, 0.0), tl.load(factor + row, row < n, 0.0)
        logit, slope, _, _, _ = _tile(
            states, columns, exponents, items, multiplier, extra, scale, item_exponent, item, m, padding,
            EXTRA, MULTIPLIER, SCALE, EXPONENT, ASINH, PRECISION,
        )  # fmt: skip
        softmax = tl.exp(logit - highest[:, None]) * weigh[:, None]
        by_scale += tl.sum(softmax * tl.where(scored[None, :], logit, 0.0), 0)
        softmax *= slope
        by_extra += tl.sum(softmax * columns[:, None], 0)
        by_weight += tl.dot(tl.trans(softmax), states, input_precision=PRECISION)
    place = tl.arange(0, WIDTH)
    here = (item < m)[:, None] & (place < d)[None, :]
    tl.store(d_weight + item.to(tl.int64)[:, None] * d + place[None, :], by_weight, here)
    tl.store(d_extra + item, by_extra, item < m)
    tl.store(d_scale + item, by_scale, item < m)
