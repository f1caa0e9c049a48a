"""The numba building blocks against float64, and what their thread count leaves behind."""

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

from recbole_hyper.kernels import moebius
from recbole_hyper.kernels.ranks import rank_rows, with_torch_threads

Floats = npt.NDArray[np.float32]


@njit
def each_exp(x: Floats) -> Floats:
    return np.array([moebius.exp(v) for v in x])


@njit
def each_log(x: Floats) -> Floats:
    return np.array([moebius.log(v) for v in x])


def test_exp_is_close_to_float64() -> None:
    x = np.concatenate([np.linspace(-86.9, 87.9, 20001), np.logspace(-30, 1.9, 2001)]).astype(np.float32)
    np.testing.assert_allclose(each_exp(x), np.exp(x.astype(np.float64)), rtol=3e-7)
    assert 0 <= each_exp(np.array([-1e30], np.float32))[0] < 1e-37


def test_log_is_close_to_float64() -> None:
    x = np.concatenate([np.logspace(-37, 37, 20001), np.linspace(0.1, 3, 20001)]).astype(np.float32)
    np.testing.assert_allclose(each_log(x), np.log(x.astype(np.float64)), rtol=3e-7, atol=2e-7)


def test_torch_keeps_its_threads() -> None:
    before = torch.get_num_threads()
    seen = []
    targets, offsets, hidden = np.ones(2, np.int64), np.zeros(3, np.int64), np.zeros(0, np.int64)
    try:
        torch.set_num_threads(1)
        with_torch_threads(lambda: seen.append(torch.get_num_threads()))()
        rank_rows(np.zeros((2, 4), np.float32), targets, offsets, hidden.astype(np.int32), hidden, 1)
        assert seen == [1]
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
