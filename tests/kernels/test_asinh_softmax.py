"""The kernels that make asinh and softmax of a tile in one go: against float64, and in the loss against their twins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.kernels import softmax
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import Tiles
from recbole_hyper.losses._stream import ItemStream
from tests.losses.test_ce import full, gradients, problem

Floats = npt.NDArray[np.float32]
# one pass and two, over many tiles
CUTS = [Tiles(50, 120, True, 0), Tiles(40, 90, False, 0)]


def operands(height: int, width: int, size: float) -> list[Floats]:
    """Return products, extra columns of states and items, scales, and the product of the last two."""
    generator = np.random.default_rng(height + width)
    inner, column, extra = (size * generator.standard_normal(s) for s in ((height, width), height, width))
    scale = 3 * generator.random(width) / np.arcsinh(size)  # logits of ordinary size, so that many of them count
    inner, column, extra, scale = (x.astype(np.float32) for x in (inner, column / size**0.5, extra / size**0.5, scale))
    return [inner, column, extra, scale, extra * scale]


def exact(inner: Floats, column: Floats, extra: Floats, scale: Floats, mixing: Floats) -> list[npt.NDArray[np.float64]]:
    """Return exp(logit - top) times slope, the same times logit, largest logits, sums, and the mixed slopes."""
    inner, column, extra, scale, mixing = (x.astype(np.float64) for x in (inner, column, extra, scale, mixing))
    u = inner + np.outer(column, extra)
    logits = scale * np.arcsinh(u)
    top = logits.max(1)
    e = np.exp(logits - top[:, None])
    return [e / np.sqrt(1 + u * u), e * logits, top, e.sum(1), (e / np.sqrt(1 + u * u)) @ mixing]


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 300.0, 1e17])
@pytest.mark.parametrize("shape", [(6, 600), (3, 5), (1, 1)])
def test_a_tile_against_float64(shape: tuple[int, int], size: float) -> None:
    given = operands(*shape, size)
    given[0][0, 0] = 0
    by_slope, by_logit, top, total, mixed = exact(*given)
    tolerance = {"rtol": 1e-5, "atol": 1e-6 * np.abs(by_slope).max()}
    inner, (found_top, found_total) = given[0].copy(), np.empty((2, shape[0]), np.float32)
    softmax.linked_total_rows(inner, *given[1:4], found_top, found_total)
    np.testing.assert_array_equal(inner, given[0])
    np.testing.assert_allclose(found_top, top, rtol=1e-6)
    np.testing.assert_allclose(found_total, total, rtol=2e-6)

    generator = np.random.default_rng(3)
    factor = generator.random(shape[0]).astype(np.float32)
    first, second = np.ones((2, shape[1]), np.float32)
    strips = np.empty((shape[0], -(-shape[1] // softmax.STRIP)), np.float32)
    softmax.weigh_rows(inner, *given[1:], found_top, factor, strips, first, second)
    np.testing.assert_allclose(inner, by_slope, **tolerance)
    np.testing.assert_allclose(strips.sum(1), mixed, rtol=1e-4, atol=1e-5 * np.abs(given[4]).sum())
    np.testing.assert_allclose(first, 1 + (factor * given[1]) @ by_slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, 1 + factor @ by_logit, rtol=1e-4, atol=1e-5)


def test_tiny_arguments_keep_their_digits() -> None:
    """asinh(u) is u there: nothing may be lost beside 1, whatever the compiler reorders."""
    inner = np.logspace(-30, -4, 600).astype(np.float32)[None] * np.array([[1], [-1]], np.float32)
    zeros, ones = np.zeros(600, np.float32), np.ones(600, np.float32)
    top, first, second = np.zeros(2, np.float32), *np.zeros((2, 600), np.float32)
    # of one row, what is added for the scale is exp(logit) x logit
    given = (inner[:1].copy(), zeros[:1], zeros, ones, ones, top[:1], ones[:1], np.empty((1, 3), np.float32))
    softmax.weigh_rows(*given, first, second)
    expected = np.arcsinh(inner[0].astype(np.float64))
    np.testing.assert_allclose(second, expected * np.exp(np.minimum(expected, 0)), rtol=2e-4)
    np.testing.assert_allclose(second[:400], expected[:400], rtol=4e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_product_is_not_swallowed(bad: float) -> None:
    given = operands(2, 300, 1.0)
    given[0][1, 290] = bad
    top, total = np.empty((2, 2), np.float32)
    softmax.linked_total_rows(given[0].copy(), *given[1:4], top, total)
    assert list(np.isfinite(total)) == [True, False]
    first, second = np.zeros((2, 300), np.float32)
    ones = np.ones(2, np.float32)
    softmax.weigh_rows(*given, 5 * ones, ones, np.empty((2, 2), np.float32), first, second)
    assert list(np.flatnonzero(~np.isfinite(first))) == [290]
    assert list(np.flatnonzero(~np.isfinite(second))) == [290]


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
def test_the_loss_equals_its_twin_and_float64(
    size: float, offset: bool, padding: int | None, tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    return ItemStream(states, targets, weight, offset, curvature, part, 0, None, (True,) * 4)


def test_where_the_kernels_do_not_fit_the_twins_serve() -> None:
    assert stream().fused
    assert not stream(size=60.0).compiled  # exponents are taken out
    assert not stream(dtype=torch.float64).compiled
    assert stream(geometry="euclidean").compiled
    assert not stream(geometry="euclidean").fused
