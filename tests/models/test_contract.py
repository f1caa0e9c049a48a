"""Functions that work for any model, ours or RecBole's, against plain loops."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from recbole_hyper.models.contract import OwnModel, item_vectors, n_learned, similarity


class Ours(OwnModel, nn.Module):
    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__()
        self.layer, self.fixed = nn.Linear(2, 3), nn.Parameter(torch.zeros(9), requires_grad=False)

    def item_vectors(self) -> torch.Tensor:
        return self.layer.weight


def recbole_model(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(n_items=4, **attributes)


def test_item_vectors_of_recboles_models() -> None:
    table = nn.Embedding(5, 3)  # row 4 is BERT4Rec's mask
    vectors = item_vectors(recbole_model(item_embedding=table))
    assert vectors is not None
    assert not vectors.requires_grad
    assert torch.equal(vectors, table.weight[:4])
    output = torch.randn(4, 3)
    assert item_vectors(recbole_model(item_embedding=table, restore_item_e=output)) is not None
    assert torch.equal(item_vectors(recbole_model(item_embedding=table, restore_item_e=output)), output)
    for without in (recbole_model(), recbole_model(restore_item_e=torch.zeros(4))):
        assert item_vectors(without) is None
        assert similarity(without, torch.tensor([1])) is None


def test_a_model_of_this_package_names_its_vectors_whose_cosine_is_that_of_each_pair() -> None:
    model = Ours("config", "dataset")
    vectors = model.layer.weight
    assert item_vectors(model) is vectors
    found = similarity(model, torch.tensor([2, 0]))
    assert found is not None
    assert found[0] == "cosine of the item vectors"
    for row, item in enumerate((2, 0)):
        for other in range(3):
            expected = vectors[item] @ vectors[other] / (vectors[item].norm() * vectors[other].norm())
            assert found[1][row, other].item() == pytest.approx(expected.item(), abs=1e-6)


def test_learned_values_are_those_with_gradient_unless_the_model_counts_them() -> None:
    model = Ours("config", "dataset")
    assert n_learned(model) == n_learned(model.layer) == 2 * 3 + 3
    model.n_learned = 40
    assert n_learned(model) == 40
