"""The kernels of exact cross-entropy and their building blocks against float64."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from recbole_hyper.kernels.floats import exp, largest, log1p_nonnegative
from recbole_hyper.kernels.softmax import softmax_rows, total_rows

Floats = npt.NDArray[np.float32]


@njit
def each_exp(x: Floats) -> Floats:
    return np.array([exp(v) for v in x])


@njit
def each_log1p(x: Floats) -> Floats:
    return np.array([log1p_nonnegative(v) for v in x])


def test_exp_is_close_to_float64() -> None:
    x = np.concatenate([np.linspace(-86.9, 88, 20001), np.logspace(-30, 1.9, 2001), -np.logspace(-30, 1.9, 2001)])
    x = x.astype(np.float32)
    np.testing.assert_allclose(each_exp(x), np.exp(x.astype(np.float64)), rtol=3e-7)
    assert each_exp(np.zeros(1, np.float32))[0] == 1
    assert 0 <= each_exp(np.array([-1e30], np.float32))[0] < 1e-37
    assert np.isnan(each_exp(np.array([np.nan], np.float32))[0])


def test_log1p_is_close_to_float64() -> None:
    y = np.concatenate([np.logspace(-38, 37, 20001), np.linspace(0, 3, 20001)]).astype(np.float32)
    np.testing.assert_allclose(each_log1p(y), np.log1p(y.astype(np.float64)), rtol=3e-7)
    assert np.isnan(each_log1p(np.array([np.nan], np.float32))[0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=70))
def test_largest(values: list[float]) -> None:
    row = np.array(values, dtype=np.float32)
    assert largest(row) == row.max()


def test_largest_shows_a_nan() -> None:
    assert np.isnan(largest(np.array([1, np.nan, np.inf], np.float32)))


@pytest.mark.parametrize("size", [(3, 5), (7, 1000), (1, 1)])
def test_softmax_of_a_tile(size: tuple[int, int]) -> None:
    generator = np.random.default_rng(1)
    logits = (10 * generator.standard_normal(size)).astype(np.float32)
    exact = logits.astype(np.float64)
    top, total, alone = np.empty((3, size[0]), np.float32)
    total_rows(logits.copy(), top, alone)
    np.testing.assert_array_equal(top, exact.max(1).astype(np.float32))
    softmax_rows(logits, top, total)
    expected = np.exp(exact - exact.max(1, keepdims=True))
    # the difference to the largest logit is rounded, which counts for what is far below it
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    np.testing.assert_array_equal(top, exact.max(1).astype(np.float32))
    np.testing.assert_allclose([total, alone], [expected.sum(1)] * 2, rtol=2e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_logit_is_not_swallowed(bad: float) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[1, 17] = bad
    top, total = np.empty((2, 2), np.float32)
    softmax_rows(logits, top, total)
    assert np.isfinite(total[0])
    assert not np.isfinite(total[1])
    logits = np.zeros((2, 40), np.float32)
    logits[1, 17] = bad
    total_rows(logits, top, total)
    assert np.isfinite(total[0])
    assert not np.isfinite(total[1])
