"""Checks of user tensors that the functions share; test_functional has the messages that a user sees."""

import pytest
import torch

from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.losses.inputs import check_items, check_rows, checked_head, checked_negatives, geometry_of

TARGETS = torch.tensor([1, 2, 3])


def head_of(**options: object):
    return checked_head(torch.zeros(3, 2), TARGETS, torch.zeros(5, 2), None, padding_idx=0, **options)  # type: ignore[arg-type]


def test_a_head_has_the_options() -> None:
    head = head_of(geometry="poincare", curvature=0.25)
    assert (head.theta, head.padding_idx, head.n_items) == (0.25, 0, 5)
    cosine = Cosine(temperature=0.2)
    assert geometry_of(cosine) is cosine
    assert isinstance(geometry_of("cosine"), Cosine)


def test_a_tensor_is_the_learned_temperature() -> None:
    temperature = torch.tensor(0.3, requires_grad=True)
    head = head_of(geometry=Cosine(temperature="learn"), curvature=temperature)
    assert head.theta is temperature
    assert not list(head.parameters())


def test_negatives_are_drawn_or_taken() -> None:
    drawn = checked_negatives(None, 50, TARGETS, head_of(), torch.Generator().manual_seed(0))
    assert drawn.shape == (3, 50)
    for row, target in zip(drawn.tolist(), TARGETS.tolist(), strict=True):
        assert set(row) == {1, 2, 3, 4} - {target}
    table = torch.tensor([[2, 3], [1, 4], [4, 4]])
    assert checked_negatives(table, 9, TARGETS, head_of(), None) is table


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        (torch.ones(3), r"shape \(3, k\)"),
        (torch.ones(2, 4, dtype=torch.int64), r"shape \(3, k\)"),
        (torch.ones(3, 0, dtype=torch.int64), "k >= 1"),
        (torch.tensor([[5], [1], [1]]), r"negatives must be in 0\.\.4"),
        (torch.tensor([[0], [1], [1]]), "padding_idx=0"),
        (torch.tensor([[2], [2], [1]]), "equals its own target"),
    ],
)
def test_bad_negatives(negatives: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_negatives(negatives, 1, TARGETS, head_of(), None)


def test_rows_name_sets() -> None:
    check_rows(torch.tensor([0, 1, 1]), 3, 2)
    check_items(torch.tensor([1, 4]), head_of())
    for rows, message in ((torch.tensor([0, 1]), "shape"), (torch.zeros(3), "whole numbers"), (TARGETS, "sets")):
        with pytest.raises(ValueError, match=message):
            check_rows(rows, 3, 2)
