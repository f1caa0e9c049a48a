"""Gromov delta-hyperbolicity of points or of a distance matrix, exact.

For four points let S1 >= S2 >= S3 be the sums of the distances of the three ways to split them into two pairs. Their
delta is (S1 - S2) / 2, and the delta of a metric space is the largest over all its quadruples: 0 for a tree. With a
base point w and Gromov products (x|y) = (d(x,w) + d(y,w) - d(x,y)) / 2,

    delta_w = max over x, y of [ max over z of min((x|z), (z|y)) - (x|y) ]

is the largest delta of the quadruples that contain w (HSASRec paper, appendix; Fournier et al. 2015), and
delta_w <= delta <= 2 delta_w.

How the search stays exact and short
------------------------------------
*Base w.* With R(x) = max over z != x of (x|z), a pair's delta is at most min(R(x), R(y)) - (x|y): O(n^2) for all pairs
at once. A few climbs from the best such pairs find a delta that is nearly always the final one; only pairs whose bound
exceeds it are evaluated, each in O(n) or, by maxima over chunks of columns, in O(n / 32). Products are rounded once and
then only compared and subtracted, and rounding is monotone: the result equals the O(n^3) loop to the last bit.

*All bases.* Every quadruple is seen from its first point in a fixed order, so base t needs only the points after it.
Points are ordered by falling mean distance, so that the diameter of those left shrinks, and the search ends when no
quadruple among them can win (the far-apart-pair argument of Cohen, Coudert and Lancin 2015; Borassi et al. 2015):

    Let S1 = x + y be the sum of the two distances x, y of the winning split; S2 + S3 is twice at least max(x, y),
    since either of x, y is spanned by two paths over the four other distances. So delta <= min(x, y) / 2 <= diam / 2,
    for real-valued distances as for integer ones. Hence delta_rel = 2 delta / diam lies in [0, 1].

    Euclidean points do better. Let the other sums be S2 = a + a', S3 = b + b'. Ptolemy's inequality gives
    aa' + bb' >= xy, and the parallelogram law a^2 + a'^2 + b^2 + b'^2 >= x^2 + y^2. Adding twice the first to the
    second, S2^2 + S3^2 >= (x + y)^2, so max(S2, S3) >= (x + y) / sqrt 2 and

        delta <= (1 - 1 / sqrt 2) (x + y) / 2 <= (1 - 1 / sqrt 2) diam = 0.2929 diam,   delta_rel <= 0.5858,

    attained by the square. No Euclidean data set, tree-like or not, exceeds it.

Within a base, a point's products are at most its distance to the base, so points no further than the delta found so
far drop out. These arguments use the triangle inequality: it is checked at each base that is searched, and bounds are
loosened by 1e-6 of the diameter so that rounded distances lose nothing.
"""

import itertools
import math
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recbole_hyper.threads import Pool

METRIC_BOUND = 0.5
EUCLIDEAN_BOUND = 1.0 - 1.0 / math.sqrt(2.0)
_SLACK = 1e-6  # share of the diameter by which rounded distances may break the triangle inequality
_CLIMBS = 24
# |x - y|^2 = |x|^2 + |y|^2 - 2<x, y> loses digits where it is small against its terms: below this share of them the
# differences are squared and summed instead. The relative error of a distance stays below about 1e-12 that way.
_NEAR = 1e-3
_BLOCK = 1024
_PAIRS = 1 << 22  # numbers held at once while near pairs are recomputed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeltaResult:
    """Delta of a set of points.

    Attributes:
        delta: the largest delta found, in units of the distances; it is attained by four of the points.
        diameter: the largest distance.
        delta_rel: 2 delta / diameter, in [0, 1] (at most 0.586 for Euclidean points).
        seconds: wall time, distances included.
    """

    delta: float
    diameter: float
    delta_rel: float
    seconds: float


