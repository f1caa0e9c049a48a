"""Exact cross-entropy on a GPU in Triton: products, link and softmax of a tile stay in registers, in two passes.

The forward pass gives losses and the states' gradients at once: their sums follow a running maximum, as attention
kernels do with their values. The second pass gives the items' gradients. So a logit is computed twice, with four
products in all, and no logits exist in memory: besides the gradients there are ``SPLITS`` copies of the states'. With
a link, label smoothing takes a third pass, which sums the logits of each row, and their gradients.

logit(i, j) = scale_j * link(multiplier_j * <space_i, weight_j> + column_i * extra_j), where the link is the identity or
asinh(. * exp(exponent_i + exponent_j)). ``rows`` (3, n) are column, exponent and exp(exponent) of the states, ``terms``
(5, m) multiplier, extra column, scale, exponent and exp(exponent) of the items. A term that a geometry does not have is
0 or 1.

Triton's interpreter tests the results on a CPU, and its assembler that no register spills (sm_80 and sm_90, widths 32
to 256). **Never timed**: no GPU was at hand.
"""

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses._rows import RowStream
from recbole_hyper.losses._stream import Gradients

#: the widest vectors whose tiles fit into registers, and parts of the catalogue that run in parallel
WIDEST, SPLITS = 256, 8
#: a tile in the pass of the states and in that of the items, by the width of the vectors: its rows, items and warps,
#: and how many numbers of a vector one product of the logits takes
TILES = {
    32: ((16, 32, 4, 32), (32, 32, 4, 32)),
    64: ((32, 32, 4, 64), (32, 32, 4, 64)),
    128: ((32, 32, 8, 128), (16, 32, 8, 128)),
    256: ((32, 32, 8, 256), (32, 32, 8, 256)),
}
#: three TF32 products hold each number twice, and whole vectors of 256 numbers spill
WIDE_TILES = (32, 16, 8, 32), (16, 32, 8, 32)
#: three TF32 products are float32
PRECISIONS = {"highest": "tf32x3", "high": "tf32", "medium": "bf16"}
LOG2_E = 1.4426950408889634
_LOG2_E = tl.constexpr(LOG2_E)
# exponents above it leave the range of float32 when they are squared
_FAR = tl.constexpr(40.0)


