"""The compiled path of the exact cross-entropy against its plain twin and float64."""

import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.kernels import softmax
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import Problem, Tiles
from recbole_hyper.losses._stream import ItemStream
from tests.losses.test_ce import full, gradients, problem

pytestmark = pytest.mark.usefixtures("kernels")

# one pass and two, over many tiles
CUTS = [Tiles(50, 120, True, 0), Tiles(40, 90, False, 0)]


def step(leaves: tuple[Tensor, ...], **how: object) -> list[Tensor]:
    """Return loss and gradients of the Poincare head."""
    states, targets, weight, offset, curvature = leaves
    loss = cross_entropy(states, targets, weight, offset, geometry="poincare", curvature=curvature, **how)
    return [loss.detach(), *(g for g in gradients(loss, (states, weight, offset, curvature)) if g is not None)]


def relative(found: list[Tensor], expected: list[Tensor]) -> list[float]:
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]


@pytest.mark.parametrize("tiles", CUTS)
@pytest.mark.parametrize("padding", [None, 0, 300])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("size", [1e-6, 1.0, 5.0])
def test_the_loss_equals_its_twin_and_float64(size, offset, padding, tiles, monkeypatch) -> None:
    monkeypatch.setattr(_chunks, "cut", lambda *given, **options: tiles)
    leaves, exact_leaves = (problem(252, 507, 13, padding, offset, t, size) for t in (torch.float32, torch.float64))
    truth = full(*exact_leaves, "poincare", padding)
    expected = [truth.detach(), *gradients(truth, (exact_leaves[0], *exact_leaves[2:]))]
    expected = [e for e in expected if e is not None]
    calls = []
    for name in ("linked_total_rows", "weigh_rows"):
        kernel = getattr(softmax, name)
        monkeypatch.setattr(softmax, name, lambda *given, n=name, k=kernel: calls.append(n) or k(*given))
    fused = relative(step(leaves, padding_idx=padding), expected)
    assert set(calls) == {"linked_total_rows", "weigh_rows"}
    calls.clear()
    monkeypatch.setattr(Poincare, "asinh_link", False)
    twin = relative(step(leaves, padding_idx=padding), expected)
    assert not calls
    # the curvature's gradient is one sum of large terms that cancel; for tiny states nothing of it is left in float32
    last = len(fused) - (size < 1e-3)
    for index, (mine, other) in enumerate(zip(fused[:last], twin[:last], strict=True)):
        assert mine <= 2 * other + (3e-4 if index == len(fused) - 1 else 2e-6), (fused, twin)


@pytest.mark.parametrize("tiles", CUTS)
def test_only_the_gradients_that_are_asked_for(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chunks, "cut", lambda *given, **options: tiles)
    expected = step(problem(252, 507, 13, 0, dtype=torch.float32), padding_idx=0)[1:]
    for asked in range(4):
        leaves = list(problem(252, 507, 13, 0, dtype=torch.float32))
        targets = leaves.pop(1)
        for index, leaf in enumerate(leaves):
            leaf.requires_grad_(index == asked)
        states, weight, offset, curvature = leaves
        options = {"geometry": "poincare", "curvature": curvature, "padding_idx": 0}
        cross_entropy(states, targets, weight, offset, **options).backward()
        torch.testing.assert_close(leaves[asked].grad, expected[asked], rtol=1e-4, atol=1e-6)


def stream(size: float = 1.0, dtype: torch.dtype = torch.float32, geometry: str = "poincare") -> ItemStream:
    states, targets, weight, offset, curvature = problem(20, 30, 4, 0, True, dtype, size)
    part = registry.resolve("geometry", geometry)()
    return ItemStream(Problem(states, targets, weight, offset, curvature, part, 0))


def test_where_the_kernels_do_not_fit_the_twins_serve() -> None:
    assert stream().fused
    assert not stream(size=60.0).compiled  # exponents are taken out
    assert not stream(dtype=torch.float64).compiled
    assert stream(geometry="euclidean").compiled
    assert not stream(geometry="euclidean").fused
