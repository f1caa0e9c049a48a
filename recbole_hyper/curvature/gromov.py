"""The exact Gromov delta-hyperbolicity of points or of a distance matrix.

Four points split into two pairs in three ways. Let S1 >= S2 >= S3 be the sums of the two distances. The delta of the
points is (S1 - S2) / 2, and the delta of a metric space is the largest over all its quadruples: 0 for a tree. With a
base point w and Gromov products (x|y) = (d(x,w) + d(y,w) - d(x,y)) / 2,

    delta_w = max over x, y of [ max over z of min((x|z), (z|y)) - (x|y) ]

is the largest delta of the quadruples that contain w (HSASRec paper, appendix; Fournier et al. 2015), and
delta_w <= delta <= 2 delta_w.

*Base w.* With R(x) = max over z != x of (x|z), the delta of a pair is at most min(R(x), R(y)) - (x|y). This takes
O(n^2) for all pairs. A few climbs from the most promising pairs nearly always find the final delta. Only pairs whose
bound exceeds it are evaluated, each in O(n), or in O(n / 32) by maxima over chunks of columns. Products are rounded
once and then only compared and subtracted, and rounding is monotone, so the result equals the O(n^3) loop to the last
bit.

Real distances obey delta <= diam / 2 (of the two distances x, y of the winning split either is spanned by two paths
over the four others), so delta_rel = 2 delta / diam lies in [0, 1]. Euclidean points do better: by Ptolemy's inequality
and the parallelogram law delta <= (1 - 1 / sqrt 2) diam = 0.2929 diam, and the square attains delta_rel 0.5858.

A point's products are at most its distance to the base, so points no further from it than the best delta so far are
dropped. These arguments use the triangle inequality, which is checked at each base that is searched. Bounds have a
slack of 1e-6 of the diameter for rounded distances.
"""

import itertools
import math
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import is_valid_dm

from recbole_hyper.threads import Pool

METRIC_BOUND = 0.5
EUCLIDEAN_BOUND = 1.0 - 1.0 / math.sqrt(2.0)
_SLACK = 1e-6  # share of the diameter by which rounded distances may break the triangle inequality
_CLIMBS = 24
# |x - y|^2 = |x|^2 + |y|^2 - 2<x, y> loses digits if it is small against its terms: below this share of them the
# differences are squared and summed instead, which keeps the relative error of a distance below about 1e-12
_NEAR = 1e-3
_BLOCK = 1024
_PAIRS = 1 << 22  # numbers in memory at once while near pairs are recomputed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeltaResult:
    """The ``delta`` of points, which four of them attain, and their ``diameter``, in units of the distances.

    ``delta_rel`` is 2 delta / diameter, in [0, 1] (at most 0.586 for Euclidean points). ``seconds`` include the
    distances.
    """

    delta: float
    diameter: float
    delta_rel: float
    seconds: float


