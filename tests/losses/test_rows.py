"""The exact cross-entropy by whole rows, as on a device and for smoothed labels behind a link, against torch."""

import pytest
import torch

from recbole_hyper.functional import cross_entropy
from recbole_hyper.losses import ce
from recbole_hyper.losses._rows import RowStream, rows_at_once
from tests.losses.sampled import sized
from tests.losses.test_ce import AGAIN, GEOMETRIES, full, gradients, problem
from tests.raising import refused

N, M, D = 33, 57, 8


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("padding", [None, 0, 20])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_equals_torch(far, smoothing, padding, geometry, monkeypatch) -> None:
    """Also in chunks of a few rows, and with states so far out that exponents are taken out of their lifts."""
    monkeypatch.setattr(ce, "_engine_of", lambda *_: RowStream)
    states, targets, *others = problem(N, M, D, padding, size=far)
    weight, offset, curvature = others
    leaves = (states, *others)
    how = {"label_smoothing": smoothing, "reduction": "none"}
    losses = full(states, targets, weight, offset, curvature, geometry, padding, **how)
    row_weights = torch.linspace(-1, 2, N, dtype=torch.float64)
    options = {"geometry": geometry, "curvature": curvature, "padding_idx": padding, "label_smoothing": smoothing}
    for given, expected in ((None, losses.mean()), (row_weights, losses.dot(row_weights))):
        wanted = torch.autograd.grad(expected, leaves, **AGAIN)
        for budget in (1 << 20, 20_000):
            loss = cross_entropy(states, targets, weight, offset, row_weights=given, memory_budget=budget, **options)
            torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-11)
            for one, other in zip(gradients(loss, leaves), wanted, strict=True):
                assert one is not None or other is None
                if other is not None:
                    torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_rows_fit_the_budget() -> None:
    assert rows_at_once(sized(100, 1000, 8, 1 << 30)) == 100
    rows = rows_at_once(sized(100, 1000, 8, 400_000))
    assert rows * 8 * 1000 * 4 <= 400_000 - 6 * 100 * 8 * 4 < (rows + 1) * 8 * 1000 * 4
    with refused(ValueError, "51200"):
        rows_at_once(sized(100, 1000, 8, 51_199))
