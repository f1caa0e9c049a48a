"""The softmax of a tile of products or logits, times what its gradient needs, while the row is in the first cache.

For a head with asinh as its link the kernels add the extra column of the products, link and scale on the way:
logit = scale * asinh(product + column * extra) of products (h, w) float32, column (h,), extra and scale (w,).

Plain twin: the torch operations of ``losses._stream.ItemStream``, which serve other devices, precisions and links.
Kept for: exact cross-entropy over a million items in 0.64 (Euclidean) and 0.62 (Poincare) of the time with the twins,
each against the bare products of the same run (make bench-ce); over 65,536 items in two passes the Poincare head takes
1.26 times as long as the Euclidean one in place of 1.42 (AVX2), 1.39 in place of 1.66 (AVX-512).
"""

from typing import Any

import numpy as np
from numba import njit, prange

from recbole_hyper.kernels.asinh import signed_asinh
from recbole_hyper.kernels.compiled import compiled
from recbole_hyper.kernels.floats import ONE, exp, largest
from recbole_hyper.kernels.ranks import with_torch_threads

# columns that one thread takes through all rows: their sums stay in the first cache
STRIP = 256


@njit(inline="always", error_model="numpy", fastmath={"contract", "reassoc"})
def _summed(row: Any) -> Any:
    """Return the largest of a row of logits, and the sum of exp(logit - largest)."""
    highest = largest(row)
    total = np.float32(0)
    for j in range(len(row)):
        total += exp(row[j] - highest)
    return highest, total


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def total_rows(logits: Any, top: Any, total: Any) -> None:
    """Write the largest logit and the sum of exp(logit - top) of each row (h,)."""
    for i in prange(logits.shape[0]):
        top[i], total[i] = _summed(logits[i])


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def softmax_rows(logits: Any, top: Any, total: Any) -> None:
    """The same, and replace ``logits`` (h, w) float32 by exp(logit - top)."""
    for i in prange(logits.shape[0]):
        row = logits[i]
        highest = largest(row)
        found = np.float32(0)
        for j in range(len(row)):
            e = exp(row[j] - highest)
            row[j] = e
            found += e
        top[i], total[i] = highest, found


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def linked_total_rows(products: Any, column: Any, extra: Any, scale: Any, top: Any, total: Any) -> None:
    """Write largest logit and sum of each row (h,); ``products`` (h, w) may hold anything after."""
    for i in prange(products.shape[0]):
        row, own = products[i], column[i]
        for j in range(len(row)):
            u = row[j] + own * extra[j]
            w = abs(u)
            row[j] = signed_asinh(u, w, np.sqrt(ONE + w * w)) * scale[j]
        top[i], total[i] = _summed(row)


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def linked_softmax_rows(
    products: Any, slope: Any, column: Any, extra: Any, scale: Any, mixing: Any, top: Any, total: Any, mixed: Any
) -> None:
    """The same, and replace ``products`` by exp(logit - top) x logit; write exp(logit - top) x slope into ``slope``.

    ``mixed`` (h,) gets the product of the new ``slope`` (h, w) with ``mixing`` (w,).
    """
    for i in prange(products.shape[0]):
        row, slopes, own = products[i], slope[i], column[i]
        for j in range(len(row)):
            u = row[j] + own * extra[j]
            w = abs(u)
            root = np.sqrt(ONE + w * w)
            slopes[j] = ONE / root
            row[j] = signed_asinh(u, w, root) * scale[j]
        highest = largest(row)
        found, product = np.float32(0), np.float32(0)
        for j in range(len(row)):
            e = exp(row[j] - highest)
            found += e
            row[j] *= e
            slopes[j] *= e
            product += slopes[j] * mixing[j]
        top[i], total[i], mixed[i] = highest, found, product


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract"})
def add_column_sums(weights: Any, linked: Any, extra: Any, factor: Any, d_extra: Any, d_scale: Any) -> None:
    """Add extra^T weights to ``d_extra`` (w,) and factor^T linked to ``d_scale`` (w,), tiles (h, w), vectors (h,)."""
    height, width = weights.shape
    for strip in prange((width + STRIP - 1) // STRIP):
        start = strip * STRIP
        stop = min(start + STRIP, width)
        first, second = d_extra[start:stop], d_scale[start:stop]
        for i in range(height):
            a, b = extra[i], factor[i]
            row, other = weights[i, start:stop], linked[i, start:stop]
            for j in range(stop - start):
                first[j] += a * row[j]
                second[j] += b * other[j]


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
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

    Writes the products of the result with ``mixing`` (w,) by strips of columns into ``mixed`` (h, strips), and adds to
    ``d_extra`` (w,) the sum over rows of factor * column * exp(logit - top) x slope, to ``d_scale`` (w,) that of factor
    * exp(logit - top) x logit; ``factor`` (h,).
    """
    height, width = products.shape
    for strip in prange((width + STRIP - 1) // STRIP):
        start = strip * STRIP
        stop = min(start + STRIP, width)
        extras, scales, mixings = extra[start:stop], scale[start:stop], mixing[start:stop]
        first, second = d_extra[start:stop], d_scale[start:stop]
        slopes = np.empty(STRIP, np.float32)
        for i in range(height):
            row, own, highest, share = products[i, start:stop], column[i], top[i], factor[i]
            both = own * share
            product = np.float32(0)
            # two loops: together their numbers do not fit the sixteen registers of AVX2, which takes 1.7 times as long
            for j in range(stop - start):
                u = row[j] + own * extras[j]
                w = abs(u)
                root = np.sqrt(ONE + w * w)
                slopes[j] = ONE / root
                row[j] = signed_asinh(u, w, root) * scales[j]
            for j in range(stop - start):
                logit = row[j]
                e = exp(logit - highest)
                weight = e * slopes[j]
                row[j] = weight
                product += weight * mixings[j]
                first[j] += both * weight
                second[j] += share * (e * logit)
            mixed[i, strip] = product
