"""Euclidean distance matrices that stay accurate for near points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# |x - y|^2 = |x|^2 + |y|^2 - 2<x, y> loses digits where it is small against its terms: below this share of them the
# differences are squared and summed instead. The relative error of a distance stays below about 1e-12 that way.
_NEAR = 1e-3
_BLOCK = 1024
_PAIRS = 1 << 22  # numbers held at once while near pairs are recomputed


def euclidean_distances(vectors: Any) -> NDArray[np.float64]:
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
    result = np.zeros((n, n))
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        block = points[start:stop] @ points[start:].T
        block *= -2.0
        terms = norms[start:stop, None] + norms[None, start:]
        block += terms
        terms *= _NEAR
        rows, columns = np.nonzero(block < terms)
        _recompute(points, block, rows, columns, start)
        np.sqrt(block, out=block)
        result[start:stop, start:] = block
        result[stop:, start:stop] = block[:, stop - start :].T
        square = result[start:stop, start:stop]
        lower = np.tril_indices(stop - start, -1)
        square[lower] = square.T[lower]
    np.fill_diagonal(result, 0.0)
    result *= scale
    return result


def _recompute(
    points: NDArray[np.float64],
    block: NDArray[np.float64],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    start: int,
) -> None:
    """Replace the squared distances of the given near pairs by sums of squared differences."""
    step = max(1, _PAIRS // points.shape[1])
    for first in range(0, len(rows), step):
        r, c = rows[first : first + step], columns[first : first + step]
        difference = points[start + r] - points[start + c]
        block[r, c] = np.einsum("nd,nd->n", difference, difference)
