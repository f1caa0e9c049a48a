"""The kernels of exact cross-entropy against float64."""

import numpy as np
import numpy.typing as npt
import pytest

from recbole_hyper.kernels import softmax
from recbole_hyper.kernels.softmax import softmax_rows

Floats = npt.NDArray[np.float32]


@pytest.mark.parametrize("size", [(3, 5), (7, 1000), (1, 1)])
def test_softmax_of_a_tile(size: tuple[int, int]) -> None:
    generator = np.random.default_rng(1)
    logits = (10 * generator.standard_normal(size)).astype(np.float32)
    exact = logits.astype(np.float64)
    top, total = np.empty((2, size[0]), np.float32)
    softmax_rows(logits, top, total)
    expected = np.exp(exact - exact.max(1, keepdims=True))
    # the difference to the largest logit is rounded, which counts for what is far below it
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    np.testing.assert_array_equal(top, exact.max(1).astype(np.float32))
    np.testing.assert_allclose(total, expected.sum(1), rtol=2e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_logit_is_not_swallowed(bad: float) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[1, 17] = bad
    top, total = np.empty((2, 2), np.float32)
    softmax_rows(logits, top, total)
    assert np.isfinite(total[0])
    assert not np.isfinite(total[1])


def test_no_share_is_a_subnormal_number() -> None:
    """Products with them are slow: logits that are far apart would take many times as long."""
    logits = np.linspace(-300, 0, 3000, dtype=np.float32)[None]
    inner, line, ones = 1e3 * logits, logits[0] * 0, np.ones(3000, np.float32)
    top, total = np.empty((2, 1), np.float32)
    softmax_rows(logits, top, total)
    softmax.weigh_rows(inner, line[:1], line, 10 * ones, line, top, total, np.empty((1, 12), np.float32), line, line)
    for found in (logits, inner):
        assert not ((found != 0) & (np.abs(found) < np.finfo(np.float32).tiny)).any()
        assert (found > 0).any()
        assert (found == 0).any()


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
