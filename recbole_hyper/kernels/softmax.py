"""The softmax of a tile of logits, times what its gradient needs, while the tile is in cache.

Plain twin: the torch operations of ``losses._stream.ItemStream``, which serve other devices and precisions.
Kept for: exact cross-entropy over a million items in 0.64 (Euclidean) and 0.62 (Poincare) of the time with the twins,
each against the bare products of the same run (make bench-ce).
"""

from typing import Any

import numpy as np
from numba import njit, prange

from recbole_hyper.kernels.compiled import compiled
from recbole_hyper.kernels.floats import exp_nonpositive, largest
from recbole_hyper.kernels.ranks import with_torch_threads


@njit(inline="always", error_model="numpy", fastmath={"contract", "reassoc"})
def summed(row: Any) -> Any:
    """Return the largest of a row of logits, and the sum of exp(logit - largest)."""
    highest = largest(row)
    found = np.float32(0)
    for j in range(len(row)):
        found += exp_nonpositive(row[j] - highest)
    return highest, found


@njit(inline="always", error_model="numpy", fastmath={"contract", "reassoc"})
def weighed(row: Any, slopes: Any, mixing: Any) -> Any:
    """Return the same; multiply a row of logits and its ``slopes`` (w,) by exp(logit - largest).

    Returns also the product of the new ``slopes`` with ``mixing`` (w,).
    """
    highest = largest(row)
    found, product = np.float32(0), np.float32(0)
    for j in range(len(row)):
        e = exp_nonpositive(row[j] - highest)
        found += e
        row[j] *= e
        slopes[j] *= e
        product += slopes[j] * mixing[j]
    return highest, found, product


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def softmax_rows(logits: Any, top: Any, total: Any) -> None:
    """Replace ``logits`` (h, w) float32 by exp(logit - top); write the largest logit and the sum of each row (h,)."""
    for i in prange(logits.shape[0]):
        row = logits[i]
        highest = largest(row)
        found = np.float32(0)
        for j in range(len(row)):
            e = exp_nonpositive(row[j] - highest)
            row[j] = e
            found += e
        top[i], total[i] = highest, found


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def linked_softmax_rows(linked: Any, slope: Any, scale: Any, extra: Any, top: Any, total: Any, mixed: Any) -> None:
    """The same for logits = linked x scale.

    Replaces ``linked`` (h, w) by exp(logit - top) x logit and ``slope`` (h, w) by exp(logit - top) x slope; ``scale``
    and ``extra`` (w,). Writes the product of the new ``slope`` with ``extra`` into ``mixed`` (h,).
    """
    for i in prange(linked.shape[0]):
        row, slopes = linked[i], slope[i]
        for j in range(len(row)):
            row[j] *= scale[j]
        top[i], total[i], mixed[i] = weighed(row, slopes, extra)


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def total_rows(linked: Any, scale: Any, top: Any, total: Any) -> None:
    """Write the largest logit and the sum of exp(logit - top) of each row alone; logits = linked x scale."""
    for i in prange(linked.shape[0]):
        row = linked[i]
        for j in range(len(row)):
            row[j] *= scale[j]
        top[i], total[i] = summed(row)


_STRIP = 256  # columns summed at a time: their sums stay in the first cache


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract"})
def add_column_sums(weights: Any, linked: Any, extra: Any, factor: Any, d_extra: Any, d_scale: Any) -> None:
    """Add extra^T weights to ``d_extra`` (w,) and factor^T linked to ``d_scale`` (w,), tiles (h, w), vectors (h,)."""
    height, width = weights.shape
    for strip in prange((width + _STRIP - 1) // _STRIP):
        start = strip * _STRIP
        stop = min(start + _STRIP, width)
        first, second = d_extra[start:stop], d_scale[start:stop]
        for i in range(height):
            a, b = extra[i], factor[i]
            row, other = weights[i, start:stop], linked[i, start:stop]
            for j in range(stop - start):
                first[j] += a * row[j]
                second[j] += b * other[j]
