"""Moebius operations: identities in float32 by property, formulas against geoopt in float64."""

import geoopt
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from examples.noisy_prefix.layers import lifted_square_distance, project
from recbole_hyper.hyperbolic import _math as hyp
from tests.raising import refused

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


def points(radius: float, curvature: float, seed: int, dtype: torch.dtype = torch.float32, width: int = 4) -> Tensor:
    """Return 16 points whose norms run up to ``radius`` (as a share of the ball's), the last at that radius."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.nn.functional.normalize(torch.randn(16, width, generator=generator, dtype=torch.float64), dim=-1)
    share = torch.rand(16, 1, generator=generator, dtype=torch.float64)
    share[-1] = 1
    return (direction * share * radius / curvature**0.5).to(dtype)


def moebius_add(x: Tensor, y: Tensor, curvature: float = 1.0) -> Tensor:
    total = hyp.lifted_sum(hyp.lift_point(x, curvature), hyp.lift_point(y, curvature))
    return project(hyp.point_of_lifted(total, curvature), curvature)


def square_distance(x: Tensor, y: Tensor, curvature: float = 1.0) -> Tensor:
    return lifted_square_distance(hyp.lift_point(x, curvature), hyp.lift_point(y, curvature), curvature)


# radius, allowed error as a share of the ball's radius: rounding 6e-8 times 1 / (1 - radius), with room for the chain
LADDER = [(0.5, 2e-6), (0.9, 1e-5), (0.99, 1e-4), (0.999, 1e-3)]
curvatures = st.sampled_from([0.01, 0.3, 1.0, 4.0])
seeds = st.integers(0, 10_000)


@pytest.mark.parametrize(("radius", "tolerance"), LADDER)
@SETTINGS
@given(curvature=curvatures, seed=seeds)
def test_left_cancellation(radius: float, tolerance: float, curvature: float, seed: int) -> None:
    x, y = points(radius, curvature, seed), points(radius, curvature, seed + 1)
    back = moebius_add(-x, moebius_add(x, y, curvature), curvature)
    # x (+) y may lie much nearer to the boundary than both, so the error is measured as a distance in the ball's units
    assert float((back - y).norm(dim=-1).max()) * curvature**0.5 < 30 * tolerance / (1 - radius) ** 0.5


@pytest.mark.parametrize(("radius", "tolerance"), LADDER)
@SETTINGS
@given(curvature=curvatures, seed=seeds)
def test_exp_and_log_are_inverse(radius: float, tolerance: float, curvature: float, seed: int) -> None:
    x = points(radius, curvature, seed)
    assert float((hyp.exp0(hyp.log0(x, curvature), curvature) - x).norm(dim=-1).max()) * curvature**0.5 < tolerance


@SETTINGS
@given(curvature=curvatures, seed=seeds)
def test_log_of_exp_keeps_small_vectors(curvature: float, seed: int) -> None:
    v = points(1.0, 1.0, seed) * 1e-12
    torch.testing.assert_close(hyp.log0(hyp.exp0(v, curvature), curvature), v, rtol=1e-5, atol=0)


@pytest.mark.parametrize("curvature", [0.05, 1.0, 3.0])
def test_formulas_are_those_of_geoopt(curvature: float) -> None:
    ball = geoopt.PoincareBall(c=torch.tensor(curvature, dtype=torch.float64))
    x, y = points(0.99, curvature, 0, torch.float64), points(0.99, curvature, 1, torch.float64)
    v = torch.randn(16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = {
        "add": (moebius_add(x, y, curvature), ball.mobius_add(x, y)),
        "exp0": (hyp.exp0(v, curvature), ball.expmap0(v)),
        "log0": (hyp.log0(x, curvature), ball.logmap0(x)),
        "distance": (square_distance(x, y, curvature), ball.dist(x, y) ** 2),
    }
    for name, (ours, theirs) in expected.items():
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-15, 1e-4, 1.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_every_size(size: float, dtype: torch.dtype) -> None:
    v = (torch.tensor([[1.0, -2.0, 2.0]], dtype=dtype) / 3 * size).requires_grad_()
    result = hyp.log0(moebius_add(hyp.exp0(v), hyp.exp0(-v / 2)))
    (gradient,) = torch.autograd.grad(result.sum(), v)
    assert torch.isfinite(gradient).all()
    if size <= 1:  # the sum is exp0(v / 2)
        torch.testing.assert_close(gradient, torch.full_like(v, 0.5), rtol=1e-4, atol=1e-4)


def test_square_distance_has_gradient_zero_where_points_meet() -> None:
    x = points(0.9, 1.0, 0).requires_grad_()
    distance = square_distance(x, x.detach().clone())
    distance.sum().backward()
    assert x.grad is not None
    assert float(distance.detach().max()) == 0.0
    assert float(x.grad.abs().max()) == 0.0


def test_float32_sum_is_nearer_to_the_truth_than_the_usual_formula() -> None:
    x, y = points(0.9999, 1.0, 0, torch.float64), points(0.9999, 1.0, 1, torch.float64)
    x32, y32 = x.float(), y.float()
    truth = hyp.log0(geoopt.PoincareBall(c=torch.ones((), dtype=torch.float64)).mobius_add(-x32.double(), y32.double()))
    usual = geoopt.PoincareBall(c=1.0).mobius_add(-x32, y32)
    ours = hyp.log0(moebius_add(-x32, y32))
    error_usual = (hyp.log0(usual).double() - truth).norm(dim=-1).max()
    assert float((ours.double() - truth).norm(dim=-1).max()) < float(error_usual) / 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projection_keeps_points_inside(dtype: torch.dtype) -> None:
    far = torch.tensor([[3.0, 4.0], [1e3, 0.0], [0.1, 0.0]], dtype=dtype)
    inside = project(far, 2.0)
    assert float((2 * inside.square().sum(-1)).max()) < 1
    assert torch.equal(inside[2], far[2])
    limit = hyp.max_rapidity(dtype)
    assert torch.allclose(hyp.lift_point(far, 2.0)[:2].norm(dim=-1), torch.tensor(limit, dtype=dtype).sinh())


def test_points_outside_and_nan_are_named() -> None:
    with refused(ValueError, "outside", "radius"):
        hyp.check_points(torch.tensor([[2.0, 0.0]]), 1.0, "x")
    with refused(ValueError, "NaN"):
        hyp.check_points(torch.tensor([[float("nan"), 0.0]]), 1.0, "x")
