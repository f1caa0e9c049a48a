"""The link of the Poincare head, against many digits and gradcheck."""

import math

import mpmath
import pytest
import torch

from recbole_hyper.geometry import poincare

pytestmark = pytest.mark.usefixtures("kernels")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_asinh(dtype: torch.dtype) -> None:
    limit = poincare.EXPONENT_LIMIT[dtype]
    u = torch.cat([sign * torch.logspace(-30, limit / math.log(10), 500, dtype=dtype) for sign in (1, -1)])
    u = torch.cat([u, torch.zeros(1, dtype=dtype)])
    exact = [float(mpmath.asinh(mpmath.mpf(float(v)))) for v in u]
    expected = torch.tensor(exact, dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(poincare.asinh(u).double(), expected, rtol=4 * eps, atol=0)
    value, slope = u.clone(), torch.empty_like(u)
    poincare.asinh_(value, slope, torch.empty_like(u))
    torch.testing.assert_close(slope.double(), (1 + u.double() ** 2).rsqrt(), rtol=4 * eps, atol=0)


def test_asinh_gradients() -> None:
    u = torch.tensor([-20.0, -0.3, 0.0, 1e-9, 2.0, 300.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(poincare.asinh, u)
    assert torch.autograd.gradgradcheck(poincare.asinh, u)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_asinh(dtype: torch.dtype) -> None:
    v = torch.cat([sign * torch.logspace(-20, 5, 60, dtype=dtype) for sign in (1, -1)])
    for size in (0.0, 1.0, 40.0, 300.0):
        found = poincare.scaled_asinh(v, torch.full_like(v, size))
        exact = [float(mpmath.asinh(mpmath.mpf(float(value)) * mpmath.exp(size))) for value in v]
        # beyond the dtype's range, values below the cut of the exponent lose their digits
        inside = v.abs() > 1e-10 if size > 30 else v.abs() > 0
        expected = torch.tensor(exact, dtype=torch.float64)
        torch.testing.assert_close(found.double()[inside], expected[inside], rtol=8 * torch.finfo(dtype).eps, atol=0)
