"""gBCE against a loop, its calibration, and the code of its paper."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recbole_hyper import registry
from recbole_hyper.losses.gbce import calibration
from tests.losses.sampled import (
    GEOMETRIES,
    FixedNegatives,
    assert_same,
    problem,
    with_duplicates,
)
from tests.reference import losses as reference


@pytest.mark.usefixtures("_pieces", "_ways")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("t", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_equals_the_loop(geometry: str, k: int, t: float, size: float) -> None:
    states, targets, head = problem(geometry, size=size)
    table = with_duplicates(targets, head.n_items, k)
    alpha = k / (head.n_items - 2)
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha)
    expected = reference.binary_cross_entropy_plus(head.logits(states), targets.tolist(), table.tolist(), beta).mean()
    negatives = FixedNegatives(table)
    loss = registry.resolve("losses", "gbce")(n_negatives=k, t=t)
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.requested == {"k": k, "exclude_seen": False, "replacement": True}


def test_calibration() -> None:
    assert calibration(256, 3417, 0.0) == 1
    assert calibration(256, 3417, 1.0) == pytest.approx(256 / 3416)
    assert calibration(10_000, 100, 1.0) == 1  # more draws than items: nothing left to calibrate


def test_gbce_without_calibration_is_bce_plus() -> None:
    states, targets, head = problem("poincare")
    negatives = FixedNegatives(with_duplicates(targets, head.n_items, 6))
    gbce = registry.resolve("losses", "gbce")(n_negatives=6, t=0.0)(states, targets, head, negatives)
    plus = registry.resolve("losses", "bce_plus")(n_negatives=6)(states, targets, head, negatives)
    assert_same(gbce, plus, states, head)


def test_gbce_is_the_power_of_the_sigmoid() -> None:
    """beta softplus(-s) equals the code's way, s' = -log(sigma(s)^-beta - 1) under plain BCE, where that is finite."""
    states, targets, head = problem("euclidean")
    negatives = FixedNegatives(with_duplicates(targets, head.n_items, 3))
    loss = registry.resolve("losses", "gbce")(n_negatives=3, t=0.75)(states, targets, head, negatives)
    # the flat logits and beta written out: 29 items, 3 draws
    scores = states @ head.weight.T + head.offset
    positive, negative = scores.gather(1, targets[:, None])[:, 0], scores.gather(1, negatives.table)
    beta = 1 - 0.75 * (1 - 3 / 28)
    transformed = -torch.log(torch.sigmoid(positive) ** -beta - 1)
    logits = torch.cat((transformed[:, None], negative), dim=1)
    labels = torch.zeros_like(logits)
    labels[:, 0] = 1
    torch.testing.assert_close(loss, nn.functional.binary_cross_entropy_with_logits(logits, labels))
