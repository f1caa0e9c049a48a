"""The building blocks of the kernels against float64."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from recbole_hyper.kernels.floats import exp, largest, log1p_nonnegative

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
