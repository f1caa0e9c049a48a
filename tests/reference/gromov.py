"""Gromov delta by plain loops, to be checked against the definition by eye."""

from __future__ import annotations

import mpmath
import numpy as np


def delta_fixed_base(distances: np.ndarray, base: int = 0) -> float:
    """max over i, j of [ max_k min((i|k), (k|j)) ] - (i|j), with (i|j) = (d(i,w) + d(j,w) - d(i,j)) / 2."""
    n = len(distances)
    d = distances
    product = [[0.5 * ((d[base, i] + d[base, j]) - d[i, j]) for j in range(n)] for i in range(n)]
    best = 0.0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                best = max(best, min(product[i][k], product[k][j]) - product[i][j])
    return best


def delta_four_points(distances: np.ndarray) -> float:
    """Half the difference of the two largest sums of opposite distances, at its largest over all quadruples."""
    n = len(distances)
    best = 0.0
    for a in range(n):
        for b in range(a):
            for c in range(b):
                for d in range(c):
                    sums = sorted(
                        [
                            distances[a, b] + distances[c, d],
                            distances[a, c] + distances[b, d],
                            distances[a, d] + distances[b, c],
                        ]
                    )
                    best = max(best, (sums[2] - sums[1]) / 2)
    return best


def tree_distances(parents: list[int], lengths: list[float]) -> np.ndarray:
    """Path lengths in the tree in which node i + 1 hangs on ``parents[i]`` (an earlier node) by ``lengths[i]``."""
    n = len(parents) + 1
    distances = np.zeros((n, n))
    for i, (parent, length) in enumerate(zip(parents, lengths, strict=True), start=1):
        for j in range(i):
            distances[i, j] = distances[j, i] = distances[parent, j] + length
    return distances


def shortest_paths(weights: np.ndarray) -> np.ndarray:
    """Floyd-Warshall on a symmetric matrix of edge weights: the largest metric below it."""
    distances = np.array(weights, dtype=np.float64)
    np.fill_diagonal(distances, 0.0)
    for k in range(len(distances)):
        for i in range(len(distances)):
            for j in range(len(distances)):
                distances[i, j] = min(distances[i, j], distances[i, k] + distances[k, j])
    return distances


def curvature_of(delta_rel: float, eps: float) -> float:
    """c of section 3.3 of the HSASRec paper in 50 digits: the disk's relative delta over that of the data, squared."""
    with mpmath.workdps(50):
        rim = mpmath.mpf(eps)
        diameter = 2 * mpmath.log(1 + 2 * (1 - rim) / rim)
        return float((2 * mpmath.log(1 + mpmath.sqrt(2)) / diameter / mpmath.mpf(delta_rel)) ** 2)
