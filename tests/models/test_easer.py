"""EASE^R against a dense inverse and RecBole's EASE."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recbole_hyper.config import Config
from recbole_hyper.models import easer
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.dataset import SequenceDataset
from tests.models.fitting import SUCCESSIVE, dense_histories, dense_train, fitted
from tests.raising import refused
from tests.reference.linear import ease_weights


@pytest.mark.parametrize("reg_weight", [0.5, 8.0, 500.0])
def test_easer_equals_the_dense_inverse(random_data: Path, reg_weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(easer, "_BLOCK", 7)  # several blocks, the last one smaller
    net, _, split = fitted("EASER", random_data, reg_weight=reg_weight, eval_args=SUCCESSIVE)
    weights = ease_weights(dense_train(net), reg_weight)
    np.testing.assert_allclose(net.weights.numpy(), weights, atol=1e-7, rtol=1e-6)
    assert not np.diagonal(net.weights.numpy()).any()
    expected = dense_histories(split.test) @ weights
    np.testing.assert_allclose(net.score_cases(split.test).numpy(), expected, atol=1e-5)


def test_easer_equals_recboles_ease_on_its_own_split(random_data: Path) -> None:
    from recbole.model.general_recommender.ease import EASE

    config = Config("EASE", "random", config_dict={"data_path": str(random_data), "use_gpu": False, "reg_weight": 3.0})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    training = dataset.restrict(split.store, split.train_lengths)
    theirs = EASE(config, training)
    net, _, _ = fitted("EASER", random_data, reg_weight=3.0)
    np.testing.assert_allclose(net.weights.numpy(), np.asarray(theirs.item_similarity), atol=2e-6)
    users = torch.arange(1, dataset.user_num)
    from recbole.data.interaction import Interaction

    batch = Interaction({config["USER_ID_FIELD"]: users})
    scores = theirs.full_sort_predict(batch).view(len(users), -1)
    np.testing.assert_allclose(net.full_sort_predict(batch).numpy(), scores.numpy(), atol=1e-5)


def test_easer_refuses_what_does_not_fit(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(easer.psutil, "virtual_memory", lambda: SimpleNamespace(available=10_000))
    with refused(ValueError, "EASER", "GB", "item_inter_num_interval", "PureSVDN"):
        fitted("EASER", random_data)
