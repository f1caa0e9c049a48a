"""Exact cross-entropy on a GPU in Triton: the products, link and softmax of a tile stay in registers.

**Never timed**: no GPU was at hand. Triton's interpreter on the CPU tests the results. No tile of logits exists in
memory: besides the gradients there are ``SPLITS`` copies of the states' gradient, 4 numbers per row and 6 per item.

logit(i, j) = scale_j * link(multiplier_j * <space_i, weight_j> + column_i * extra_j), where the link is the identity or
asinh(. * exp(exponent_i + exponent_j)). ``rows`` (2, n) are the column and exponent of the states, ``terms`` (4, m) the
multiplier, extra column, scale and exponent of the items. A term that a geometry does not have is 0 or 1.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from recbole_hyper.losses import _chunks
from recbole_hyper.losses._stream import ItemStream

#: rows and items of a tile, and the widest vectors that fit
ROWS, ITEMS, WIDEST = 64, 64, 256
#: parts of the catalogue that run in parallel: a GPU has more processors than there are blocks of rows
SPLITS = 8


class TritonStream(ItemStream):
    """One evaluation with three kernels: totals, gradients of states, gradients of items. It has no tiles.

    ValueError for a device, precision, width or geometry that the kernels do not support.
    """

    def _plan(self, budget: int | None) -> None:
        device, geometry = self.vectors.device.type, self.geometry
        self.on_cpu = device == "cpu"
        reason = None
        if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            reason = f"it needs a CUDA or ROCm device, and this is {device}"
        elif self.dtype != torch.float32:
            reason = f"the kernels compute in float32, not in {self.dtype}"
        elif self.dim > WIDEST:
            reason = f"the kernels take vectors of at most {WIDEST} numbers, not {self.dim}"
        elif self.vectors.shape[1] > self.dim + 1 or (geometry.has_link and not geometry.asinh_link):
            reason = f"the kernels have no link but asinh and one extra column; {type(geometry).__name__} needs more"
        if reason is not None:
            raise ValueError(f"triton_kernel=True: {reason}; leave it out")

    def _sweep(self, losses: Tensor, row_weights: Tensor | None) -> None:
        like, n, m, d = self.vectors, len(losses), self.n_items, self.dim
        rows, terms = like.new_zeros(2, n), like.new_empty(4, m)
        if like.shape[1] > d:
            rows[0] = like[:, d]
        if self.lifted.exponent is not None:
            rows[1] = self.lifted.exponent
        parts = list(_chunks.spans(0, m, _chunks.GPU_BLOCK))
        for part in parts:
            for target, term, default in zip(terms, self._terms_of(part), (1.0, 0.0, 1.0, 0.0), strict=True):
                target[part] = default if term is None else term.reshape(-1)
        weight = self.weight.detach().to(self.dtype).contiguous()
        padding = -1 if self.padding_idx is None else self.padding_idx
        shared = (like[:, :d].contiguous(), weight, rows, terms, n, m, d, padding)
        constants = {
            "ASINH": self.geometry.has_link,
            "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            "WIDTH": max(16, triton.next_power_of_2(d)),
            "ROWS": ROWS,
            "ITEMS": ITEMS,
        }
        grid, share = (triton.cdiv(n, ROWS), SPLITS), triton.cdiv(triton.cdiv(m, ITEMS), SPLITS) * ITEMS
        tops, totals = like.new_empty(2, SPLITS, n)
        _totals[grid](*shared, share, tops, totals, **constants)
        top = tops.amax(0)
        total = (totals * torch.exp(tops - top)).sum(0)
        losses.copy_(top - self.target_logits + total.log())
        if row_weights is None:
            return
        weighing = torch.stack((top, row_weights / total))
        if self.d_vectors is not None:
            by_states = like.new_empty(SPLITS, n, d + 1)
            _state_gradients[grid](*shared, share, weighing, by_states, **constants)
            self.d_vectors += by_states.sum(0)[:, : like.shape[1]]
        if self.d_weight is not None:
            sums = like.new_empty(2, m)
            _item_gradients[(triton.cdiv(m, ITEMS),)](*shared, weighing, self.d_weight, sums, **constants)
            for part in parts:
                block = self._block(part, gradients=True)
                if block.d_extra is not None:
                    block.d_extra[:, 0] = sums[0, part]
                if block.d_scale is not None:
                    block.d_scale.copy_(sums[1, part])
                self._lift_back(block, row_weights)


@triton.jit
def _states(space, rows, row, n, d, WIDTH: tl.constexpr):
    """Load a block of states (ROWS, WIDTH), their columns and exponents (ROWS,)."""
    place, here = tl.arange(0, WIDTH), row < n
    vectors = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & (place < d)[None, :], 0.0)
    return vectors, tl.load(rows + row, here, 0.0), tl.load(rows + n + row, here, 0.0)


@triton.jit
def _items(weight, terms, item, m, d, padding, WIDTH: tl.constexpr):
    """Load a block of items (ITEMS, WIDTH); their multipliers, extra columns, scales, exponents, and mask (ITEMS,)."""
    place, here = tl.arange(0, WIDTH), item < m
    start = weight + item.to(tl.int64)[:, None] * d
    vectors = tl.load(start + place[None, :], here[:, None] & (place < d)[None, :], 0.0)
    multiplier, extra = tl.load(terms + item, here, 0.0), tl.load(terms + m + item, here, 0.0)
    return (
        vectors,
        multiplier,
        extra,
        tl.load(terms + 2 * m + item, here, 0.0),
        tl.load(terms + 3 * m + item, here, 0.0),
        here & (item != padding),
    )


@triton.jit
def _logits(
    states, column, row_exp, items, multiplier, extra, scale, item_exp, mask,
    ASINH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the logits and slopes of a tile (ROWS, ITEMS); the logit of a masked item is -inf."""
    value = tl.dot(states, tl.trans(items), input_precision=PRECISION) * multiplier[None, :]
    value += column[:, None] * extra[None, :]
    slope = tl.zeros_like(value) + 1.0
    if ASINH:  # as geometry._math.scaled_asinh_values
        exponent = row_exp[:, None] + item_exp[None, :]
        taken = tl.minimum(exponent, 41.36)
        floor, size = tl.exp(-taken), tl.abs(value)
        root = tl.sqrt(floor * floor + size * size)
        y = size * (1.0 + size / (floor + root)) / floor
        # log1p: the rounding of 1 + y is divided out
        one = 1.0 + y
        log = tl.where(one == 1.0, y, tl.log(one) * (y / tl.where(one == 1.0, 1.0, one - 1.0))) + (exponent - taken)
        value = tl.where(value < 0, -log, tl.where(value > 0, log, 0.0))
        slope = 1.0 / root
    return tl.where(mask[None, :], value * scale[None, :], float("-inf")), slope


