"""Delta of random samples over sample sizes and SVD ranks, with repeats: the measurements behind the verdict.

Samples of one repeat are nested: one permutation of the points, cut at each size, with the first point as the base. So
growth with the size shows within each repeat. The paper draws a new sample for each size; single samples have the same
distribution in both cases.
"""

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recbole_hyper.curvature.gromov import (
    EUCLIDEAN_BOUND,
    METRIC_BOUND,
    Workspace,
    euclidean_distances,
    search_all_bases,
    search_base,
)
from recbole_hyper.threads import default_threads

PAPER_SIZES = (500, 1000, 1500, 2000, 2500, 3000, 4000)
PAPER_RANKS = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)
_WHOLE_BYTES = 2 << 30  # distances of all points are kept at once up to this size

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """One sample at one rank, and its exact delta (:class:`~recbole_hyper.curvature.gromov.DeltaResult`)."""

    rank: int  # number of columns of the item vectors; 0 for a distance matrix
    sample_size: int
    repeat: int  # number of the permutation, from 0
    base: int  # index of the base point; -1 for all bases
    delta: float
    diameter: float
    delta_rel: float
    seconds: float  # of the search, without the distances


def cut_list(values: Sequence[int] | None, default: Sequence[int], limit: int, what: str) -> list[int]:
    """Return ``values`` sorted; if None, the ``default`` values, with ``limit`` instead of those that exceed it.

    ValueError for a value of ``values`` outside 1..limit.
    """
    if values is None:
        chosen = [value for value in default if value <= limit]
        return chosen if len(chosen) == len(default) else sorted({*chosen, limit})
    if not values or not all(1 <= value <= limit for value in values):
        raise ValueError(f"{what} {list(values)}: choose at least one value, each from 1 to {limit}")
    return sorted(set(values))


def measure_samples(
    vectors: Any = None,
    *,
    distances: Any = None,
    ranks: Sequence[int] | None = None,
    sample_sizes: Sequence[int] | None = None,
    repeats: int = 48,
    seed: int = 0,
    every_base: bool = False,
    progress: Callable[[int, int], object] | None = None,
    threads: int | None = None,
) -> list[Measurement]:
    """Measure delta of nested random samples, ``threads`` repeats at once.

    Pass item vectors ``vectors`` (N, d) whose first k columns are the vectors of rank k, or ``distances`` (N, N).
    ``ranks`` are at most d, ``sample_sizes`` from 4 to N; None takes the paper's values within these limits. ``seed``
    and the number of a repeat determine its permutation. ``every_base`` takes the four-point delta instead of the
    paper's fixed base. ``progress`` is called with (finished, total). ValueError for fewer than 4 points, sizes or
    ranks out of range, NaN, or points that all coincide.
    """
    if (vectors is None) == (distances is None):
        raise ValueError("pass either vectors or distances=..., not both")
    points = np.asarray(distances if vectors is None else vectors, dtype=np.float64)
    total = len(points)
    if total < 4:
        raise ValueError(f"delta needs at least 4 points, got {total}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    sizes = cut_list(sample_sizes, PAPER_SIZES, total, "sample sizes")
    if sizes[0] < 4:
        raise ValueError(f"sample sizes {sizes}: a sample needs at least 4 points")
    widths = [0] if vectors is None else cut_list(ranks, PAPER_RANKS, points.shape[1], "ranks")
    orders = [np.random.default_rng([seed, r]).permutation(total) for r in range(repeats)]
    # compute the distances of all points once if that costs no more than once per repeat, and if they fit
    whole = total * total <= repeats * sizes[-1] ** 2 and 8 * total * total <= _WHOLE_BYTES
    measurements: list[Measurement] = []
    with ThreadPoolExecutor(default_threads() if threads is None else max(1, threads)) as pool:
        space = Workspace()
        for width in widths:
            matrix = None if width else points
            if width and whole:
                matrix = euclidean_distances(points[:, :width])
            measure = functools.partial(_measure, points, matrix, width, sizes, every_base, space)
            for of_repeat in pool.map(measure, range(repeats), orders):
                measurements += of_repeat
                if progress:
                    progress(len(measurements), len(widths) * len(sizes) * repeats)
    return sorted(measurements, key=lambda measurement: (measurement.rank, measurement.sample_size, measurement.repeat))


def _measure(
    points: Floats,
    matrix: Floats | None,
    width: int,
    sizes: list[int],
    every_base: bool,
    space: Workspace,
    repeat: int,
    order: NDArray[np.intp],
) -> list[Measurement]:
    """Measure all sizes of one repeat."""
    base, share = -1 if every_base else int(order[0]), EUCLIDEAN_BOUND if width else METRIC_BOUND
    if matrix is None:
        matrix = euclidean_distances(points[order[: sizes[-1]], :width])
        order = np.arange(sizes[-1])
    measurements = []
    diameter, before, attained = 0.0, 0, 0.0
    for size in sizes:
        started = time.perf_counter()
        chosen = order[:size]
        diameter = max(diameter, float(matrix[np.ix_(chosen[before:], chosen)].max()))
        before = size
        if diameter == 0:
            raise ValueError(f"all {size} points of a sample coincide (diameter 0): delta_rel is undefined")
        if every_base:
            inner = np.ascontiguousarray(matrix[np.ix_(chosen, chosen)])
            attained = search_all_bases(inner, diameter, share, threads=1)
        else:
            # a smaller sample with the same base is a subset of this one, so its delta is attained here too
            rest = (int(chosen[0]), chosen[1:], diameter)
            attained = search_base(matrix, *rest, at_least=attained, threads=1, workspace=space)
        delta = min(attained, share * diameter)
        seconds = time.perf_counter() - started
        measurements.append(Measurement(width, size, repeat, base, delta, diameter, 2.0 * delta / diameter, seconds))
    return measurements


def table_of(measurements: Sequence[Measurement]) -> tuple[list[int], list[int], Floats]:
    """Return ranks, sample sizes and delta_rel (ranks, sizes, repeats); ValueError where a combination is missing."""
    cells = {(t.rank, t.sample_size, t.repeat): t.delta_rel for t in measurements}
    ranks, sizes, repeats = (sorted(set(values)) for values in zip(*cells, strict=True))
    if len(cells) != len(ranks) * len(sizes) * len(repeats):
        raise ValueError("some combinations of rank, sample size and repeat were not measured")
    return ranks, sizes, np.array([[[cells[k, m, r] for r in repeats] for m in sizes] for k in ranks])
