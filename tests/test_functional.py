"""The public functions refuse what they cannot compute, with one clear message."""

from __future__ import annotations

import pytest
import torch

from recbole_hyper.functional import cross_entropy, poincare_logits


def arguments(**changes: object) -> dict:
    given = {
        "states": torch.zeros(3, 2),
        "targets": torch.tensor([1, 2, 3]),
        "weight": torch.zeros(5, 2),
        "offset": torch.zeros(5),
    }
    return given | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": torch.zeros(3, 4)}, r"must share d, got \(3, 4\) and \(5, 2\)"),
        ({"states": torch.zeros(2)}, "must share d"),
        ({"weight": torch.zeros(5, 2).int()}, "weight must be floating point, got torch.int32"),
        ({"offset": torch.zeros(4)}, r"offset must have shape \(5,\), got \(4,\)"),
        ({"targets": torch.tensor([1, 2])}, r"targets must have shape \(3,\)"),
        ({"targets": torch.tensor([1, 2, 3]).int()}, "targets must be int64"),
        ({"targets": torch.tensor([1, 2, 5])}, r"targets must be in 0..4, got values from 1 to 5"),
        ({"targets": torch.tensor([-1, 2, 3])}, "targets must be in"),
        ({"targets": torch.tensor([0, 2, 3]), "padding_idx": 0}, "a target equals padding_idx=0"),
        ({"padding_idx": 5}, "padding_idx must be"),
        ({"states": torch.zeros(0, 2), "targets": torch.zeros(0, dtype=torch.int64)}, "there is no row"),
        ({"geometry": "poincaré"}, "Did you mean 'poincare'"),
        ({"geometry": "poincare", "curvature": 0.0}, "curvature must be"),
        ({"reduction": "average"}, "allowed: mean, sum, none"),
        ({"memory_budget": 1}, "under one row of logits"),
    ],
)
def test_bad_input(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy(**arguments(**changes))


def test_one_class() -> None:
    loss = cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2))
    assert loss == 0
    with pytest.raises(ValueError, match="only class"):
        cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2), padding_idx=0)


def test_bad_logits_input() -> None:
    with pytest.raises(ValueError, match="offset must have shape"):
        poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), torch.zeros(3), 1.0)
    assert poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), None, 1.0).shape == (3, 5)