@triton.jit
def _totals(
    space, weight, rows, terms, n, m, d, padding, share, top, total,
    ASINH: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """Write the largest logit and the sum of exponentials for a block of rows over its share of the items."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    states, column, row_exp = _states(space, rows, row, n, d, WIDTH)
    first = tl.program_id(1) * share
    highest, sums = tl.full((ROWS,), -3.0e38, tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        items, multiplier, extra, scale, item_exp, mask = _items(weight, terms, item, m, d, padding, WIDTH)
        logit, _ = _logits(states, column, row_exp, items, multiplier, extra, scale, item_exp, mask, ASINH, PRECISION)
        above = tl.maximum(highest, tl.max(logit, 1))
        sums = sums * tl.exp(highest - above) + tl.sum(tl.exp(logit - above[:, None]), 1)
        highest = above
    place = tl.program_id(1) * n + row
    tl.store(top + place, highest, row < n)
    tl.store(total + place, sums, row < n)


@triton.jit
def _state_gradients(
    space, weight, rows, terms, n, m, d, padding, share, weighing, by_states,
    ASINH: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """Write the gradients (d + 1 numbers) of a block of states from its share of the items."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    states, column, row_exp = _states(space, rows, row, n, d, WIDTH)
    highest, factor = tl.load(weighing + row, row < n, 0.0), tl.load(weighing + n + row, row < n, 0.0)
    first = tl.program_id(1) * share
    by_space, by_column = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        items, multiplier, extra, scale, item_exp, mask = _items(weight, terms, item, m, d, padding, WIDTH)
        logit, slope = _logits(
            states, column, row_exp, items, multiplier, extra, scale, item_exp, mask, ASINH, PRECISION
        )
        softmax = tl.exp(logit - highest[:, None]) * factor[:, None] * slope * scale[None, :]
        by_column += tl.sum(softmax * extra[None, :], 1)
        by_space += tl.dot(softmax * multiplier[None, :], items, input_precision=PRECISION)
    target, place = by_states + (tl.program_id(1) * n + row) * (d + 1), tl.arange(0, WIDTH)
    tl.store(target[:, None] + place[None, :], by_space, (row < n)[:, None] & (place < d)[None, :])
    tl.store(target + d, by_column, row < n)


@triton.jit
def _item_gradients(
    space, weight, rows, terms, n, m, d, padding, weighing, by_weight, sums,
    ASINH: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """Write gradients of lifted items: first d columns into by_weight; extra column and scale (times it) into sums."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    items, multiplier, extra, scale, item_exp, mask = _items(weight, terms, item, m, d, padding, WIDTH)
    by_item = tl.zeros((ITEMS, WIDTH), tl.float32)
    by_extra, by_scale = tl.zeros((ITEMS,), tl.float32), tl.zeros((ITEMS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        states, column, row_exp = _states(space, rows, row, n, d, WIDTH)
        highest, factor = tl.load(weighing + row, row < n, 0.0), tl.load(weighing + n + row, row < n, 0.0)
        logit, slope = _logits(
            states, column, row_exp, items, multiplier, extra, scale, item_exp, mask, ASINH, PRECISION
        )
        softmax = tl.exp(logit - highest[:, None]) * factor[:, None]
        by_scale += tl.sum(softmax * tl.where(mask[None, :], logit, 0.0), 0)
        softmax *= slope
        by_extra += tl.sum(softmax * column[:, None], 0)
        by_item += tl.dot(tl.trans(softmax), states, input_precision=PRECISION)
    place = tl.arange(0, WIDTH)
    target = by_weight + item.to(tl.int64)[:, None] * d + place[None, :]
    tl.store(target, by_item, (item < m)[:, None] & (place < d)[None, :])
    tl.store(sums + item, by_extra, item < m)
    tl.store(sums + m + item, by_scale, item < m)
