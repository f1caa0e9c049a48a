"""Compiled loops of the Gromov delta: serial, without the interpreter lock, so that threads can share the rows.

Plain twin: ``curvature.gromov._compare_all``, for few points. Kept for: 200 times the speed (make bench-delta).

``products`` (p, p) are the Gromov products of points with respect to one base. They are symmetric, with minus infinity
on the diagonal, because a point paired with itself never beats zero. Only comparisons and one subtraction follow the
products, and rounding is monotone, so a bound never prunes what exact evaluation would keep.
"""

import numpy as np

from recbole_hyper.kernels.compiled import compiled

CHUNK = 32  # columns under one maximum: wide enough for vector instructions, narrow enough to bound tightly

# these two flags allow reordering a maximum; they change no rounding
_compile = compiled(nogil=True, fastmath={"nnan", "nsz"})


@_compile
def fill_products(distances, points, to_base, products, chunk_max, row_max, start, stop):
    """Fill rows ``start..stop`` of the Gromov products of ``points``, and their maxima by chunk of columns and by row.

    Returns the rows' largest violation of the triangle inequality with the base (0 for a metric).
    """
    p = points.shape[0]
    violation = 0.0
    for a in range(start, stop):
        row, out, mine = distances[points[a]], products[a], to_base[a]
        for b in range(p):
            out[b] = 0.5 * ((mine + to_base[b]) - row[points[b]])
        # 0 <= (a|b) <= min(d(a), d(b)) is the triangle inequality in all its three forms
        low, high = 0.0, 0.0
        for b in range(p):
            low = min(low, out[b])
            high = max(high, out[b] - min(mine, to_base[b]))
        violation = max(violation, max(high, -low))
        out[a] = -np.inf
        best = -np.inf
        for c in range(chunk_max.shape[1]):
            top = -np.inf
            for b in range(c * CHUNK, min(p, (c + 1) * CHUNK)):
                top = max(top, out[b])
            chunk_max[a, c] = top
            best = max(best, top)
        row_max[a] = best
    return violation


@_compile
def bound_rows(products, row_max, bounds, start, stop):
    """Set ``bounds[a]``, the row's upper bound of delta: max over b > a of min(max_k (a|k), max_k (b|k)) - (a|b)."""
    for a in range(start, stop):
        row, mine, top = products[a], row_max[a], -np.inf
        for b in range(a + 1, products.shape[0]):
            top = max(top, min(mine, row_max[b]) - row[b])
        bounds[a] = top


@_compile
def _evaluate(products, chunk_max, a, b, best):
    """Return the larger of ``best`` and the delta of the pair, max_k min((a|k), (k|b)) - (a|b)."""
    p = products.shape[0]
    left, right = products[a], products[b]
    here = left[b]
    for c in range(chunk_max.shape[1]):
        if min(chunk_max[a, c], chunk_max[b, c]) - here > best:
            top = -np.inf
            for k in range(c * CHUNK, min(p, (c + 1) * CHUNK)):
                top = max(top, min(left[k], right[k]))
            best = max(best, top - here)
    return best


@_compile
def search_rows(products, chunk_max, row_max, bounds, rows, best):
    """Return the larger of ``best`` and the delta of all pairs (a, b > a) with a in ``rows``."""
    p = products.shape[0]
    for a in rows:
        row, mine = products[a], row_max[a]
        for first in range(a + 1, p, CHUNK):
            if bounds[a] <= best:
                break
            last = min(p, first + CHUNK)
            top = -np.inf
            for b in range(first, last):
                top = max(top, min(mine, row_max[b]) - row[b])
            if top <= best:
                continue
            for b in range(first, last):
                if min(mine, row_max[b]) - row[b] > best:
                    best = _evaluate(products, chunk_max, a, b, best)
    return best


@_compile
def _climb(products, a, b, best):
    """Return the larger of ``best`` and an attained delta: improve a, b and k one after another until none changes."""
    p = products.shape[0]
    value, k = -np.inf, -1
    for _ in range(50):
        before = value
        left, right = products[a], products[b]
        for x in range(p):
            gain = min(left[x], right[x]) - left[b]
            if gain > value:
                value, k = gain, x
        if k < 0:
            break
        middle = products[k]
        for _ in range(2):  # b, then a by the same steps
            left = products[a]
            for x in range(p):
                if x != k and x != a:
                    gain = min(left[k], middle[x]) - left[x]
                    if gain > value:
                        value, b = gain, x
            a, b = b, a
        if value <= before:
            break
    return max(best, value)


@_compile
def climb_rows(products, row_max, bounds, rows, best):
    """Climb from the most promising pair of each row; return the larger of ``best`` and what was attained."""
    for a in rows:
        for b in range(a + 1, products.shape[0]):
            if min(row_max[a], row_max[b]) - products[a, b] >= bounds[a]:
                best = _climb(products, a, b, best)
                break
    return best