def tiles_of(width: int, precision: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tiles of the two passes, as in ``TILES``."""
    return WIDE_TILES if width == WIDEST and precision == "tf32x3" else TILES[width]


def interprets() -> bool:
    """Return whether Triton's interpreter runs the kernels, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsupported(device: torch.device, dtype: torch.dtype, width: int, geometry: Geometry) -> str | None:
    """Return why the kernels cannot compute the loss of vectors of ``width``, None if they can."""
    if device.type != "cuda" and not interprets():
        return f"it needs a CUDA or ROCm device, and this is {device.type}"
    if dtype != torch.float32:
        return f"the kernels compute in float32, not in {dtype}"
    if width > WIDEST:
        return f"the kernels take vectors of at most {WIDEST} numbers, not {width}"
    if geometry.has_link and not geometry.asinh_link:
        return f"the kernels have no link but asinh; {type(geometry).__name__} needs another"
    return None


class _Sums(NamedTuple):
    """What the forward pass knows of each row: log2 of the sum of exponentials, and the logit of its target by ln 2."""

    log_total: Tensor
    target: Tensor
    slope: Tensor  # of the target's logit
    by_states: Tensor  # the gradient of the logarithm of the sum by the lifted state (n, d + 1)


class TritonStream(RowStream):
    """One evaluation with two kernels, without logits in memory."""

    @staticmethod
    def smooths(geometry: Geometry) -> bool:
        """Return whether the loss includes the smoothing: without a link the mean logit is one small product."""
        return geometry.has_link

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,), and unless ``row_weights`` (n,) is None the gradients of their weighted sum."""
        width = self.weight.shape[1]
        reason = unsupported(self.vectors.device, self.dtype, width, self.geometry)
        if reason is None and self.vectors.shape[1] > width + 1:
            reason = f"the kernels have one extra column; {type(self.geometry).__name__} needs more"
        if reason is not None:
            raise ValueError(f"triton_kernel=True: {reason}; leave it out")
        if not any(self.needs):
            row_weights = None
        self._prepare()
        sums = self._smoothed(self._forward())
        losses = (sums.log_total - sums.target) * (1 / LOG2_E)
        if row_weights is None:
            return losses, Gradients()
        return losses, self._backward(sums, row_weights)

    def _prepare(self) -> None:
        """Put the lifts into the form of the kernels."""
        like, (m, d) = self.vectors, self.weight.shape
        n = len(like)
        rows, terms = like.new_zeros(3, n), like.new_zeros(5, m)
        rows[2].fill_(1.0)
        terms[0::2].fill_(1.0)
        if like.shape[1] > d:
            rows[0] = like[:, d]
        exponents = (self.lifted.exponent, rows), (self.terms.exponent, terms)
        for exponent, target in exponents:
            if exponent is not None:
                target[-2] = exponent
                torch.exp(exponent.clamp(max=_FAR.value), out=target[-1])
        for target, term in zip(terms, (self.terms.multiplier, self.terms.extra, self.terms.scale), strict=False):
            if term is not None:
                target.copy_(term.detach().reshape(-1))
        precision = PRECISIONS[torch.get_float32_matmul_precision()]
        if precision == "bf16" and interprets():
            precision = "rounded"
        width = max(32, triton.next_power_of_2(d))
        self.tiles = tiles_of(width, precision)
        tensors = (like[:, :d].contiguous(), self.weight.detach().contiguous(), rows, terms, self.targets)
        self.shared = (*tensors, n, m, d, self.padding)
        self.options = {"ASINH": self.geometry.has_link, "PRECISION": precision, "WIDTH": width}

    def _states_pass(self, *, mean: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return what the kernel of the states writes for each part of the catalogue."""
        like, (m, d) = self.vectors, self.weight.shape
        n, (rows, items, warps, step) = len(like), self.tiles[0]
        share = triton.cdiv(triton.cdiv(m, items), SPLITS) * items
        tops, totals, target, slope = like.new_empty(4, SPLITS, n)
        by_states = like.new_empty(SPLITS, n, d + 1)
        outputs = (tops, totals, target, slope, by_states)
        grid = (triton.cdiv(n, rows), SPLITS)
        tile = {"ROWS": rows, "ITEMS": items, "STEP": step, "num_warps": warps}
        _states[grid](*self.shared, share, *outputs, **self.options, **tile, MEAN=mean)
        return outputs

    def _smoothed(self, sums: _Sums) -> _Sums:
        """Put the smoothed target for the target."""
        self.of_all = 0.0
        if not self.smoothing:
            return sums
        m = len(self.weight)
        self.of_all = self.smoothing / (m - (0 <= self.padding < m))
        _, totals, _, _, by_states = self._states_pass(mean=True)
        return sums._replace(
            target=(1 - self.smoothing) * sums.target + self.of_all * totals.sum(0),
            slope=(1 - self.smoothing) * sums.slope,
            by_states=sums.by_states.sub_(by_states.sum(0), alpha=self.of_all),
        )

    def _forward(self) -> _Sums:
        tops, totals, target, slope, by_states = self._states_pass(mean=False)
        top = tops.amax(0)
        fading = torch.exp2(tops - top)
        total = totals.mul_(fading).sum(0)
        by_states *= (fading / total).unsqueeze(2)
        return _Sums(top + total.log2(), target.sum(0), slope.sum(0), by_states.sum(0))

    def _backward(self, sums: _Sums, row_weights: Tensor) -> Gradients:
        like, (m, d) = self.vectors, self.weight.shape
        rows, items, warps, step = self.tiles[1]
        weighing = torch.stack((sums.log_total, row_weights))
        by_weight, others = like.new_empty(m, d), like.new_empty(2, m)
        outputs = (float(1 - self.smoothing), float(self.of_all), weighing, by_weight, others)
        grid = (triton.cdiv(m, items),)
        tile = {"ROWS": rows, "ITEMS": items, "STEP": step, "num_warps": warps}
        _items[grid](*self.shared, *outputs, **self.options, **tile)
        weight, terms = self.weight.detach(), self.terms
        # the target's share of the states' gradient; the pass of the items has theirs
        one = torch.nn.functional.embedding(self.targets, weight)
        if terms.multiplier is not None:
            one = one * terms.multiplier.detach().index_select(0, self.targets).unsqueeze(1)
        by_vectors = sums.by_states[:, : like.shape[1]]
        share = sums.slope.unsqueeze(1)
        by_vectors[:, :d].addcmul_(one, share, value=-1)
        if like.shape[1] > d:
            extra = self.shared[3][1].index_select(0, self.targets)
            by_vectors[:, d].addcmul_(extra, sums.slope, value=-1)
        by_vectors = by_vectors * row_weights.unsqueeze(1)
        by_extra, by_scale = others
        if terms.scale is not None:
            scale = terms.scale.detach()
            by_weight *= scale.unsqueeze(1)
            by_extra = by_extra * scale
        pairs = [
            (self.lifted.vectors, by_vectors),
            (terms.extra, by_extra.unsqueeze(1)),
            (terms.scale, by_scale),
        ]
        if terms.multiplier is not None:
            pairs.append((terms.multiplier, torch.linalg.vecdot(by_weight, weight)))
            by_weight *= terms.multiplier.detach().unsqueeze(1)
        # the weight is an output of itself
        return self._back([*pairs, (self.weight, by_weight)])


