"""asinh and its derivative in one pass over the memory, where torch needs eleven.

Plain twin: the torch operations of ``geometry._math.asinh_``.
Kept for: exact cross-entropy with a Poincare head over a million items, together with ``softmax``: see there.
"""

from typing import Any

import numpy as np
from numba import njit, prange

from recbole_hyper.kernels.compiled import compiled
from recbole_hyper.kernels.floats import ONE, SIGN, bits, from_bits, log1p_nonnegative
from recbole_hyper.kernels.ranks import with_torch_threads

_BLOCK = 4096


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def signed_asinh(x: Any, w: Any, root: Any) -> Any:
    """Return asinh(x) of a float32 x, of w = |x| and root = sqrt(1 + w^2)."""
    # asinh(w) = log1p(w + w^2 / (1 + sqrt(1 + w^2))): the form that keeps tiny w exact
    value = log1p_nonnegative(w + w * (w / (ONE + root)))
    return from_bits(bits(value) | (bits(x) & SIGN))


@with_torch_threads
@compiled(parallel=True, error_model="numpy", fastmath={"contract"})
def asinh_slope(u: Any, slope: Any) -> None:
    """Replace ``u`` (n,) float32 by asinh(u) and write 1 / sqrt(1 + u^2) into ``slope`` (n,)."""
    for block in prange((len(u) + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        stop = min(start + _BLOCK, len(u))
        values, slopes = u[start:stop], slope[start:stop]
        for j in range(stop - start):
            x = values[j]
            w = abs(x)
            root = np.sqrt(ONE + w * w)
            slopes[j] = ONE / root
            values[j] = signed_asinh(x, w, root)
