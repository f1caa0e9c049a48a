"""The compiled Moebius recurrence is the plain one, whose gradient is right."""

import pytest
import torch
from torch import Tensor

from recbole_hyper.hyperbolic.recurrence import plain_recurrence, recurrence

pytestmark = pytest.mark.usefixtures("kernels")

VARIANTS = [("identity", "before"), ("tanh", "before"), ("identity", "after"), ("tanh", "after")]


def relative_error(ours: Tensor, truth: Tensor) -> float:
    return float((ours.detach().double() - truth.detach()).norm() / truth.detach().norm())


@pytest.mark.parametrize(("nonlinearity", "reset"), VARIANTS)
@pytest.mark.parametrize(("hidden", "batch", "threads"), [(1, 1, 1), (5, 300, 2), (7, 33, 1), (40, 70, 2)])
def test_compiled_recurrence_is_the_plain_one(nonlinearity, reset, hidden, batch, threads) -> None:
    torch.manual_seed(0)
    inputs, bias = torch.randn(5, batch, 3 * hidden) / hidden**0.5, torch.randn(3, hidden) * 0.2 / hidden**0.5
    weight, start = torch.randn(3 * hidden, hidden) * 0.5 / hidden**0.5, torch.randn(batch, hidden) * 0.3
    upstream = torch.randn(5, batch, hidden)
    rho = torch.tensor(1.3)
    given, again, exact = (
        [value.clone().to(dtype).requires_grad_() for value in (inputs, bias, weight, start, rho)]
        for dtype in (torch.float32, torch.float32, torch.float64)
    )
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = recurrence(*given, nonlinearity, reset)
        (compiled * upstream).sum().backward()
    finally:
        torch.set_num_threads(previous)
    # in float32 the loop is what runs on devices other than the CPU
    plain, truth = (plain_recurrence(*values, nonlinearity, reset) for values in (again, exact))
    for found in (plain, truth):
        (found * upstream).sum().backward()
    assert relative_error(compiled, truth) < 3e-6
    assert relative_error(plain, truth) < 3e-6
    for values, tolerance in ((given, 1e-5), (again, 2e-5)):
        for name, value, exactly in zip(("x", "b", "W", "h0", "rho"), values, exact, strict=True):
            assert relative_error(value.grad, exactly.grad) < tolerance, name


@pytest.mark.parametrize(("nonlinearity", "reset"), VARIANTS)
def test_gradcheck_of_the_plain_recurrence(nonlinearity: str, reset: str) -> None:
    shapes = ((2, 2, 6), (3, 2), (6, 2), (2, 2))
    tensors = [torch.randn(shape, dtype=torch.float64) * 0.4 for shape in shapes]
    rho = torch.tensor(1.3, dtype=torch.float64)
    inputs = tuple(tensor.requires_grad_() for tensor in (*tensors, rho))
    assert torch.autograd.gradcheck(lambda *values: plain_recurrence(*values, nonlinearity, reset), inputs)
