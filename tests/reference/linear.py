"""Linear models in dense float64, as their papers write them."""

from __future__ import annotations

import numpy as np


def pure_svd_scores(matrix: np.ndarray, rank: int, scaling: float, histories: np.ndarray) -> np.ndarray:
    """Scores x V V^T; V are the leading right singular vectors of A diag(p ** ((s - 1) / 2))."""
    counts = matrix.sum(axis=0)
    scaled = matrix.astype(np.float64).copy()
    for item in range(matrix.shape[1]):
        scaled[:, item] *= counts[item] ** ((scaling - 1) / 2) if counts[item] else 0.0
    _, _, right = np.linalg.svd(scaled, full_matrices=False)
    v = right[:rank].T
    return histories @ v @ v.T


def ease_weights(matrix: np.ndarray, reg_weight: float) -> np.ndarray:
    """B of Steck (2019): -P_ij / P_jj off the diagonal, P the inverse of A^T A + lambda I."""
    n_items = matrix.shape[1]
    inverse = np.linalg.inv(matrix.T.astype(np.float64) @ matrix + reg_weight * np.eye(n_items))
    weights = np.zeros((n_items, n_items))
    for i in range(n_items):
        for j in range(n_items):
            if i != j:
                weights[i, j] = -inverse[i, j] / inverse[j, j]
    return weights
