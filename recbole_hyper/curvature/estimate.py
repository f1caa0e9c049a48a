"""Estimate the curvature from a training matrix, with an interval: ``curvature: auto``.

``examples/delta_study.py`` measures more ranks and sample sizes, and gives a verdict on whether data are hyperbolic.
"""

import json
import logging
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from recbole_hyper.curvature.disk import EPS_DEFAULT, curvature_of
from recbole_hyper.curvature.gromov import EUCLIDEAN_BOUND, Floats, Workspace, euclidean_distances, search_base
from recbole_hyper.data.sequences import matrix_fingerprint
from recbole_hyper.files import read_json, write_json
from recbole_hyper.svd import check_rank, largest_rank, scaled_columns, top_eigenpairs
from recbole_hyper.threads import default_threads

logger = logging.getLogger("recbole_hyper")

AUTO_RANKS = (64, 128, 256, 384)
AUTO_SIZE, AUTO_REPEATS = 4000, 16
_WHOLE_BYTES = 2 << 30  # distances of all points are kept at once up to this size
_ROUNDING = 1e-7  # differences of item vectors below this share of their length are rounding
_VERSION = 2  # of the cache file; raise it when the meaning of an estimate changes


@dataclass(frozen=True)
class CurvatureEstimate:
    """The curvature that data imply.

    Attributes:
        curvature, delta_rel: c, and the delta_rel behind it: the mean over ``ranks`` and samples.
        lower, upper, delta_rel_lower, delta_rel_upper: the same at the 97.5 % and 2.5 % quantiles of delta_rel.
        eps: distance from the disk's effective radius to its rim.
        ranks, sample_size, repeats, seed: of the samples.
        n_items: items with at least one training interaction.
        seconds, cached, key: time of the measurement, whether it came from the cache, and its data and options.
    """

    curvature: float
    lower: float
    upper: float
    delta_rel: float
    delta_rel_lower: float
    delta_rel_upper: float
    eps: float
    ranks: tuple[int, ...]
    sample_size: int
    repeats: int
    seed: int
    n_items: int
    seconds: float
    cached: bool
    key: str


def trained_items(train_matrix: Any) -> scipy.sparse.csr_matrix:
    """Drop the columns of items without interactions; ValueError if fewer than 4 items are left."""
    matrix = scipy.sparse.csr_matrix(train_matrix)
    counts = np.bincount(matrix.indices, weights=matrix.data != 0, minlength=matrix.shape[1])
    matrix = scipy.sparse.csr_matrix(matrix[:, np.flatnonzero(counts > 0)])
    if matrix.shape[1] < 4:
        raise ValueError(f"only {matrix.shape[1]} items have training interactions: delta needs at least 4")
    return matrix


