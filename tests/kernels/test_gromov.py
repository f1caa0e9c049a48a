"""The loops of the Gromov delta against numpy on all pairs, bounds and climbs against the exact delta."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from recbole_hyper.kernels import gromov

N = 75  # several chunks of columns, the last one short


def distances(seed: int) -> np.ndarray:
    points = np.random.default_rng(seed).standard_t(2, size=(N, 3))
    return cdist(points, points)


def filled(matrix: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the violation, the products of the points 1 .. N - 1 with base 0, their maxima and the rows' bounds."""
    points, p = np.arange(1, N), N - 1
    products, chunk_max = np.empty((p, p)), np.empty((p, -(-p // gromov.CHUNK)))
    row_max, bounds = np.empty((2, p))
    cuts = ((0, 20), (20, p))
    arguments = (matrix, points, matrix[0, 1:].copy(), products, chunk_max, row_max)
    violation = max(gromov.fill_products(*arguments, *cut) for cut in cuts)
    for cut in cuts:
        gromov.bound_rows(products, row_max, bounds, *cut)
    return violation, products, chunk_max, row_max, bounds


def pair_deltas(products: np.ndarray) -> np.ndarray:
    """Return max over k of min((a|k), (k|b)) - (a|b) for a < b, else minus infinity."""
    best = np.minimum(products[:, None, :], products[None, :, :]).max(-1)
    return np.where(np.triu(np.ones_like(products), 1) > 0, best - products, -np.inf)


def test_products_and_their_maxima() -> None:
    matrix = distances(0)
    violation, products, chunk_max, row_max, _ = filled(matrix)
    expected = (matrix[0, 1:, None] + matrix[0, None, 1:] - matrix[1:, 1:]) / 2
    np.fill_diagonal(expected, -np.inf)
    np.testing.assert_allclose(products, expected, rtol=1e-12, atol=1e-12)
    for chunk in range(chunk_max.shape[1]):
        part = products[:, chunk * gromov.CHUNK : (chunk + 1) * gromov.CHUNK]
        np.testing.assert_array_equal(chunk_max[:, chunk], part.max(1))
    np.testing.assert_array_equal(row_max, products.max(1))
    assert violation < 1e-12


def test_a_violation_of_the_triangle_inequality_is_returned() -> None:
    matrix = distances(0)
    excess = 7.0
    matrix[3, 5] = matrix[5, 3] = matrix[0, 3] + matrix[0, 5] + excess
    assert filled(matrix)[0] == pytest.approx(excess / 2)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_is_exact_and_bounds_hold(seed: int) -> None:
    _, products, chunk_max, row_max, bounds = filled(distances(seed))
    exact = pair_deltas(products)
    assert (bounds >= exact.max(1)).all()
    rows = np.argsort(-bounds)
    assert gromov.search_rows(products, chunk_max, row_max, bounds, rows, 0.0) == exact.max()
    # a delta that is larger than all others stays
    assert gromov.search_rows(products, chunk_max, row_max, bounds, rows, 2 * exact.max()) == 2 * exact.max()
    climbed = gromov.climb_rows(products, row_max, bounds, rows[:24], 0.0)
    assert 0 < climbed <= exact.max()
