"""Exact cross-entropy on a GPU in Triton: products, link and softmax of a tile stay in registers, in two passes.

The forward pass gives losses and the states' gradients at once: their sums follow a running maximum, as attention
kernels do with their values. The second pass gives the items' gradients. So a logit is computed twice, with four
products in all, and no logits exist in memory: besides the gradients there are ``SPLITS`` copies of the states'.

logit(i, j) = scale_j * link(multiplier_j * <space_i, weight_j> + column_i * extra_j), where the link is the identity or
asinh(. * exp(exponent_i + exponent_j)). ``rows`` (3, n) are column, exponent / ln 2 and exp(-2 exponent) of the states,
``terms`` (5, m) multiplier, extra column, scale, exponent / ln 2 and exp(-2 exponent) of the items. A term that a
geometry does not have is 0 or 1; a dot product has none, and its kernels read none.

Triton's interpreter tests the results on a CPU, and its assembler that no register spills (sm_90, widths 32 to 256;
from Triton 3.8 on). docs/gpu.md has the times on a GPU.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from recbole_hyper.geometry.euclidean import Flat
from recbole_hyper.losses._chunks import Gradients, Problem
from recbole_hyper.losses._rows import RowStream
from recbole_hyper.matmul import asked_precision

#: the widest vectors whose tiles fit into registers, and parts of the catalogue that run in parallel
WIDEST, SPLITS = 256, 8
#: rows of a block in the kernel of the targets
TARGET_ROWS = 16
#: loads that a loop starts before it needs them; more take registers, and were slower on an H200
STAGES = 1
Tile = tuple[int, int, int]
#: rows, items and warps of a tile in the pass of the states and in that of the items, by the width of the vectors,
#: whether items have terms, and the precision: the fastest on an H200 of those whose registers do not
#: spill on sm_90; other architectures take them too, and were not timed
TILES: dict[tuple[int, bool, str], tuple[Tile, Tile]] = {
    (32, False, "tf32x3"): ((64, 64, 4), (64, 64, 4)),
    (32, False, "tf32"): ((128, 64, 8), (64, 64, 4)),
    (32, False, "bf16"): ((128, 64, 8), (64, 64, 4)),
    (32, True, "tf32x3"): ((64, 32, 4), (32, 64, 4)),
    (32, True, "tf32"): ((64, 32, 4), (64, 64, 4)),
    (32, True, "bf16"): ((64, 32, 4), (64, 64, 4)),
    (64, False, "tf32x3"): ((128, 64, 8), (64, 128, 8)),
    (64, False, "tf32"): ((128, 64, 8), (64, 128, 8)),
    (64, False, "bf16"): ((64, 64, 4), (64, 64, 4)),
    (64, True, "tf32x3"): ((64, 32, 4), (32, 64, 4)),
    (64, True, "tf32"): ((64, 32, 4), (64, 64, 4)),
    (64, True, "bf16"): ((64, 32, 4), (32, 64, 4)),
    (128, False, "tf32x3"): ((32, 32, 4), (64, 32, 8)),
    (128, False, "tf32"): ((128, 64, 8), (64, 32, 4)),
    (128, False, "bf16"): ((64, 64, 4), (64, 64, 8)),
    (128, True, "tf32x3"): ((32, 32, 8), (32, 32, 8)),
    (128, True, "tf32"): ((128, 32, 8), (64, 32, 4)),
    (128, True, "bf16"): ((64, 32, 4), (32, 64, 8)),
    (256, False, "tf32x3"): ((16, 32, 8), (32, 16, 8)),
    (256, False, "tf32"): ((32, 32, 8), (128, 32, 8)),
    (256, False, "bf16"): ((64, 32, 8), (64, 64, 8)),
    (256, True, "tf32x3"): ((16, 32, 8), (16, 32, 8)),
    (256, True, "tf32"): ((64, 32, 8), (128, 32, 8)),
    (256, True, "bf16"): ((64, 32, 8), (32, 32, 8)),
}
#: numbers of a vector that one product of the logits takes at most: more of 256 would not fit into the registers
STEP = {32: 32, 64: 64, 128: 128, 256: 64}
#: three TF32 products are float32
PRECISIONS = {"highest": "tf32x3", "high": "tf32", "medium": "bf16"}
LOG2_E = 1.4426950408889634
_LOG2_E = tl.constexpr(LOG2_E)
# exp(-2 exponent) of far states and items: below it, a product is exact to fewer digits than a square root needs
SMALLEST_FLOOR = 1e-18


def constants_of(tile: Tile, width: int) -> dict[str, int]:
    """Return what a tile sets when its kernel is compiled."""
    rows, items, warps = tile
    return {"ROWS": rows, "ITEMS": items, "STEP": STEP[width], "num_warps": warps, "num_stages": STAGES}


def interprets() -> bool:
    """Return whether Triton's interpreter runs the kernels, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsupported(problem: Problem) -> str | None:
    """Return why the kernels cannot compute the loss, None if they can."""
    device, width, geometry = problem.states.device, problem.weight.shape[1], problem.geometry
    if device.type != "cuda" and not interprets():
        return f"it needs a CUDA or ROCm device, and this is {device.type}"
    if problem.dtype != torch.float32:
        return f"the kernels compute in float32, not in {problem.dtype}"
    if width > WIDEST:
        return f"the kernels take vectors of at most {WIDEST} numbers, not {width}"
    if not (isinstance(geometry, Flat) or geometry.asinh_link):
        return f"the kernels have flat heads and a link of asinh, and {type(geometry).__name__} is neither"
    return None


