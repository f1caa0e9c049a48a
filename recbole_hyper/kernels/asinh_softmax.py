"""asinh and the softmax of a tile of products, while the row is in the first cache.

Plain twin: ``Geometry.link_`` and the kernels of ``softmax``, which serve label smoothing and states beyond the range.
For two passes over the items, in one it gains no more than 3 percent. Kept for: 65,536 items, where the Poincare head
takes 1.26 times as long as the Euclidean one in place of 1.42 (AVX2), 1.39 in place of 1.66 (AVX-512); the logarithm of
``floats`` has its part in that.
"""

from typing import Any

import numpy as np
from numba import prange

from recbole_hyper.kernels.asinh import signed_asinh
from recbole_hyper.kernels.compiled import compiled
from recbole_hyper.kernels.floats import ONE, exp_nonpositive
from recbole_hyper.kernels.ranks import with_torch_threads
from recbole_hyper.kernels.softmax import summed

# columns that one thread takes through all rows: their sums stay in the first cache
STRIP = 256


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def total_rows(inner: Any, column: Any, extra: Any, scale: Any, top: Any, total: Any) -> None:
    """Write the largest logit and the sum of exp(logit - top) of each row (h,); ``inner`` may hold anything after.

    logit = scale * asinh(inner + column * extra) of ``inner`` (h, w) float32, ``column`` (h,), ``extra`` and ``scale``
    (w,).
    """
    for i in prange(inner.shape[0]):
        row, own = inner[i], column[i]
        for j in range(len(row)):
            u = row[j] + own * extra[j]
            w = abs(u)
            row[j] = signed_asinh(u, w, np.sqrt(ONE + w * w)) * scale[j]
        top[i], total[i] = summed(row)


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract", "reassoc"})
def weigh_rows(
    inner: Any,
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
    """Replace ``inner`` (h, w) by exp(logit - top) x slope, of the logits of :func:`total_rows` and any ``top`` (h,).

    ``top`` is not less than the row's largest logit. Writes the products of the new ``inner`` with ``mixing`` (w,) by
    strips of columns into ``mixed`` (h, strips), and adds to ``d_extra`` (w,) the sum over rows of factor * column *
    exp(logit - top) x slope, to ``d_scale`` (w,) that of factor * exp(logit - top) x logit; ``factor`` (h,).
    """
    height, width = inner.shape
    for strip in prange((width + STRIP - 1) // STRIP):
        start = strip * STRIP
        stop = min(start + STRIP, width)
        extras, scales, mixings = extra[start:stop], scale[start:stop], mixing[start:stop]
        first, second = d_extra[start:stop], d_scale[start:stop]
        slopes = np.empty(STRIP, np.float32)
        for i in range(height):
            row, own, highest, share = inner[i, start:stop], column[i], top[i], factor[i]
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
                e = exp_nonpositive(logit - highest)
                weight = e * slopes[j]
                row[j] = weight
                product += weight * mixings[j]
                first[j] += both * weight
                second[j] += share * (e * logit)
            mixed[i, strip] = product
