"""The Poincare ball: its curvature, fixed, learned or shared."""

import math

import pytest
import torch
from torch import nn

from recbole_hyper.geometry.head import LEAST_LEARNED
from recbole_hyper.hyperbolic.manifold import SharedBall, poincare_ball
from tests.raising import refused


@pytest.mark.parametrize("curvature", [0.0, -1.0, float("nan"), float("inf")])
def test_curvature_out_of_range_is_refused(curvature: float) -> None:
    with refused(ValueError, "above 0"):
        poincare_ball(curvature)


@pytest.mark.parametrize("curvature", [1e-9, 0.0153, 1.0, 50.0, 1e4])
def test_a_ball_has_its_curvature(curvature: float) -> None:
    assert float(poincare_ball(curvature).c) == pytest.approx(curvature, rel=1e-5)
    if curvature >= LEAST_LEARNED:
        assert float(poincare_ball(curvature, learnable=True).c.detach()) == pytest.approx(curvature, rel=1e-5)


def test_a_learned_curvature_has_a_minimum() -> None:
    with refused(ValueError, "learned", "curvature"):
        poincare_ball(LEAST_LEARNED / 2, learnable=True)
    ball = poincare_ball(0.5, learnable=True)
    (gradient,) = torch.autograd.grad(ball.c, ball.isp_c)
    assert float(gradient) == pytest.approx(1 / (1 + math.exp(-float(ball.isp_c.detach()))))  # of softplus
    with torch.no_grad():
        ball.isp_c.fill_(-30.0)
    assert float(ball.c.detach()) == pytest.approx(LEAST_LEARNED)
    assert float(torch.autograd.grad(ball.c, ball.isp_c)[0]) == 0


class Source(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(0.3))


def test_a_shared_curvature_stays_with_its_source() -> None:
    source = Source()
    ball = SharedBall(source)
    assert list(ball.parameters()) == []
    assert float(ball.c.detach()) == pytest.approx(0.3)
    point = torch.tensor([0.2, 0.1])
    ball.dist0(point).backward()
    expected = source.theta.detach().clone().requires_grad_()
    (2 / expected.sqrt() * torch.atanh(expected.sqrt() * point.norm())).backward()
    torch.testing.assert_close(source.theta.grad, expected.grad)