class TritonStream(RowStream):
    """One evaluation with two kernels, without logits in memory."""

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,), and unless ``row_weights`` (n,) is None the gradients of their weighted sum."""
        self._prepare()
        log_total, target, slope, by_states = self._forward()
        losses = (log_total - target) * (1 / LOG2_E)
        if row_weights is None:
            return losses, Gradients()
        return losses, self._backward(log_total, slope, by_states, row_weights)

    def _prepare(self) -> None:
        """Put the lifts into the form of the kernels."""
        like, (m, d) = self.vectors, self.weight.shape
        n = len(like)
        lifts = like.shape[1] > d or any(one is not None for one in (self.lifted.exponent, *self.terms))
        rows, terms = (like.new_zeros(3, n), like.new_zeros(5, m)) if lifts else (like, like)
        if lifts:
            rows[2].fill_(1.0)
            terms[0::2].fill_(1.0)
            if like.shape[1] > d:
                rows[0] = like[:, d]
            for exponent, target in ((self.lifted.exponent, rows), (self.terms.exponent, terms)):
                if exponent is not None:
                    torch.mul(exponent.detach(), LOG2_E, out=target[-2])
                    target[-1] = torch.exp(-2 * exponent.detach()).clamp(min=SMALLEST_FLOOR)
            for target, term in zip(terms, (self.terms.multiplier, self.terms.extra, self.terms.scale), strict=False):
                if term is not None:
                    target.copy_(term.detach().reshape(-1))
        precision = PRECISIONS[asked_precision()]
        if precision == "bf16" and interprets():
            precision = "rounded"
        width = max(32, triton.next_power_of_2(d))
        tiles = TILES[width, lifts, "bf16" if precision == "rounded" else precision]
        self.tiles = [constants_of(tile, width) for tile in tiles]
        self.shared = like[:, :d].contiguous(), self.weight.detach().contiguous(), rows, terms
        self.sizes = n, m, d, -1 if self.padding is None else self.padding
        self.options = {"LIFTS": lifts, "ASINH": self.geometry.has_link, "WIDTH": width}
        self.products = {**self.options, "PRECISION": precision}

    def _forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what the forward pass knows of each row, summed over the parts of the catalogue.

        That is (n,) log2 of the sum of exponentials, the logit of the target by ln 2 and its slope, and (n, d + 1) the
        gradient of the logarithm of the sum by the lifted state.
        """
        like, (n, m, d, _) = self.vectors, self.sizes
        tile = self.tiles[0]
        share = triton.cdiv(triton.cdiv(m, tile["ITEMS"]), SPLITS) * tile["ITEMS"]
        tops, totals = like.new_empty(2, SPLITS, n)
        by_states = like.new_empty(SPLITS, n, d + 1)
        grid = (triton.cdiv(n, tile["ROWS"]), SPLITS)
        _states[grid](*self.shared, *self.sizes, share, tops, totals, by_states, **self.products, **tile)
        target, slope = like.new_empty(2, n)
        rows = triton.cdiv(n, TARGET_ROWS)
        _targets[(rows,)](*self.shared, self.targets, n, m, d, target, slope, **self.options, ROWS=TARGET_ROWS)
        top = tops.amax(0)
        fading = torch.exp2(tops - top)
        total = totals.mul_(fading).sum(0)
        by_states *= (fading / total).unsqueeze(2)
        return top + total.log2(), target, slope, by_states.sum(0)

    def _backward(self, log_total: Tensor, slope: Tensor, by_states: Tensor, row_weights: Tensor) -> Gradients:
        like, (m, d) = self.vectors, self.weight.shape
        tile = self.tiles[1]
        weighing = torch.stack((log_total, row_weights))
        by_weight, others = like.new_empty(m, d), like.new_empty(2, m)
        grid = (triton.cdiv(m, tile["ITEMS"]),)
        given = (self.targets, *self.sizes, weighing, by_weight, others)
        _items[grid](*self.shared, *given, **self.products, **tile)
        weight, terms = self.weight.detach(), self.terms
        # the target's share of the states' gradient; the pass of the items has theirs
        one = torch.nn.functional.embedding(self.targets, weight)
        if terms.multiplier is not None:
            one = one * terms.multiplier.detach().index_select(0, self.targets).unsqueeze(1)
        by_vectors = by_states[:, : like.shape[1]]
        share = slope.unsqueeze(1)
        by_vectors[:, :d].addcmul_(one, share, value=-1)
        if like.shape[1] > d:
            extra = self.shared[3][1].index_select(0, self.targets)
            by_vectors[:, d].addcmul_(extra, slope, value=-1)
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
        return self._back(pairs, by_weight)


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
def _asinh(inner, floor, exponent):
    """Return log2(e) asinh(inner * exp(E)) and the slope of asinh by ``inner``.

    ``floor`` is exp(-2 E), ``exponent`` E log2(e): the square root of inner^2 + exp(-2 E) never leaves the range of
    float32, however large E is.
    """
    square = inner * inner + floor
    slope = tl.rsqrt(square)
    size = tl.log2(tl.abs(inner) + square * slope) + exponent
    return tl.where(inner < 0, -size, size), slope


