"""Local neighbourhoods of item vectors against those of the training data."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.spatial.distance import cdist
from sklearn.manifold import trustworthiness as of_sklearn

from examples.neighbourhoods import neighbourhoods, trustworthiness
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare

GROUPS, SIZE = 6, 5


@pytest.fixture
def counts() -> scipy.sparse.csr_matrix:
    """Items in groups: those of a group occur together, more or less often; item 0 is padding."""
    group = np.repeat(np.arange(GROUPS), SIZE)
    together = np.where(group[:, None] == group, 1.0 + np.add.outer(np.arange(30), np.arange(30)) / 100, 0.0)
    np.fill_diagonal(together, 0)
    return scipy.sparse.csr_matrix(np.pad(together, ((1, 0), (1, 0))))


def head_of(weight: np.ndarray, geometry: Euclidean | Poincare) -> OutputHead:
    return OutputHead(geometry, torch.nn.Parameter(torch.from_numpy(weight).float()), theta=0.5)


@pytest.mark.parametrize("geometry", [Euclidean(), Poincare()])
def test_groups_that_are_apart_are_perfect_and_shuffled_ones_are_not(geometry, counts) -> None:
    rng = np.random.default_rng(0)
    weight = np.vstack([np.zeros(GROUPS), np.repeat(np.eye(GROUPS), SIZE, axis=0)])
    weight[1:] += rng.normal(0, 0.01, (GROUPS * SIZE, GROUPS))
    found = neighbourhoods(head_of(weight, geometry), counts, k=SIZE - 1)
    assert found == (1.0, 1.0)
    weight[1:] = rng.permutation(weight[1:])
    shuffled = neighbourhoods(head_of(weight, geometry), counts, k=SIZE - 1)
    assert shuffled.overlap < 0.4
    assert shuffled.trustworthiness < 0.8


def test_the_overlap_is_that_of_a_loop(counts: scipy.sparse.csr_matrix) -> None:
    weight = np.random.default_rng(1).normal(size=(1 + GROUPS * SIZE, 3))
    k = 3
    shares = []
    for item in range(1, len(weight)):
        cosines = [
            weight[item] @ weight[j] / np.linalg.norm(weight[item]) / np.linalg.norm(weight[j])
            for j in range(1, len(weight))
        ]
        cosines[item - 1] = -2
        nearest = set(1 + np.argsort(cosines)[-k:])
        row = counts[item].toarray()[0]
        shares.append(len(nearest & set(sorted(range(len(row)), key=lambda j, row=row: (-row[j], j))[:k])) / k)
    assert neighbourhoods(head_of(weight, Euclidean()), counts, k=k).overlap == pytest.approx(np.mean(shares))


def test_items_without_neighbours_take_no_part(counts: scipy.sparse.csr_matrix) -> None:
    weight = np.random.default_rng(2).normal(size=(1 + GROUPS * SIZE, 3))
    alone = scipy.sparse.block_diag([counts, scipy.sparse.csr_matrix((4, 4))], format="csr")
    # the four are near everything
    more = np.vstack([weight, weight[1:5] * 1.001])
    one, other = (
        neighbourhoods(head_of(vectors, Euclidean()), table, k=3)
        for vectors, table in ((weight, counts), (more, alone))
    )
    assert one == other


def test_trustworthiness_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    data, vectors = rng.normal(size=(40, 6)), rng.normal(size=(40, 2))
    for k in (1, 5, 12):
        expected = of_sklearn(data, vectors, n_neighbors=k)
        assert trustworthiness(cdist(data, data), cdist(vectors, vectors), k) == pytest.approx(expected)
