"""The truncated SVD against dense decompositions of numpy, and what memory allows."""

import numpy as np
import pytest
import scipy.sparse

from recbole_hyper import svd
from tests.raising import refused


def binary(rows: int, columns: int, *, flat: bool = False) -> scipy.sparse.csr_matrix:
    """Return interactions with six tastes, or without structure, whose singular values are close to each other."""
    generator = np.random.default_rng(0)
    taste, offer = generator.random((rows, 6)) ** 3, generator.random((columns, 6)) ** 3
    chance = 0.1 if flat else np.minimum(0.9, taste @ offer.T / 2)
    return scipy.sparse.csr_matrix(generator.random((rows, columns)) < chance, dtype=np.float64)


@pytest.mark.parametrize("dense", [None, 10], ids=["dense", "iterated"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("rank", [1, 7, 30])
def test_eigenpairs_of_the_gram_matrix(rank: int, flat: bool, dense: int | None) -> None:
    """With rank 30, no structure and few columns the iteration runs out of vectors, and the dense path takes over."""
    side = binary(500, 220 if flat else 300, flat=flat)
    values, vectors = svd.top_eigenpairs(side, rank, dense=dense)
    gram = (side.T @ side).toarray()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(gram)[::-1][:rank], rtol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(gram @ vectors, vectors * values, atol=1e-4 * values[0])


def test_nearly_all_eigenpairs() -> None:
    side = binary(90, 60)
    values, vectors = svd.top_eigenpairs(side, 60)
    np.testing.assert_allclose(vectors * values @ vectors.T, (side.T @ side).toarray(), atol=1e-9)


def test_columns_are_scaled_by_their_counts() -> None:
    matrix = binary(50, 30) @ scipy.sparse.diags((np.arange(30) != 3) * 1.0)  # an item without interactions
    counts = np.asarray(matrix.sum(axis=0)).ravel()
    expected = matrix.toarray() * np.where(counts > 0, np.maximum(counts, 1) ** -0.3, 0)
    np.testing.assert_allclose(svd.scaled_columns(matrix, 0.4).toarray(), expected)


def test_a_rank_that_does_not_converge_in_its_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "_BASIS_BYTES", 8 * 220 * 40)
    with refused(ValueError, "SVD"):
        svd.top_eigenpairs(binary(400, 220), 30, dense=10)


def test_memory_allows_a_rank_at_any_size() -> None:
    assert svd.largest_rank(3000) == 3000
    assert svd.largest_rank(23_170) == 23_170
    assert svd.largest_rank(233_000) == 384
    assert svd.largest_rank(300_000) == 298
    assert svd.largest_rank(10**9) == 1
