"""The fused kernels of asinh and softmax against float64."""

import numpy as np
import numpy.typing as npt
import pytest

from recbole_hyper.kernels.asinh_softmax import STRIP, softmax_rows, total_rows, weigh_rows

Floats = npt.NDArray[np.float32]


def tile(height: int, width: int, size: float) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return inner, column, extra, scale, mixing; some entries are 0, all arguments of asinh are about ``size``."""
    generator = np.random.default_rng(height * width)
    inner = (size * generator.standard_normal((height, width))).astype(np.float32)
    inner[:, ::7] = 0
    column, extra = generator.standard_normal(height), size * generator.standard_normal(width)
    extra[::14] = 0
    scale, mixing = generator.random(width) + 0.1, generator.standard_normal(width)
    return inner, *(values.astype(np.float32) for values in (column, extra, scale, mixing))  # type: ignore[return-value]


def exact(inner: Floats, column: Floats, extra: Floats, scale: Floats) -> tuple[npt.NDArray[np.float64], ...]:
    """Return logits and slopes in float64."""
    u = inner.astype(np.float64) + np.outer(column.astype(np.float64), extra)
    return scale * np.arcsinh(u), 1 / np.sqrt(1 + u**2)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("shape", [(1, 1), (5, 70), (3, 2 * STRIP + 9)])
def test_rows_against_float64(shape: tuple[int, int], size: float) -> None:
    inner, column, extra, scale, mixing = tile(*shape, size)
    logits, slopes = exact(inner, column, extra, scale)
    expected = np.exp(logits - logits.max(1, keepdims=True))
    height, width = shape
    top, total = np.empty((2, height), np.float32)
    total_rows(inner.copy(), column, extra, scale, top, total)
    np.testing.assert_allclose(top, logits.max(1), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(total, expected.sum(1), rtol=1e-5)

    linked, slope, mixed = inner.copy(), np.empty_like(inner), np.empty(height, np.float32)
    softmax_rows(linked, slope, column, extra, scale, mixing, top, total, mixed)
    close = {"rtol": 3e-5, "atol": 3e-6 * np.abs(expected * logits).max()}
    np.testing.assert_allclose(linked, expected * logits, **close)
    np.testing.assert_allclose(slope, expected * slopes, rtol=3e-5, atol=1e-6 * slopes.max())
    np.testing.assert_allclose(total, expected.sum(1), rtol=1e-5)
    near = {"rtol": 1e-4, "atol": 1e-5 * np.abs(expected * slopes).sum()}
    np.testing.assert_allclose(mixed, (expected * slopes) @ mixing.astype(np.float64), **near)

    weights, factor = inner.copy(), np.linspace(0.5, 2, height).astype(np.float32)
    parts = np.empty((height, -(-width // STRIP)), np.float32)
    d_extra, d_scale = np.ones((2, width), np.float32)  # what is there already stays
    weigh_rows(weights, column, extra, scale, mixing, top, factor, parts, d_extra, d_scale)
    np.testing.assert_allclose(weights, expected * slopes, rtol=3e-5, atol=1e-6 * slopes.max())
    np.testing.assert_allclose(parts.sum(1), (expected * slopes) @ mixing.astype(np.float64), **near)
    np.testing.assert_allclose(d_extra, 1 + (factor * column).astype(np.float64) @ (expected * slopes), **near)
    wanted = 1 + factor.astype(np.float64) @ (expected * logits)
    np.testing.assert_allclose(d_scale, wanted, rtol=1e-4, atol=1e-5 * np.abs(expected * logits).sum())


def test_a_nan_stays_visible() -> None:
    inner, column, extra, scale, mixing = tile(2, 40, 1.0)
    inner[1, 3] = np.nan
    top, total, mixed = np.empty((3, 2), np.float32)
    softmax_rows(inner, np.empty_like(inner), column, extra, scale, mixing, top, total, mixed)
    assert np.isfinite(total[0])
    assert np.isnan(total[1])
    assert np.isnan(mixed[1])
