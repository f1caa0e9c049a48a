"""BCE+ against a loop: value and gradients."""

from __future__ import annotations

import pytest

from recbole_hyper import registry
from tests.losses.sampled import GEOMETRIES, FixedNegatives, assert_same, problem, with_duplicates
from tests.reference import losses as reference


@pytest.mark.usefixtures("_pieces", "_ways")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_equals_the_loop(geometry: str, k: int, size: float) -> None:
    states, targets, head = problem(geometry, size=size)
    table = with_duplicates(targets, head.n_items, k)
    expected = reference.binary_cross_entropy_plus(head.logits(states), targets.tolist(), table.tolist(), 1.0).mean()
    negatives = FixedNegatives(table)
    loss = registry.resolve("losses", "bce_plus")(n_negatives=k)
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.requested == {"k": k, "exclude_seen": True, "replacement": False}
