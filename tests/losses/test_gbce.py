"""The calibration of gBCE, and the code of its paper; test_bce has its loop."""

import pytest
import torch
from torch import nn

from recbole_hyper import registry
from recbole_hyper.losses.gbce import calibration
from tests.losses.sampled import FixedNegatives, problem, with_duplicates


def test_calibration() -> None:
    assert calibration(256, 3417, 0.0) == 1
    assert calibration(256, 3417, 1.0) == pytest.approx(256 / 3416)
    assert calibration(10_000, 100, 1.0) == 1  # more draws than items: nothing left to calibrate


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