class Workspace(threading.local):
    """Memory for the search at one base, kept between calls: every thread has its own, O(n^2) numbers."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def take(self, name: str, *shape: int, dtype: type = np.float64) -> NDArray[Any]:
        """An uninitialised array of the given shape, valid until the same name is taken again."""
        size = math.prod(shape)
        held = self._arrays.get(name)
        if held is None or held.size < size:
            held = self._arrays[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


def gromov_delta(
    vectors: Any = None,
    *,
    distances: Any = None,
    base: int | Literal["all"] = 0,
    threads: int | None = None,
) -> DeltaResult:
    """Gromov delta of points (Euclidean distances) or of any distance matrix.

    Args:
        vectors: (n, d) points, n >= 4; give these or ``distances``.
        distances: (n, n) metric: symmetric, zero diagonal, triangle inequality; each may fail by rounding, 1e-6 of the
            largest distance.
        base: index of the base point (the paper's fixed base; HSASRec takes the first of a random sample), or ``"all"``
            for the four-point delta over all quadruples.
        threads: at most this many; default see :func:`default_threads`.

    Raises:
        ValueError: fewer than 4 points, NaN or infinity, no two distinct points, a matrix that is no metric, or
            an unknown base.
    """
    started = time.perf_counter()
    if (vectors is None) == (distances is None):
        raise ValueError("give either vectors (points, Euclidean distances) or distances=..., and not both")
    matrix = euclidean_distances(vectors) if distances is None else _checked(distances)
    n = len(matrix)
    if n < 4:
        raise ValueError(f"delta needs at least 4 points, got {n}: with fewer it is 0 whatever the data")
    every = isinstance(base, str) and base == "all"
    if not every and (not isinstance(base, (int, np.integer)) or isinstance(base, bool) or not 0 <= base < n):
        raise ValueError(f'base must be "all" or the index of a point, 0 to {n - 1}; got {base!r}')
    diameter = float(matrix.max())
    if diameter == 0:
        raise ValueError(f"all {n} points coincide (diameter 0), so delta_rel is undefined: pass distinct points")
    share = EUCLIDEAN_BOUND if distances is None else METRIC_BOUND
    if every:
        attained = search_all_bases(matrix, diameter, share, threads=threads)
    else:
        others = np.delete(np.arange(n), int(base))
        attained = search_base(matrix, int(base), others, diameter, threads=threads)
    # the true delta obeys the ceiling, so clipping removes rounding only
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
    """Delta with the fixed ``base`` over the points ``others``; both are indices into ``distances`` (float64).

    ``at_least`` is a delta known to be attained with this base among these points (0 if none is known).

    Raises:
        ValueError: the distances to the base break the triangle inequality.
    """
    from recbole_hyper.kernels import gromov as kernels  # compiling waits until something is searched

    slack = _SLACK * diameter
    to_base = distances[base, others]
    order = np.argsort(-to_base, kind="stable")
    order = order[to_base[order] > at_least - slack]
    points = others[order]
    to_base = np.ascontiguousarray(to_base[order])
    p = len(points)
    if p < 3:
        return at_least
    space = workspace or Workspace()
    products = space.take("products", p, p)
    chunk_max = space.take("chunk_max", p, -(-p // kernels.CHUNK))
    row_max, bounds = space.take("row_max", p), space.take("bounds", p)
    with Pool(threads) as pool:

        def fill(part: tuple[int, int]) -> float:
            return float(kernels.fill_products(distances, points, to_base, products, chunk_max, row_max, *part))

        def bound(part: tuple[int, int]) -> None:
            kernels.bound_rows(products, row_max, bounds, *part)

        violation = max(pool.map(fill, _stretches(p, pool.threads)))
        _require_triangles(violation, slack)
        # what degenerate triples (the base as third point, or one point twice) attain: rounding, else 0
        at_least = max(at_least, violation)
        pool.map(bound, _stretches(p, pool.threads))
        rows = np.argsort(-bounds, kind="stable")
        best = float(kernels.climb_rows(products, row_max, bounds, rows[: min(_CLIMBS, p - 1)], at_least))
        rows = rows[bounds[rows] > best]
        step = 4 * pool.threads
        first = 0
        while first < len(rows) and bounds[rows[first]] > best:
            began = time.perf_counter()
            batch = rows[first : first + step]

            def search(share: NDArray[np.intp], known: float = best) -> float:
                return float(kernels.search_rows(products, chunk_max, row_max, bounds, share, known))

            best = max(pool.map(search, [batch[t :: pool.threads] for t in range(pool.threads)]))
            first += len(batch)
            took = time.perf_counter() - began
            step = max(pool.threads, min(4 * step, int(step * 0.1 / max(took, 1e-6))))
    return best


def search_all_bases(distances: Floats, diameter: float, share: float, *, threads: int | None = None) -> float:
    """The four-point delta of all points; ``share`` of a diameter bounds that of any subset."""
    from recbole_hyper.kernels import gromov as kernels

    n = len(distances)
    slack = _SLACK * diameter
    order = np.argsort(-distances.mean(axis=1), kind="stable")
    matrix = np.ascontiguousarray(distances[np.ix_(order, order)])
    rest = np.zeros(n)  # rest[t]: diameter of the points t, t+1, ...
    for t in range(n - 2, -1, -1):
        rest[t] = max(rest[t + 1], matrix[t, t + 1 :].max())
    space = Workspace()
    with Pool(threads) as pool:

        def scan(t: int, best: float) -> tuple[float, float]:
            p = n - t - 1
            chunks = -(-p // kernels.CHUNK)
            return kernels.scan_base(
                matrix,
                t,
                best,
                slack,
                space.take("products", p * p),
                space.take("chunk_max", p * chunks),
                space.take("row_max", p),
                space.take("bounds", p),
                space.take("points", p, dtype=np.int64),
                space.take("to_base", p),
            )

        best = 0.0
        running: set[Future[tuple[float, float]]] = set()
        t = 0
        while True:
            while len(running) < pool.threads and t < n - 3 and share * rest[t] + slack > best:
                running.add(pool.submit(scan, t, best))
                t += 1
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                delta, violation = future.result()
                _require_triangles(violation, slack)
                best = max(best, delta)
    return best


def _stretches(n: int, threads: int) -> list[tuple[int, int]]:
    """Cut the rows 0..n, of which row a has n - a entries to do, into stretches of about equal work."""
    count = 8 * threads if n >= 256 else 1
    edges = [round(n * (1 - math.sqrt(1 - i / count))) for i in range(count + 1)]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def _require_triangles(violation: float, slack: float) -> None:
    if violation > slack:
        raise ValueError(
            f"the distances are no metric: the triangle inequality fails by {violation:.3g}; "
            "pass a metric, for example shortest-path or Euclidean distances"
        )


def _checked(distances: Any) -> Floats:
    matrix = np.ascontiguousarray(np.asarray(distances), dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"distances must be a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("distances hold NaN or infinity: drop or repair these points first")
    largest = float(np.abs(matrix).max(initial=0.0))
    own = float(np.abs(np.diagonal(matrix)).max(initial=0.0))
    least = -float(matrix.min(initial=0.0))
    with np.errstate(over="ignore"):
        skew = float(np.abs(matrix - matrix.T).max(initial=0.0))
    for fault, what in (
        (own, f"the distance of a point to itself must be 0, it is up to {own:.3g}"),
        (least, f"distances must not be negative, the smallest is {-least:.3g}"),
        (
            skew,
            "distances must be symmetric, pass (distances + distances.T) / 2 if both measure the same: "
            f"d(x, y) and d(y, x) differ by up to {skew:.3g}",
        ),
    ):
        if fault > _SLACK * largest:
            raise ValueError(f"{what}; rounding of {_SLACK:g} of the largest distance ({largest:.3g}) is accepted")
    if own or least > 0 or skew:
        matrix = np.maximum(matrix + 0.5 * (matrix.T - matrix), 0.0)
        # both halves of a pair round alike only from one side
        lower = np.tril_indices(len(matrix), -1)
        matrix[lower] = matrix.T[lower]
        np.fill_diagonal(matrix, 0.0)
    return matrix


def euclidean_distances(vectors: Any) -> Floats:
    """Distances between all rows, (n, d) -> (n, n) float64, exactly symmetric; ValueError for NaN or infinity."""
    points = np.asarray(vectors, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"vectors must be a matrix of n points by d coordinates (d >= 1), got shape {points.shape}")
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points).all(axis=1)).sum())
        raise ValueError(f"{bad} of {len(points)} vectors hold NaN or infinity: drop or repair these rows first")
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
        np.sqrt(block, out=block)
        result[start:stop, start:] = block
        result[stop:, start:stop] = block[:, stop - start :].T
        square = result[start:stop, start:stop]
        lower = np.tril_indices(stop - start, -1)
        square[lower] = square.T[lower]
    np.fill_diagonal(result, 0.0)
    result *= scale
    return result
