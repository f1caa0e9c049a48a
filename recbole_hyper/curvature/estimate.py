"""Estimate the curvature from a training matrix, with an interval and a verdict: ``curvature: auto``."""

import json
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from recbole_hyper.curvature.disk import EPS_DEFAULT, curvature_of
from recbole_hyper.curvature.study import Measurement, cut_list, measure_samples
from recbole_hyper.curvature.verdict import judge
from recbole_hyper.data.sequences import matrix_fingerprint
from recbole_hyper.files import read_json, write_json
from recbole_hyper.svd import check_rank, largest_rank, scaled_columns, top_eigenpairs

logger = logging.getLogger("recbole_hyper")

AUTO_RANKS = (64, 128, 256, 384)
AUTO_SIZES = (1000, 2000, 4000)
AUTO_REPEATS = 16
_VERSION = 1  # of the cache file; raise it when the meaning of an estimate changes


@dataclass(frozen=True)
class CurvatureEstimate:
    """The curvature that data imply.

    Attributes:
        curvature, delta_rel: c, and the delta_rel behind it: the mean over the plateau ranks at the largest sample.
        lower, upper, delta_rel_lower, delta_rel_upper: the same at the 97.5 % and 2.5 % quantiles of delta_rel over
            those ranks and all repeats.
        eps: distance from the disk's effective radius to its rim.
        verdict, reasons: ``compatible``, ``not compatible`` or ``undecided``; and a line for each question behind it
            (see :mod:`recbole_hyper.curvature.verdict`), plus one if memory ruled out ranks.
        plateau_ranks, sample_size, repeats, seed: of the measurements behind delta_rel.
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
    verdict: str
    reasons: tuple[str, ...]
    plateau_ranks: tuple[int, ...]
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


def choose_ranks(
    ranks: Sequence[int] | None, default: Sequence[int], shape: tuple[int, int], what: str
) -> tuple[list[int], list[str]]:
    """Return ``ranks``, or the default ones that the matrix and memory allow, and a note if memory ruled some out.

    ValueError for a rank of ``ranks`` outside 1..min(shape).
    """
    if ranks is not None:
        return cut_list(ranks, default, min(shape), what), []
    allowed = largest_rank(min(shape))
    left_out = [rank for rank in default if allowed < rank <= min(shape)]
    line = f"ranks {', '.join(map(str, left_out))} left out: at this size memory allows ranks up to {allowed}"
    return cut_list(None, default, allowed, what), [line] if left_out else []


def summarise(
    measurements: Sequence[Measurement], *, eps: float, seed: int, n_items: int, seconds: float, key: str
) -> CurvatureEstimate:
    """Compute curvature, interval and verdict from the measurements of a study."""
    verdict = judge(measurements)
    ranks, largest = verdict.plateau_ranks, verdict.largest_sample
    values = np.array([t.delta_rel for t in measurements if t.rank in ranks and t.sample_size == largest])
    low, high = (float(q) for q in np.quantile(values, [0.025, 0.975]))
    mean = float(values.mean())
    return CurvatureEstimate(
        *(curvature_of(mean, eps), curvature_of(high, eps), curvature_of(low, eps)),
        *(mean, low, high, eps),
        verdict=verdict.verdict,
        reasons=tuple(verdict.explain()),
        plateau_ranks=ranks,
        sample_size=largest,
        repeats=len({t.repeat for t in measurements}),
        seed=seed,
        n_items=n_items,
        seconds=seconds,
        cached=False,
        key=key,
    )


def estimate_curvature(
    train_matrix: scipy.sparse.csr_matrix,
    *,
    eps: float = EPS_DEFAULT,
    ranks: Sequence[int] | None = None,
    sample_sizes: Sequence[int] | None = None,
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
        ranks: of the truncated SVD. None: (64, 128, 256, 384), as far as the shorter side of the matrix and memory
            allow (memory allows less than 384 if the shorter side exceeds 233,000).
        sample_sizes: points per sample. None: (1000, 2000, 4000), cut at the number of items.
        repeats: number of random samples of each size.
        seed: of the samples.
        scaling: s of PureSVD-N, see :func:`item_vectors`.
        cache_path: JSON file with the estimate, reused for the same data (``fingerprint``; None: hash the matrix) and
            options. A damaged file, or one that cannot be written, causes a warning.

    Raises:
        ValueError: fewer than 4 items with interactions, ranks or sizes out of range, or data whose delta is exactly 0
            (a tree), for which any curvature fits.
    """
    started = time.perf_counter()
    matrix = trained_items(train_matrix)
    widths, notes = choose_ranks(ranks, AUTO_RANKS, matrix.shape, "ranks")
    sizes = cut_list(sample_sizes, AUTO_SIZES, matrix.shape[1], "sample sizes")
    if sample_sizes is None and len(sizes) == 1 and sizes[0] >= 8:
        sizes = [sizes[0] // 2, sizes[0]]  # a small catalogue: growth needs a second size
    data = fingerprint or matrix_fingerprint(matrix)
    key = json.dumps([_VERSION, data, eps, widths, sizes, repeats, seed, scaling])
    if cache_path is not None:
        cached = _read(Path(cache_path), key)
        if cached is not None:
            return cached
    vectors = item_vectors(matrix, widths[-1], scaling=scaling, seed=seed)
    measurements = measure_samples(vectors, ranks=widths, sample_sizes=sizes, repeats=repeats, seed=seed)
    seconds = time.perf_counter() - started
    estimate = summarise(measurements, eps=eps, seed=seed, n_items=matrix.shape[1], seconds=seconds, key=key)
    estimate = replace(estimate, reasons=(*estimate.reasons, *notes))
    if not math.isfinite(estimate.curvature):
        raise ValueError("the item vectors form a tree (delta is exactly 0), so any curvature fits: give a number")
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
        content["reasons"], content["plateau_ranks"] = tuple(content["reasons"]), tuple(content["plateau_ranks"])
        cached = replace(CurvatureEstimate(**content), cached=True)
        if not (0 < cached.curvature < math.inf and 0 <= cached.lower <= cached.upper):
            raise ValueError(f"its curvature is {cached.curvature}, between {cached.lower} and {cached.upper}")
        return cached
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("the cached curvature in %s is unusable and will be estimated again: %s", path, error)
        return None
