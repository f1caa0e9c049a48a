"""The Poincare head over whole rows of logits on a GPU: its lifts and its link are one Triton kernel each.

In torch's operations the lifts, their gradients and the link take 80 launches a step, and the link ten passes over the
logits. Here they take five launches, and the link one pass. The formulas are those of the geometry: A = [k F, -C] and
B = [C_b z / |z|, S_b], all times exp(-exponent), with the scale 2 |z| / sqrt(c).

Triton's interpreter tests the results on a CPU, and an H200 ran the tests and trained with them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from recbole_hyper.geometry.poincare import NORM_FLOOR
from recbole_hyper.losses._rows import RowStream
from recbole_hyper.losses._stream import Gradients
from recbole_hyper.losses._triton import _LOG2_E, SMALLEST_FLOOR, _asinh

#: rows of a block in the lifts, and logits of one in the link
ROWS, LOGITS = 16, 1024
_FLOOR = tl.constexpr(NORM_FLOOR)
_LOWEST = tl.constexpr(SMALLEST_FLOOR**2)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Start a kernel."""
    kernel[grid](*arguments, **constants)


class PoincareRows(RowStream):
    """:class:`RowStream` for the Poincare head in float32, with kernels for lifts and link."""

    def _lift(self) -> None:
        n, d = self.states.shape
        extra = self.offset is not None
        like = self.states.detach()
        self.vectors, self.exponents = like.new_empty(n, d + extra), like.new_empty(n)
        self._theta = self.theta.detach() if isinstance(self.theta, Tensor) else float(self.theta)
        self._constants = {
            "LEARNED": isinstance(self.theta, Tensor), "OFFSET": extra, "WIDTH": triton.next_power_of_2(d), "ROWS": ROWS
        }  # fmt: skip
        self._start(_lift_states, n, like.contiguous(), self.vectors, self.exponents)

    def _start(self, kernel: Any, n: int, *tensors: Tensor) -> None:
        """Start a kernel over blocks of ``n`` rows or items."""
        launch(kernel, (triton.cdiv(n, ROWS),), self._theta, *tensors, n, self.states.shape[1], **self._constants)

    def _lifted_items(self) -> tuple[Tensor, Tensor | None, Tensor]:
        weight = self.weight.detach().contiguous()
        m, d = weight.shape
        vectors, scaled = weight.new_empty(2, m, d + (self.offset is not None)).unbind()
        self.terms_of_items = scale, _ = weight.new_empty(2, m).unbind()
        self._start(_lift_items, m, weight, self._offset(weight), vectors, scaled, *self.terms_of_items)
        return vectors, scale, scaled

    def _offset(self, weight: Tensor) -> Tensor:
        return weight if self.offset is None else self.offset.detach().contiguous()

    def _to_logits(self, inner: Tensor, part: slice, scale: Tensor | None) -> Tensor:
        slope = torch.empty_like(inner)
        (n, m), exponents = inner.shape, self.exponents[part]
        launch(
            _link,
            (n, triton.cdiv(m, LOGITS)),
            inner,
            slope,
            exponents,
            *self.terms_of_items,
            m,
            self.padding,
            BLOCK=LOGITS,
        )
        return slope

    def _finish(self, by_states: Tensor, by_items: Tensor, share: Tensor | None) -> Gradients:
        states, weight = self.states.detach().contiguous(), self.weight.detach().contiguous()
        own, of_items = torch.empty_like(states), torch.empty_like(weight)
        by_offset = weight.new_empty(len(weight))
        theta_of_states, theta_of_items = self.exponents, torch.empty_like(by_offset)  # the exponents are used up
        assert share is not None
        self._start(_states_back, len(states), states, by_states, own, theta_of_states)
        self._start(
            _items_back, len(weight), weight, self._offset(weight), by_items, share, of_items, by_offset, theta_of_items
        )
        found: list[Tensor | None] = [own, of_items, None if self.offset is None else by_offset, None]
        if self.needs[3]:
            found[3] = theta_of_states.sum() + theta_of_items.sum()
        return Gradients(*(one if needed else None for one, needed in zip(found, self.needs, strict=True)))