@triton.jit
def _states(
    space, weight, rows, terms, n, m, d, padding, share, tops, totals, by_states,
    LIFTS: tl.constexpr, ASINH: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the totals of a block of rows over its share of the items, and the gradient of their logarithm."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here, place = row < n, tl.arange(0, WIDTH)
    inside = place < d
    states = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & inside[None, :], 0.0)
    if LIFTS:
        column = tl.load(rows + row, here, 0.0)
    if ASINH:
        exponents, floors = tl.load(rows + n + row, here, 0.0), tl.load(rows + 2 * n + row, here, 1.0)
    high, sums = tl.full((ROWS,), -3.0e38, tl.float32), tl.zeros((ROWS,), tl.float32)
    by_space, by_column = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS,), tl.float32)
    first = tl.program_id(1) * share
    for start in range(first, tl.minimum(first + share, m), ITEMS):
        item = start + tl.arange(0, ITEMS)
        real = (item < m) & (item != padding)
        items = tl.load(weight + item[:, None].to(tl.int64) * d + place[None, :], real[:, None] & inside[None, :], 0.0)
        if STEP < WIDTH:
            own, other = space + row.to(tl.int64) * d, weight + item.to(tl.int64) * d
            inner = _inner(own, here, other, real, d, PRECISION, STEP)
        else:
            inner = _product(states, tl.trans(items), PRECISION)
        if LIFTS:
            multiplier, extra = tl.load(terms + item, real, 0.0), tl.load(terms + m + item, real, 0.0)
            scale = tl.load(terms + 2 * m + item, real, 0.0)
            inner = inner * multiplier[None, :] + column[:, None] * extra[None, :]
        if ASINH:
            exponent = exponents[:, None] + tl.load(terms + 3 * m + item, real, 0.0)[None, :]
            floor = floors[:, None] * tl.load(terms + 4 * m + item, real, 1.0)[None, :]
            value, slope = _asinh(inner, floor, exponent)
            logit = value * scale[None, :]
        elif LIFTS:
            logit = inner * (scale * _LOG2_E)[None, :]
        else:
            logit = inner * _LOG2_E
        logit += tl.where(real, 0.0, float("-inf"))[None, :]
        above = tl.maximum(high, tl.max(logit, 1))
        softmax, fading = tl.exp2(logit - above[:, None]), tl.exp2(high - above)
        sums = sums * fading + tl.sum(softmax, 1)
        by_space *= fading[:, None]
        by_column *= fading
        high = above
        share_of_item = softmax * slope if ASINH else softmax
        if LIFTS:
            by_column += tl.sum(share_of_item * (scale * extra)[None, :], 1)
            share_of_item *= (scale * multiplier)[None, :]
        by_space += _product(share_of_item, items, PRECISION)
    at = tl.program_id(1) * n + row
    tl.store(tops + at, high, here)
    tl.store(totals + at, sums, here)
    output = by_states + at.to(tl.int64) * (d + 1)
    tl.store(output[:, None] + place[None, :], by_space, here[:, None] & inside[None, :])
    tl.store(output + d, by_column, here)