def item_vectors(train_matrix: Any, rank: int, *, scaling: float = 1.0, seed: int = 0) -> NDArray[np.float64]:
    """Return V Sigma (n_items, rank) of the truncated SVD of the binary user x item matrix (HSASRec paper, app. B).

    They are neither centred nor normalised. Items without interactions get zero vectors, and the first k columns are
    the vectors of rank k. The columns of the matrix are scaled first (:func:`~recbole_hyper.svd.scaled_columns`).
    ``seed`` starts the iteration. ValueError for an empty matrix, or a rank that is outside 1..min(shape) or does not
    fit into memory.
    """
    matrix = scipy.sparse.csr_matrix(train_matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise ValueError(
            f"the training matrix {matrix.shape} has no interactions, so there are no item vectors to measure"
        )
    if not 1 <= rank <= min(matrix.shape):
        size = "{} users x {} items".format(*matrix.shape)
        raise ValueError(f"rank {rank} is out of range for {size}: choose 1 to {min(matrix.shape)}")
    check_rank(min(matrix.shape), rank, ", or give the curvature as a number")
    matrix.data[:] = 1.0
    if scaling != 1.0:
        matrix = scaled_columns(matrix, scaling)
    by_user = matrix.shape[0] < matrix.shape[1]
    side = matrix.T.tocsr() if by_user else matrix  # (long, short): the Gram matrix is short x short
    values, vectors = top_eigenpairs(side, rank, seed)
    if by_user:
        return np.asarray(matrix.T @ vectors)  # A^T U = V Sigma
    return vectors * np.sqrt(np.maximum(values, 0.0))


def upper_ranks(ranks: Sequence[int], limit: int) -> list[int]:
    """Return the upper half of ``ranks``, with the middle one; ``limit`` takes the place of those that exceed it."""
    ordered = sorted({min(rank, limit) for rank in ranks})
    return ordered[len(ordered) // 2 :] if len(ordered) > 2 else ordered


def sample_deltas(
    vectors: NDArray[np.float64], ranks: Sequence[int], size: int, *, repeats: int, seed: int
) -> NDArray[np.float64]:
    """Return delta_rel (ranks, repeats) of random samples of ``size`` vectors (N, d), with the first as the base.

    The first k columns of ``vectors`` are those of rank k. ``seed`` and the number of a repeat determine its sample.
    ValueError for a sample whose points all coincide.
    """
    total, space = len(vectors), Workspace()
    orders = [np.random.default_rng([seed, repeat]).permutation(total)[:size] for repeat in range(repeats)]
    # compute the distances of all points once if that costs no more than once per repeat, and if they fit
    whole = total * total <= repeats * size**2 and 8 * total * total <= _WHOLE_BYTES

    def measure(points: Floats, matrix: Floats | None, least: float, order: NDArray[np.intp]) -> float:
        if matrix is None:
            matrix, order = euclidean_distances(points[order]), np.arange(size)
        diameter = float(matrix[np.ix_(order, order)].max())
        if diameter <= least:
            raise ValueError(f"all {size} points of a sample coincide (diameter 0): delta_rel is undefined")
        delta = search_base(matrix, int(order[0]), order[1:], diameter, threads=1, workspace=space)
        return 2.0 * min(delta, EUCLIDEAN_BOUND * diameter) / diameter

    values = []
    with ThreadPoolExecutor(default_threads()) as pool:
        for rank in ranks:
            points = vectors[:, :rank]
            least = _ROUNDING * float(np.abs(points).max())
            measured = partial(measure, points, euclidean_distances(points) if whole else None, least)
            values.append(list(pool.map(measured, orders)))
    return np.array(values)


def estimate_curvature(
    train_matrix: scipy.sparse.csr_matrix,
    *,
    eps: float = EPS_DEFAULT,
    ranks: Sequence[int] | None = None,
    sample_size: int | None = None,
    repeats: int = AUTO_REPEATS,
    seed: int = 0,
    scaling: float = 1.0,
    cache_path: str | os.PathLike[str] | None = None,
    fingerprint: str | None = None,
) -> CurvatureEstimate:
    """Estimate c = (delta_rel(disk, eps) / delta_rel(data))^2 from the item vectors of the training part.

    Args:
        train_matrix: (n_users, n_items) sparse; training interactions only. Items without interactions are dropped.
        eps: of the disk's effective radius, see :func:`~recbole_hyper.curvature.disk.disk_delta_rel`.
        ranks: of the truncated SVD, over which delta_rel is averaged. None: 256 and 384, or less where the shorter side
            of the matrix or memory allow less (memory does so if the shorter side exceeds 233,000).
        sample_size: points per sample. None: 4000, or all items if they are fewer.
        repeats: number of random samples.
        seed: of the samples.
        scaling: s of PureSVD-N, see :func:`item_vectors`.
        cache_path: JSON file with the estimate, reused for the same data (``fingerprint``; None: hash the matrix) and
            options. A damaged file, or one that cannot be written, causes a warning.

    Raises:
        ValueError: fewer than 4 items with interactions, ranks or a size out of range, or data whose delta is exactly 0
            (a tree), for which any curvature fits.
    """
    started = time.perf_counter()
    matrix = trained_items(train_matrix)
    n_items = matrix.shape[1]
    widths = sorted(ranks) if ranks else upper_ranks(AUTO_RANKS, largest_rank(min(matrix.shape)))
    size = min(AUTO_SIZE, n_items) if sample_size is None else sample_size
    if not 4 <= size <= n_items:
        raise ValueError(f"sample_size {size}: a sample has 4 to {n_items} of these items")
    data = fingerprint or matrix_fingerprint(matrix)
    key = json.dumps([_VERSION, data, eps, widths, size, repeats, seed, scaling])
    if cache_path is not None:
        cached = _read(Path(cache_path), key)
        if cached is not None:
            return cached
    vectors = item_vectors(matrix, widths[-1], scaling=scaling, seed=seed)
    values = sample_deltas(vectors, widths, size, repeats=repeats, seed=seed)
    mean, (low, high) = float(values.mean()), map(float, np.quantile(values, [0.025, 0.975]))
    if mean < _ROUNDING:
        raise ValueError("the item vectors form a tree (delta is 0), so any curvature fits: give a number")
    estimate = CurvatureEstimate(
        *(curvature_of(mean, eps), curvature_of(high, eps), curvature_of(low, eps), mean, low, high, eps),
        ranks=tuple(widths),
        sample_size=size,
        repeats=repeats,
        seed=seed,
        n_items=n_items,
        seconds=time.perf_counter() - started,
        cached=False,
        key=key,
    )
    if cache_path is not None:
        try:
            write_json(Path(cache_path), asdict(estimate))
        except OSError as error:
            logger.warning("the estimate of the curvature could not be cached: %s", error)
    return estimate


def _read(path: Path, key: str) -> CurvatureEstimate | None:
    """Return the cached estimate; None if it is missing, damaged, or from other data or options."""
    try:
        content = read_json(path) if path.is_file() else {}
        if content.get("key") != key:
            return None
        content["upper"] = math.inf if content["upper"] is None else content["upper"]
        content["ranks"] = tuple(content["ranks"])
        cached = replace(CurvatureEstimate(**content), cached=True)
        if not (0 < cached.curvature < math.inf and 0 <= cached.lower <= cached.upper):
            raise ValueError(f"its curvature is {cached.curvature}, between {cached.lower} and {cached.upper}")
        return cached
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("the cached curvature in %s is unusable and will be estimated again: %s", path, error)
        return None
