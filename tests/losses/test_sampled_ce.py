"""CE- against a loop, and against the exact cross-entropy over the full catalogue."""

import pytest
import torch

from recbole_hyper import registry
from tests.losses.sampled import GEOMETRIES, FixedNegatives, assert_same, problem
from tests.reference import losses as reference


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_sampled_ce(geometry: str, size: float) -> None:
    """Sets shared by a sequence, with duplicates and with targets of the same rows among them."""
    states, targets, head = problem(geometry, size=size)
    rows = torch.tensor([2, 0, 0, 2, 2, 1, 0, 2, 2, 2, 0, 0])
    table = torch.randint(1, head.n_items, (4, 7), generator=torch.Generator().manual_seed(0))
    table[2, :2] = targets[0]
    scores = head.logits(states)
    expected = reference.sampled_cross_entropy(scores, targets.tolist(), table[rows].tolist()).mean()
    loss = registry.resolve("losses", "sampled_ce")(n_negatives=7)
    negatives = FixedNegatives(table, rows)
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.requested == {"k": 7}


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_sampled_ce_over_the_full_catalogue_is_ce(geometry: str) -> None:
    states, targets, head = problem(geometry)
    table = torch.arange(1, head.n_items)[None]
    loss = registry.resolve("losses", "sampled_ce")(n_negatives=head.n_items - 1)
    found = loss(states, targets, head, FixedNegatives(table, torch.zeros_like(targets)))
    exact = registry.resolve("losses", "ce")()(states, targets, head)
    assert_same(found, exact, states, head)
    torch.testing.assert_close(loss(states, targets, head), exact)