@triton.jit
def _targets(
    space, weight, rows, terms, targets, n, m, d, logits, slopes,
    LIFTS: tl.constexpr, ASINH: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the logits by ln 2 of a block of rows and their targets, and the slopes."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here, place = row < n, tl.arange(0, WIDTH)
    item, inside = tl.load(targets + row, here, 0), here[:, None] & (place < d)[None, :]
    states = tl.load(space + row[:, None] * d + place[None, :], inside, 0.0)
    items = tl.load(weight + item[:, None] * d + place[None, :], inside, 0.0)
    logit = tl.sum(states * items, 1)
    slope = tl.full((ROWS,), 1.0, tl.float32)
    if LIFTS:
        multiplier, extra = tl.load(terms + item), tl.load(terms + m + item)
        slope = tl.load(terms + 2 * m + item)
        logit = logit * multiplier + tl.load(rows + row, here, 0.0) * extra
    if ASINH:
        exponent = tl.load(rows + n + row, here, 0.0) + tl.load(terms + 3 * m + item)
        floor = tl.load(rows + 2 * n + row, here, 1.0) * tl.load(terms + 4 * m + item)
        value, by_inner = _asinh(logit, floor, exponent)
        logit, slope = value * slope, by_inner * slope
    else:
        logit *= slope * _LOG2_E
    tl.store(logits + row, logit, here)
    tl.store(slopes + row, slope, here)


@triton.jit
def _items(
    space, weight, rows, terms, targets, n, m, d, padding, weighing, by_weight, others,
    LIFTS: tl.constexpr, ASINH: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of items by the product, the extra column (``others`` 0) and the scale (1)."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    valid, place = item < m, tl.arange(0, WIDTH)
    real, inside = valid & (item != padding), place < d
    at = weight + item[:, None].to(tl.int64) * d + place[None, :]
    items = tl.load(at, real[:, None] & inside[None, :], 0.0)
    by_space = tl.zeros((ITEMS, WIDTH), tl.float32)
    if LIFTS:
        multiplier, extra = tl.load(terms + item, real, 0.0), tl.load(terms + m + item, real, 0.0)
        scale = tl.load(terms + 2 * m + item, real, 0.0)
        by_extra, by_scale = tl.zeros((ITEMS,), tl.float32), tl.zeros((ITEMS,), tl.float32)
    if ASINH:
        exponents, floors = tl.load(terms + 3 * m + item, real, 0.0), tl.load(terms + 4 * m + item, real, 1.0)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        here = row < n
        states = tl.load(space + row[:, None] * d + place[None, :], here[:, None] & inside[None, :], 0.0)
        log_total, row_weight = tl.load(weighing + row, here, 0.0), tl.load(weighing + n + row, here, 0.0)
        wanted = tl.load(targets + row, here, -1)
        if STEP < WIDTH:
            own, other = weight + item.to(tl.int64) * d, space + row.to(tl.int64) * d
            inner = _inner(own, real, other, here, d, PRECISION, STEP)
        else:
            inner = _product(items, tl.trans(states), PRECISION)
        if LIFTS:
            column = tl.load(rows + row, here, 0.0)
            inner = inner * multiplier[:, None] + extra[:, None] * column[None, :]
        if ASINH:
            exponent = exponents[:, None] + tl.load(rows + n + row, here, 0.0)[None, :]
            floor = floors[:, None] * tl.load(rows + 2 * n + row, here, 1.0)[None, :]
            value, slope = _asinh(inner, floor, exponent)
        else:
            value = inner * _LOG2_E
        logit = value * scale[:, None] if LIFTS else value
        softmax = tl.exp2(logit - log_total[None, :])
        softmax -= tl.where(item[:, None] == wanted[None, :], 1.0, 0.0)
        softmax *= row_weight[None, :]
        if LIFTS:
            by_scale += tl.sum(softmax * value, 1)
            if ASINH:
                softmax *= slope
            by_extra += tl.sum(softmax * column[None, :], 1)
        by_space += _product(softmax, states, PRECISION)
    output = by_weight + item[:, None].to(tl.int64) * d + place[None, :]
    tl.store(output, tl.where(real[:, None], by_space, 0.0), valid[:, None] & inside[None, :])
    if LIFTS:
        tl.store(others + item, tl.where(real, by_extra, 0.0), valid)
        tl.store(others + m + item, tl.where(real, by_scale * (1 / _LOG2_E), 0.0), valid)