@triton.jit
def _decay(y):
    """Return 1 - exp(-y) for y >= 0, by its series where the difference would lose digits."""
    series = y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4 * (1 - y / 5 * (1 - y / 6)))))
    return tl.where(y < 0.25, series, 1 - tl.exp(-y))


@triton.jit
def _curvature(theta, LEARNED: tl.constexpr):
    """Return c and sqrt(c)."""
    c = tl.load(theta) if LEARNED else theta
    return c, tl.sqrt(c + 0.0)


@triton.jit
def _states_of(states, row, n, d, theta, LEARNED: tl.constexpr, WIDTH: tl.constexpr):
    """Return F, |F|, k, C and the exponent of rows."""
    here, place = row < n, tl.arange(0, WIDTH)
    own = tl.load(states + row[:, None].to(tl.int64) * d + place[None, :], here[:, None] & (place < d)[None, :], 0.0)
    norm = tl.maximum(tl.sqrt(tl.sum(own * own, 1)), _FLOOR)
    _, root = _curvature(theta, LEARNED)
    x = norm * (2 * root)
    decay = _decay(2 * x)
    return own, norm, decay * 0.5 / norm, 1 - decay * 0.5, x


@triton.jit
def _items_of(weight, offset, item, m, d, theta, LEARNED: tl.constexpr, OFFSET: tl.constexpr, WIDTH: tl.constexpr):
    """Return z, |z|, cosh(b), sinh(b) and the exponent of items."""
    here, place = item < m, tl.arange(0, WIDTH)
    own = tl.load(weight + item[:, None].to(tl.int64) * d + place[None, :], here[:, None] & (place < d)[None, :], 0.0)
    norm = tl.maximum(tl.sqrt(tl.sum(own * own, 1)), _FLOOR)
    if OFFSET:
        _, root = _curvature(theta, LEARNED)
        b = tl.load(offset + item, here, 0.0) * (2 * root)
        decay = _decay(2 * tl.abs(b))
        return own, norm, 1 - decay * 0.5, tl.where(b < 0, -decay, decay) * 0.5, tl.abs(b)
    else:
        return own, norm, norm * 0.0 + 1.0, norm * 0.0, norm * 0.0