class Workspace(threading.local):
    """Arrays that the searches of a thread reuse."""

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def take(self, name: str, *shape: int) -> Floats:
        """Return an uninitialised array, valid until the same name is taken again."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


def gromov_delta(
    vectors: Any = None,
    *,
    distances: Any = None,
    base: int = 0,
    threads: int | None = None,
) -> DeltaResult:
    """Return the Gromov delta of points ``vectors`` (n, d) or of any metric ``distances`` (n, n), n >= 4.

    A metric is symmetric, has a zero diagonal and obeys the triangle inequality, each up to a rounding of 1e-6 of the
    largest distance. ``base`` is the index of the base point (the paper's fixed base; HSASRec takes the first of a
    random sample). ``threads`` is the largest number of threads; None for
    :func:`~recbole_hyper.threads.default_threads`. ValueError for fewer than 4 points, NaN or infinity, points that all
    coincide, a matrix that is not a metric, or an invalid base.
    """
    started = time.perf_counter()
    if (vectors is None) == (distances is None):
        raise ValueError("pass either vectors (points with Euclidean distances) or distances=..., not both")
    matrix = euclidean_distances(vectors) if distances is None else _checked(distances)
    n = len(matrix)
    if n < 4:
        raise ValueError(f"delta needs at least 4 points, got {n}: with fewer it is 0 whatever the data")
    if not isinstance(base, (int, np.integer)) or isinstance(base, bool) or not 0 <= base < n:
        raise ValueError(f"base must be the index of a point, 0 to {n - 1}; got {base!r}")
    diameter = float(matrix.max())
    if diameter == 0:
        raise ValueError(f"all {n} points coincide (diameter 0), so delta_rel is undefined: pass distinct points")
    share = EUCLIDEAN_BOUND if distances is None else METRIC_BOUND
    attained = search_base(matrix, int(base), np.delete(np.arange(n), int(base)), diameter, threads=threads)
    # the true delta obeys the bound, so clipping only removes rounding
    delta = min(attained, share * diameter)
    return DeltaResult(delta, diameter, 2.0 * delta / diameter, time.perf_counter() - started)


def search_base(
    distances: Floats,
    base: int,
    others: NDArray[np.intp],
    diameter: float,
    *,
    at_least: float = 0.0,
    threads: int | None = None,
    workspace: Workspace | None = None,
) -> float:
    """Return delta with the fixed ``base`` over the points ``others``, indices into ``distances`` (float64).

    ``at_least`` is a delta that these points are known to attain. ValueError if the triangle inequality fails.
    """
    slack = _SLACK * diameter
    to_base = distances[base, others]
    order = np.argsort(-to_base, kind="stable")
    order = order[to_base[order] > at_least - slack]
    points, to_base = others[order], np.ascontiguousarray(to_base[order])
    p = len(points)
    if p < 3:
        return at_least
    from recbole_hyper.kernels import gromov as kernels  # numba is imported when a delta is computed

    space = workspace or Workspace()
    products, chunk_max = space.take("products", p, p), space.take("chunk_max", p, -(-p // kernels.CHUNK))
    row_max, bounds = space.take("row_max", p), space.take("bounds", p)
    with Pool(threads) as pool:

        def fill(part: tuple[int, int]) -> float:
            return float(kernels.fill_products(distances, points, to_base, products, chunk_max, row_max, *part))

        stretches = _stretches(p, pool.threads)
        violation = max(pool.map(fill, stretches))
        _require_metric(violation, slack)
        # degenerate triples (the base as third point, or one point twice) attain this: rounding, or 0
        best = max(at_least, violation)
        pool.map(lambda part: kernels.bound_rows(products, row_max, bounds, *part), stretches)
        rows = np.argsort(-bounds, kind="stable")
        rows = rows[bounds[rows] > best]
        best = float(kernels.climb_rows(products, row_max, bounds, rows[:_CLIMBS], best))
        step, first = 4 * pool.threads, 0
        while first < len(rows) and bounds[rows[first]] > best:
            clock = time.perf_counter()
            batch = rows[first : first + step]

            def search(part: NDArray[np.intp], known: float = best) -> float:
                return float(kernels.search_rows(products, chunk_max, row_max, bounds, part, known))

            best = max(pool.map(search, [batch[t :: pool.threads] for t in range(pool.threads)]))
            first += len(batch)
            took = time.perf_counter() - clock
            step = max(pool.threads, min(4 * step, int(step * 0.1 / max(took, 1e-6))))
    return best


def _require_metric(violation: float, slack: float) -> None:
    if violation > slack:
        raise ValueError(
            f"the distances are not a metric: the triangle inequality fails by {violation:.3g}; "
            "pass a metric, for example shortest-path or Euclidean distances"
        )


def _stretches(n: int, threads: int) -> list[tuple[int, int]]:
    """Cut the rows 0..n, where row a has n - a entries, into stretches of about equal work."""
    count = 8 * threads if n >= 256 else 1
    edges = [round(n * (1 - math.sqrt(1 - i / count))) for i in range(count + 1)]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def _checked(distances: Any) -> Floats:
    matrix = np.array(distances, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"distances must be a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("distances contain NaN or infinity: drop or repair these points first")
    slack = _SLACK * float(np.abs(matrix).max(initial=0.0))
    # symmetric with a diagonal of 0
    is_valid_dm(matrix, tol=slack, throw=True, name="distances")
    if (least := float(matrix.min(initial=0.0))) < -slack:
        raise ValueError(f"distances must not be negative, the smallest is {least:.3g}")
    matrix = np.maximum(matrix + 0.5 * (matrix.T - matrix), 0.0)
    _mirror(matrix)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _mirror(matrix: Floats) -> None:
    """Copy the upper triangle to the lower, so that both have the same rounding."""
    lower = np.tril_indices(len(matrix), -1)
    matrix[lower] = matrix.T[lower]


def euclidean_distances(vectors: Any) -> Floats:
    """Return the distances of all rows, (n, d) -> (n, n) float64, exactly symmetric; ValueError for NaN or infinity."""
    points = np.asarray(vectors, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"vectors must be a matrix of n points by d coordinates (d >= 1), got shape {points.shape}")
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points).all(axis=1)).sum())
        raise ValueError(f"{bad} of {len(points)} vectors contain NaN or infinity: drop or repair these rows first")
    n = len(points)
    # a power of two scales without rounding and keeps the squares inside the range of float64
    largest = float(np.abs(points).max(initial=0.0))
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0
    points = points / scale
    points = points - points.mean(axis=0)
    norms = np.einsum("nd,nd->n", points, points)
    result, step = np.zeros((n, n)), max(1, _PAIRS // points.shape[1])
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        block = points[start:stop] @ points[start:].T
        block *= -2.0
        terms = norms[start:stop, None] + norms[None, start:]
        block += terms
        terms *= _NEAR
        near = np.nonzero(block < terms)
        for first in range(0, len(near[0]), step):
            row, column = (places[first : first + step] for places in near)
            difference = points[start + row] - points[start + column]
            block[row, column] = np.einsum("nd,nd->n", difference, difference)
        result[start:stop, start:] = np.sqrt(block, out=block)
        result[stop:, start:stop] = block[:, stop - start :].T
        _mirror(result[start:stop, start:stop])
    np.fill_diagonal(result, 0.0)
    result *= scale
    return result