@triton.jit
def _product(one, other, PRECISION: tl.constexpr):
    if PRECISION == "bf16":
        return tl.dot(one.to(tl.bfloat16), other.to(tl.bfloat16))
    elif PRECISION == "rounded":  # the interpreter multiplies the bits of bfloat16 as whole numbers
        return tl.dot(one.to(tl.bfloat16).to(tl.float32), other.to(tl.bfloat16).to(tl.float32))
    else:
        return tl.dot(one, other, input_precision=PRECISION)


@triton.jit
def _inner(ones, these, others, those, d, PRECISION: tl.constexpr, STEP: tl.constexpr):
    """Return products of vectors at two lists of addresses, by ``STEP`` numbers: whole vectors fill the registers."""
    inner = tl.zeros((ones.shape[0], others.shape[0]), tl.float32)
    for first in range(0, d, STEP):
        place = first + tl.arange(0, STEP)[None, :]
        left = tl.load(ones[:, None] + place, these[:, None] & (place < d), 0.0)
        right = tl.load(others[:, None] + place, those[:, None] & (place < d), 0.0)
        inner += _product(left, tl.trans(right), PRECISION)
    return inner


@triton.jit
def _linked(inner, exponent, factor, ASINH: tl.constexpr):
    """Return asinh(inner * exp(exponent)) and its derivative by ``inner``; ``factor`` is exp(exponent) unless far."""
    if ASINH:
        far = exponent > _FAR
        x = tl.where(far, 0.0, inner * factor)
        size = tl.abs(inner)
        # 1e-35 is below the rounding of a far product
        root = tl.rsqrt(tl.where(far, inner * inner + 1e-35, x * x + 1.0))
        inside = tl.where(far, size + size + 1e-35, tl.abs(x) + (x * x + 1.0) * root)
        log = (tl.log2(inside) + tl.where(far, exponent * _LOG2_E, 0.0)) * (1.0 / _LOG2_E)
        return tl.where(inner < 0, -log, log), tl.where(far, root, root * factor)
    else:
        return inner, tl.zeros_like(inner) + 1.0