@triton.jit
def _lift_states(
    theta, states, vectors, exponents, n, d,
    LEARNED: tl.constexpr, OFFSET: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, place = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    own, _, rate, cosh, x = _states_of(states, row, n, d, theta, LEARNED, WIDTH)
    output = vectors + row.to(tl.int64) * (d + OFFSET)
    tl.store(output[:, None] + place[None, :], own * rate[:, None], (row < n)[:, None] & (place < d)[None, :])
    if OFFSET:
        tl.store(output + d, -cosh, row < n)
    tl.store(exponents + row, x, row < n)


@triton.jit
def _lift_items(
    theta, weight, offset, vectors, scaled, scales, exponents, m, d,
    LEARNED: tl.constexpr, OFFSET: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    item, place = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    own, norm, cosh, sinh, b = _items_of(weight, offset, item, m, d, theta, LEARNED, OFFSET, WIDTH)
    _, root = _curvature(theta, LEARNED)
    per_norm = 2 / root
    at, inside = item.to(tl.int64) * (d + OFFSET), (item < m)[:, None] & (place < d)[None, :]
    tl.store(vectors + at[:, None] + place[None, :], own * (cosh / norm)[:, None], inside)
    tl.store(scaled + at[:, None] + place[None, :], own * (cosh * per_norm)[:, None], inside)
    if OFFSET:
        tl.store(vectors + at + d, sinh, item < m)
        tl.store(scaled + at + d, sinh * norm * per_norm, item < m)
    tl.store(scales + item, norm * per_norm, item < m)
    tl.store(exponents + item, b, item < m)


@triton.jit
def _link(values, slopes, exponents, scales, item_exponents, m, padding, BLOCK: tl.constexpr):
    """Replace products by logits, the padding item's by a number that softmax takes for 0, and write the slopes."""
    row, item = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here, at = item < m, row.to(tl.int64) * m + item
    inner = tl.load(values + at, here, 0.0)
    exponent = tl.load(exponents + row) + tl.load(item_exponents + item, here, 0.0)
    floor = tl.maximum(tl.exp(-2 * exponent), _LOWEST)
    value, slope = _asinh(inner, floor, exponent * _LOG2_E)
    # the logarithm would lose the digits of small logits
    x = inner * tl.rsqrt(floor)
    square = x * x
    series = x * (1 - square * (1.0 / 6 - square * (3.0 / 40 - square * (15.0 / 336 - square * (105.0 / 3456)))))
    value = tl.where(tl.abs(x) < 0.25, series, value * (1 / _LOG2_E))
    value *= tl.load(scales + item, here, 0.0)
    tl.store(values + at, tl.where(item == padding, -3.0e38, value), here)
    tl.store(slopes + at, slope, here)


@triton.jit
def _states_back(
    theta, states, by_vectors, by_states, by_theta, n, d,
    LEARNED: tl.constexpr, OFFSET: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradients by states from those by their lifts, and each row's share of that by theta."""
    row, place = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    own, norm, rate, cosh, _ = _states_of(states, row, n, d, theta, LEARNED, WIDTH)
    c, root = _curvature(theta, LEARNED)
    inside, output = (row < n)[:, None] & (place < d)[None, :], by_vectors + row.to(tl.int64) * (d + OFFSET)
    by_space = tl.load(output[:, None] + place[None, :], inside, 0.0)
    along = tl.sum(by_space * own, 1)
    slope = along * ((cosh * (2 * root) - rate) / (norm * norm))
    if OFFSET:
        slope -= tl.load(output + d, row < n, 0.0) * rate * (2 * root)
    by_own = own * slope[:, None] + by_space * rate[:, None]
    tl.store(by_states + row[:, None].to(tl.int64) * d + place[None, :], by_own, inside)
    tl.store(by_theta + row, (slope * norm * norm + along * rate) / (2 * c), row < n)


@triton.jit
def _items_back(
    theta, weight, offset, by_products, shares, by_weight, by_offset, by_theta, m, d,
    LEARNED: tl.constexpr, OFFSET: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradients by weight and offset, and each item's share of that by theta.

    ``by_products`` are the gradients by the lifts over the scale, ``shares`` those by the scale times the scale.
    """
    item, place = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    own, norm, cosh, sinh, _ = _items_of(weight, offset, item, m, d, theta, LEARNED, OFFSET, WIDTH)
    c, root = _curvature(theta, LEARNED)
    inside, output = (item < m)[:, None] & (place < d)[None, :], by_products + item.to(tl.int64) * (d + OFFSET)
    by_space = tl.load(output[:, None] + place[None, :], inside, 0.0)
    along, share = tl.sum(by_space * own, 1), tl.load(shares + item, item < m, 0.0)
    # cosh / |z| and the scale depend on |z|
    slope = (share - along * cosh * (2 / root)) / (norm * norm)
    by_own = own * slope[:, None] + by_space * (cosh * (2 / root))[:, None]
    tl.store(by_weight + item[:, None].to(tl.int64) * d + place[None, :], by_own, inside)
    total = -share
    if OFFSET:
        by_b = (along * sinh + tl.load(output + d, item < m, 0.0) * cosh * norm) * (2 / root)
        tl.store(by_offset + item, by_b * (2 * root), item < m)
        total += by_b * (2 * root) * tl.load(offset + item, item < m, 0.0)
    tl.store(by_theta + item, total / (2 * c), item < m)
