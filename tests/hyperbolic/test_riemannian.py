"""Riemannian optimizers: groups, a Karcher mean, resume in place, points off the manifold."""

import geoopt
import pytest
import torch
from torch import nn

from recbole_hyper.encoders.moebius_gru import MoebiusGRU
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball
from recbole_hyper.hyperbolic.riemannian import (
    manifold_parameters,
    restore_training_state,
    riemannian_optimizer,
    training_state,
)
from tests.hyperbolic.test_math import points, square_distance
from tests.raising import refused


class Point(nn.Module):
    """One trained point of the ball."""

    def __init__(self, curvature: float) -> None:
        super().__init__()
        self.ball = poincare_ball(curvature)
        self.point = ball_parameter(torch.zeros(4, dtype=torch.float64), self.ball)


@pytest.mark.parametrize(("learner", "rate", "decay"), [("riemannian_adam", 0.05, 0.98), ("riemannian_sgd", 0.1, 1.0)])
@pytest.mark.parametrize("curvature", [0.5, 1.0])
def test_karcher_mean(learner: str, rate: float, decay: float, curvature: float) -> None:
    data = points(0.9, curvature, 0, torch.float64)
    # at the Karcher mean the tangent vectors to all points cancel: fixed-point iteration, independent of the optimizer
    ball = geoopt.PoincareBall(c=torch.tensor(curvature, dtype=torch.float64))
    mean = torch.zeros(1, 4, dtype=torch.float64)
    for _ in range(200):
        mean = ball.expmap(mean, ball.logmap(mean.expand_as(data), data).mean(0, keepdim=True) / 2)
    assert float(ball.logmap(mean.expand_as(data), data).mean(0).norm()) < 1e-12
    model = Point(curvature)
    optimizer = riemannian_optimizer(model, learner=learner, learning_rate=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    for _ in range(600 if learner == "riemannian_adam" else 300):
        optimizer.zero_grad()
        square_distance(model.point.as_subclass(torch.Tensor).expand_as(data), data, curvature).mean().backward()
        optimizer.step()
        schedule.step()
    assert float(ball.dist(model.point.detach().as_subclass(torch.Tensor), mean[0])) < 1e-5


def gru_step(model: MoebiusGRU, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    (model(torch.randn(4, 8, 3, generator=generator))[0] - 0.2).square().sum().backward()
    optimizer.step()


def test_groups_have_their_own_rates_and_decay() -> None:
    model = MoebiusGRU(3, 4, num_layers=2)
    optimizer = riemannian_optimizer(model, learning_rate=0.1, manifold_learning_rate=0.02, weight_decay=0.3)
    flat, curved = optimizer.param_groups
    assert (flat["lr"], flat["weight_decay"], len(flat["params"])) == (0.1, 0.3, 4)
    assert (curved["lr"], curved["weight_decay"], len(curved["params"])) == (0.02, 0.0, 2)
    assert all(isinstance(p, geoopt.ManifoldParameter) for p in curved["params"])
    assert flat["stabilize"] == curved["stabilize"] == 10


@pytest.mark.parametrize("learner", ["riemannian_adam", "riemannian_sgd"])
def test_resume_gives_the_same_weights(learner: str, tmp_path) -> None:
    def fresh() -> tuple[MoebiusGRU, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = MoebiusGRU(3, 4)
        return model, riemannian_optimizer(
            model, learner=learner, learning_rate=0.01, momentum=0.0 if learner == "riemannian_adam" else 0.9
        )

    whole, optimizer = fresh()
    for step in range(15):
        gru_step(whole, optimizer, step)
        if step == 7:
            torch.save(training_state(whole, optimizer), tmp_path / "state.pt")
    resumed, optimizer = fresh()
    bias = resumed.bias_l0
    restore_training_state(resumed, optimizer, torch.load(tmp_path / "state.pt", weights_only=True))
    assert resumed.bias_l0 is bias  # the optimizer holds this very object
    assert set(manifold_parameters(resumed)) == {"bias_l0"}
    for step in range(8, 15):
        gru_step(resumed, optimizer, step)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("bad", [3.0, float("nan")])
def test_points_off_the_manifold_are_refused(bad: float) -> None:
    model = MoebiusGRU(3, 4)
    optimizer = riemannian_optimizer(model)
    state = training_state(model, optimizer)
    before = model.weight_hh_l0.detach().clone()
    state["model"]["bias_l0"][0, 0] = bad
    state["model"]["weight_hh_l0"].zero_()
    with refused(ValueError, "'bias_l0'"):
        restore_training_state(model, optimizer, state)
    assert torch.equal(model.weight_hh_l0, before)


def test_large_steps_leave_points_inside() -> None:
    torch.manual_seed(0)
    model = MoebiusGRU(3, 4)
    optimizer = riemannian_optimizer(model, learning_rate=10.0, stabilize=1)
    for step in range(20):
        gru_step(model, optimizer, step)
        assert float(model.bias_l0.detach().norm(dim=-1).max()) < 1
        assert torch.isfinite(model.weight_hh_l0).all()


def test_faults_are_named() -> None:
    model = MoebiusGRU(3, 4)
    with refused(ValueError, "riemannian_adam", "riemannian_sgd"):
        riemannian_optimizer(model, learner="adam")
    with refused(ValueError, "manifold_learning_rate=-1"):
        riemannian_optimizer(model, manifold_learning_rate=-1)
    with refused(ValueError, "stabilize=0"):
        riemannian_optimizer(model, stabilize=0)
    with refused(ValueError, "no trainable parameter"):
        riemannian_optimizer(nn.Identity())


def test_a_learned_curvature_has_its_own_rate_and_no_decay() -> None:
    model = MoebiusGRU(3, 4, curvature="learn")
    optimizer = riemannian_optimizer(model, learning_rate=0.1, curvature_learning_rate=0.003, weight_decay=0.3)
    curvature = optimizer.param_groups[2]
    assert curvature["params"] == [model.ball.isp_c]
    assert (curvature["lr"], curvature["weight_decay"]) == (0.003, 0.0)
    before = model.curvature.item()
    gru_step(model, optimizer, 0)
    assert 0 < abs(model.ball.isp_c.item() - poincare_ball(before).isp_c.item()) <= 0.0031
    with refused(ValueError, "curvature_learning_rate=0"):
        riemannian_optimizer(model, curvature_learning_rate=0.0)