@triton.jit
def _states(
    space, weight, rows, terms, targets, n, m, d, padding, share, tops, totals, target_logits, target_slopes, by_states,
    ASINH: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr, STEP: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """Write the totals of a block of rows over its share of the items, and the gradient of their logarithm.

    With ``MEAN`` the totals are sums of logits by ln 2, and the gradient is that of the sums of logits.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here, place = row < n, tl.arange(0, WIDTH)
    inside = place < d
    states = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & inside[None, :], 0.0)
    column = tl.load(rows + row, here, 0.0)
    if ASINH:
        exponents, factors = tl.load(rows + n + row, here, 0.0), tl.load(rows + 2 * n + row, here, 1.0)
    wanted = tl.load(targets + row, here, -1)
    high, sums = tl.full((ROWS,), -3.0e38, tl.float32), tl.zeros((ROWS,), tl.float32)
    by_space, by_column = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS,), tl.float32)
    logit_of_target, slope_of_target = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    first = tl.program_id(1) * share
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        real = (item < m) & (item != padding)
        items = tl.load(weight + item[:, None].to(tl.int64) * d + place[None, :], real[:, None] & inside[None, :], 0.0)
        multiplier, extra = tl.load(terms + item, real, 0.0), tl.load(terms + m + item, real, 0.0)
        scale = tl.load(terms + 2 * m + item, real, 0.0)
        if STEP < WIDTH:
            own, other = space + row.to(tl.int64) * d, weight + item.to(tl.int64) * d
            inner = _inner(own, here, other, real, d, PRECISION, STEP)
        else:
            inner = _product(states, tl.trans(items), PRECISION)
        inner = inner * multiplier[None, :] + column[:, None] * extra[None, :]
        if ASINH:
            exponent = exponents[:, None] + tl.load(terms + 3 * m + item, real, 0.0)[None, :]
            factor = factors[:, None] * tl.load(terms + 4 * m + item, real, 1.0)[None, :]
            value, slope = _linked(inner, exponent, factor, ASINH)
            slope *= scale[None, :]
            logit = value * (scale * _LOG2_E)[None, :]
        else:
            logit, slope = inner * (scale * _LOG2_E)[None, :], tl.zeros_like(inner) + scale[None, :]
        hit = wanted[:, None] == item[None, :]
        logit_of_target += tl.sum(tl.where(hit, logit, 0.0), 1)
        slope_of_target += tl.sum(tl.where(hit, slope, 0.0), 1)
        if MEAN:
            sums += tl.sum(logit, 1)
        else:
            logit = tl.where(real[None, :], logit, float("-inf"))
            above = tl.maximum(high, tl.max(logit, 1))
            softmax, fading = tl.exp2(logit - above[:, None]), tl.exp2(high - above)
            sums = sums * fading + tl.sum(softmax, 1)
            slope *= softmax
            by_column, by_space = by_column * fading, by_space * fading[:, None]
            high = above
        by_column += tl.sum(slope * extra[None, :], 1)
        by_space += _product(slope * multiplier[None, :], items, PRECISION)
    at = tl.program_id(1) * n + row
    tl.store(tops + at, high, here)
    tl.store(totals + at, sums, here)
    tl.store(target_logits + at, logit_of_target, here)
    tl.store(target_slopes + at, slope_of_target, here)
    output = by_states + at.to(tl.int64) * (d + 1)
    tl.store(output[:, None] + place[None, :], by_space, here[:, None] & inside[None, :])
    tl.store(output + d, by_column, here)


@triton.jit
def _items(
    space, weight, rows, terms, targets, n, m, d, padding, of_target, of_all, weighing, by_weight, others,
    ASINH: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of items by the product, the extra column (``others`` 0) and the scale (1)."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    valid, place = item < m, tl.arange(0, WIDTH)
    real, inside = valid & (item != padding), place < d
    at = weight + item[:, None].to(tl.int64) * d + place[None, :]
    items = tl.load(at, real[:, None] & inside[None, :], 0.0)
    multiplier, extra = tl.load(terms + item, real, 0.0), tl.load(terms + m + item, real, 0.0)
    scale = tl.load(terms + 2 * m + item, real, 0.0)
    if ASINH:
        exponents, factors = tl.load(terms + 3 * m + item, real, 0.0), tl.load(terms + 4 * m + item, real, 1.0)
    by_space = tl.zeros((ITEMS, WIDTH), tl.float32)
    by_extra, by_scale = tl.zeros((ITEMS,), tl.float32), tl.zeros((ITEMS,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        here = row < n
        states = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & inside[None, :], 0.0)
        column = tl.load(rows + row, here, 0.0)
        log_total, row_weight = tl.load(weighing + row, here, 0.0), tl.load(weighing + n + row, here, 0.0)
        wanted = tl.load(targets + row, here, -1)
        if STEP < WIDTH:
            own, other = weight + item.to(tl.int64) * d, space + row.to(tl.int64) * d
            inner = _inner(own, real, other, here, d, PRECISION, STEP)
        else:
            inner = _product(items, tl.trans(states), PRECISION)
        inner = inner * multiplier[:, None] + extra[:, None] * column[None, :]
        if ASINH:
            exponent = exponents[:, None] + tl.load(rows + n + row, here, 0.0)[None, :]
            factor = factors[:, None] * tl.load(rows + 2 * n + row, here, 1.0)[None, :]
            value, slope = _linked(inner, exponent, factor, ASINH)
        else:
            value = inner
        softmax = tl.exp2(value * (scale * _LOG2_E)[:, None] - log_total[None, :])
        softmax -= tl.where(item[:, None] == wanted[None, :], of_target, 0.0) + of_all
        softmax = tl.where(real[:, None], softmax * row_weight[None, :], 0.0)
        by_scale += tl.sum(softmax * value, 1)
        if ASINH:
            softmax *= slope
        by_extra += tl.sum(softmax * column[None, :], 1)
        by_space += _product(softmax, states, PRECISION)
    output = by_weight + item[:, None].to(tl.int64) * d + place[None, :]
    tl.store(output, by_space, valid[:, None] & inside[None, :])
    tl.store(others + item, by_extra, valid)
    tl.store(others + m + item, by_scale, valid)
