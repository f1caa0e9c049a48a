"""PureSVD-N against a dense decomposition."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from recbole_hyper.batches.histories import history_matrix
from recbole_hyper.models import puresvd
from tests.models.fitting import SUCCESSIVE, dense_histories, dense_train, fitted
from tests.raising import refused
from tests.reference.linear import pure_svd_scores


@pytest.mark.parametrize("scaling", [0.0, 0.4, 1.0])
def test_puresvd_equals_a_dense_svd(random_data: Path, scaling: float) -> None:
    net, _, split = fitted("PureSVDN", random_data, rank=7, scaling=scaling, eval_args=SUCCESSIVE)
    expected = pure_svd_scores(dense_train(net), 7, scaling, dense_histories(split.test))
    np.testing.assert_allclose(net.score_cases(split.test).numpy(), expected, atol=2e-6)
    np.testing.assert_allclose(net.scores(net.fold_in(history_matrix(split.test))).numpy(), expected, atol=2e-6)


def test_many_items_are_decomposed_by_the_iteration(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _, _ = fitted("PureSVDN", random_data, rank=6)
    generator = np.random.default_rng(0)
    taste, offer = generator.random((500, 6)) ** 3, generator.random((300, 6)) ** 3
    net.matrix = scipy.sparse.csr_matrix(generator.random((500, 300)) < np.minimum(0.9, taste @ offer.T / 2))
    net.fit()
    dense = net.factors
    monkeypatch.setattr(puresvd, "GRAM_ITEMS", 10)
    net.fit()
    assert not torch.equal(net.factors, dense)
    torch.testing.assert_close(net.factors @ net.factors.T, dense @ dense.T, atol=1e-5, rtol=0)


def test_a_rank_beyond_the_matrix_is_refused(random_data: Path) -> None:
    with refused(ValueError, "rank=60"):
        fitted("PureSVDN", random_data, rank=60)
