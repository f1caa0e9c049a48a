"""The softmax of a tile of products or logits, times what its gradient needs, while the row is in the L1 cache.

For a head whose link is asinh, the kernels also add the extra column to the products, and apply link and scale:
logit = scale * asinh(product + column * extra) with products (h, w) float32, column (h,), extra and scale (w,).

Plain twin: the torch operations of ``losses._stream.ItemStream`` and ``geometry.poincare.asinh_``, which run on other
devices, in other precisions and with other links.
Kept for: exact cross-entropy over a million items in 0.64 (Euclidean) and 0.62 (Poincare) of the twins' time, each
relative to the bare products of the same run (make bench-ce).
"""

from typing import Any

import numpy as np
from numba import njit, prange

from recbole_hyper.kernels.compiled import threaded
from recbole_hyper.kernels.floats import ONE, exp, largest, signed_asinh

# columns that one thread takes through all rows: their sums stay in the L1 cache
STRIP = 256
_BLOCK = 4096
# shares below e^-80 = 1.8e-35, and those times a slope below it, count as 0: their products would be subnormal numbers,
# which slow many processors down
_LEAST, _LEAST_SHARE, _ZERO = np.float32(-80), np.float32(np.exp(-80)), np.float32(0)
_fast: Any = threaded(error_model="numpy", fastmath={"contract", "reassoc"})


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def _share(x: Any) -> Any:
    """Return exp(x) of a float32 x, 0 for x < -80; NaN stays NaN."""
    return _ZERO if x < _LEAST else exp(x)


@threaded(error_model="numpy", fastmath={"contract"})
def asinh_slope(u: Any, slope: Any) -> None:
    """Replace ``u`` (n,) float32 by asinh(u) and write 1 / sqrt(1 + u^2) into ``slope`` (n,)."""
    for block in prange((len(u) + _BLOCK - 1) // _BLOCK):
        values, slopes = u[block * _BLOCK : (block + 1) * _BLOCK], slope[block * _BLOCK : (block + 1) * _BLOCK]
        for j in range(len(values)):
            x = values[j]
            w = abs(x)
            root = np.sqrt(ONE + w * w)
            slopes[j] = ONE / root
            values[j] = signed_asinh(x, w, root)


@_fast
def softmax_rows(logits: Any, top: Any, total: Any) -> None:
    """Replace ``logits`` (h, w) float32 by exp(logit - top); write the largest logit and the sum of each row (h,)."""
    for i in prange(logits.shape[0]):
        row = logits[i]
        highest, exponentials = largest(row), np.float32(0)
        for j in range(len(row)):
            e = _share(row[j] - highest)
            row[j] = e
            exponentials += e
        top[i], total[i] = highest, exponentials


@_fast
def linked_total_rows(products: Any, column: Any, extra: Any, scale: Any, top: Any, total: Any) -> None:
    """Write the largest logit and the sum of exp(logit - top) of each row (h,) of products."""
    for i in prange(products.shape[0]):
        row, state = products[i], column[i]
        logits = np.empty(len(row), np.float32)
        for j in range(len(row)):
            u = row[j] + state * extra[j]
            w = abs(u)
            logits[j] = signed_asinh(u, w, np.sqrt(ONE + w * w)) * scale[j]
        highest, exponentials = largest(logits), np.float32(0)
        for j in range(len(logits)):
            exponentials += _share(logits[j] - highest)
        top[i], total[i] = highest, exponentials


@_fast
def weigh_rows(
    products: Any,
    column: Any,
    extra: Any,
    scale: Any,
    mixing: Any,
    top: Any,
    factor: Any,
    mixed: Any,
    d_extra: Any,
    d_scale: Any,
) -> None:
    """Replace ``products`` (h, w) by exp(logit - top) x slope, for any ``top`` (h,) not less than the largest logits.

    Writes the products of the result with ``mixing`` (w,), strip by strip of columns, into ``mixed`` (h, strips). Adds
    sums over rows, weighted by ``factor`` (h,): column * exp(logit - top) x slope to ``d_extra`` (w,), and
    exp(logit - top) x logit to ``d_scale`` (w,).
    """
    height, width = products.shape
    for strip in prange((width + STRIP - 1) // STRIP):
        start = strip * STRIP
        stop = min(start + STRIP, width)
        extras, scales, mixings = extra[start:stop], scale[start:stop], mixing[start:stop]
        first, second = d_extra[start:stop], d_scale[start:stop]
        slopes = np.empty(STRIP, np.float32)
        for i in range(height):
            row, state, highest, share = products[i, start:stop], column[i], top[i], factor[i]
            state_share = state * share
            product = np.float32(0)
            # two loops: one loop would not fit the sixteen registers of AVX2, and takes 1.7 times as long
            for j in range(stop - start):
                u = row[j] + state * extras[j]
                w = abs(u)
                root = np.sqrt(ONE + w * w)
                slopes[j] = ONE / root
                row[j] = signed_asinh(u, w, root) * scales[j]
            for j in range(stop - start):
                logit = row[j]
                e = _share(logit - highest)
                weight = e * slopes[j]
                weight = _ZERO if weight < _LEAST_SHARE else weight
                row[j] = weight
                product += weight * mixings[j]
                first[j] += state_share * weight
                second[j] += share * (e * logit)
            mixed[i, strip] = product
