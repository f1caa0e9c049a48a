"""The truncated SVD behind item vectors against a dense SVD, by distances, which signs and rotations do not change."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

from recbole_hyper import svd
from recbole_hyper.curvature.estimate import item_vectors


def distances(points: np.ndarray) -> np.ndarray:
    """All pairwise Euclidean distances, by scipy."""
    return cdist(points, points)


def interactions(users: int, items: int, seed: int = 0) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    taste, offer = rng.random((users, 6)) ** 3, rng.random((items, 6)) ** 3
    return scipy.sparse.csr_matrix(rng.random((users, items)) < np.minimum(0.9, taste @ offer.T / 2), dtype=np.float64)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
@pytest.mark.parametrize("scaling", [1.0, 0.4])
def test_equal_to_a_dense_svd(shape: tuple[int, int], scaling: float) -> None:
    matrix = interactions(*shape)
    counts = np.asarray(matrix.sum(axis=0)).ravel()
    dense = matrix.toarray() * np.where(counts > 0, np.maximum(counts, 1) ** ((scaling - 1) / 2), 0)
    _, values, vectors = np.linalg.svd(dense, full_matrices=False)
    found = item_vectors(matrix, 12, scaling=scaling)
    assert found.shape == (shape[1], 12)
    for rank in (1, 5, 12):
        expected = distances(vectors[:rank].T * values[:rank])
        np.testing.assert_allclose(distances(found[:, :rank]), expected, atol=1e-8)


@pytest.mark.parametrize("shape", [(500, 300), (300, 500)])
def test_the_iteration_equals_the_dense_path(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = interactions(*shape, seed=1)
    dense = distances(item_vectors(matrix, 30))
    monkeypatch.setattr(svd, "DENSE", 10)
    found = item_vectors(matrix, 30)
    np.testing.assert_allclose(distances(found), dense, atol=1e-4 * dense.max())
    norms = np.linalg.norm(found, axis=0)
    assert (np.diff(norms) <= 1e-9).all()  # singular values, falling
    np.testing.assert_allclose(norms, np.linalg.svd(matrix.toarray(), compute_uv=False)[:30], rtol=1e-6)


def test_full_rank_distances_are_those_of_the_columns() -> None:
    matrix = interactions(50, 30)
    found = distances(item_vectors(matrix, 30))
    np.testing.assert_allclose(found, distances(matrix.toarray().T), atol=1e-6)


def test_counts_are_binarised_and_the_input_is_left_alone() -> None:
    matrix = interactions(40, 30)
    doubled = matrix * 3.0
    before = doubled.copy()
    np.testing.assert_array_equal(item_vectors(doubled, 5), item_vectors(matrix, 5))
    assert (doubled != before).nnz == 0


@pytest.mark.parametrize("rank", [0, 31, 1000])
def test_rank_out_of_range(rank: int) -> None:
    with pytest.raises(ValueError, match=rf"rank {rank} is out of range for 40 users x 30 items: choose 1 to 30"):
        item_vectors(interactions(40, 30), rank)


def test_a_rank_that_memory_does_not_allow_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "DENSE", 10)
    monkeypatch.setattr(svd, "_BASIS_BYTES", 8 * 300 * 240)
    monkeypatch.setattr(svd.scipy.sparse, "diags", None)  # not reached
    matrix = interactions(500, 300, seed=1)
    message = r"rank 45 of a Gram matrix of 300 x 300 needs .* 270 vectors, but only 240 fit .* at most 40, or give"
    with pytest.raises(ValueError, match=message):
        item_vectors(matrix, 45, scaling=0.5)
    assert item_vectors(matrix, 50).shape == (300, 50)  # decomposed whole: no basis


def test_memory_allows_a_rank_at_any_size() -> None:
    assert svd.largest_rank(3000) == 3000
    assert svd.largest_rank(23_170) == 23_170
    assert svd.largest_rank(233_000) == 384
    assert svd.largest_rank(300_000) == 298
    assert svd.largest_rank(10**9) == 1


def test_empty_matrix() -> None:
    with pytest.raises(ValueError, match="no interaction"):
        item_vectors(scipy.sparse.csr_matrix((5, 5)), 2)
