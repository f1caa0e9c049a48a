"""The optimizer and the scheduler of a run do what their keys say, step by step against the formula."""

from typing import Any

import pytest
import torch
from torch import nn

from recbole_hyper.settings import PLAIN_LEARNERS
from recbole_hyper.training.optim import FUSED, PLAIN, build_optimizer, build_scheduler
from recbole_hyper.training.settings import OptimizerSettings

KEYS: dict[str, Any] = {
    "learner": "adam",
    "learning_rate": 0.03,
    "weight_decay": 0.2,
    "curvature_learning_rate": None,
    "adam_betas": [0.7, 0.8],
    "lr_plateau": None,
    "valid_metric_bigger": True,
}


def stepped(learner: str, gradients: torch.Tensor) -> torch.Tensor:
    """Move one parameter (3,) from (1, -2, 3) under ``gradients`` (steps, 3)."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = build_optimizer(model, OptimizerSettings.of({**KEYS, "learner": learner}))
    for gradient in gradients:
        model.weight.grad = gradient.clone()
        optimizer.step()
    return model.weight.detach()


@pytest.mark.parametrize("learner", ["adam", "adamw", "sgd"])
def test_steps_are_the_formula(learner: str) -> None:
    gradients = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    x, first, second = torch.tensor([1.0, -2.0, 3.0]).double(), 0.0, 0.0
    for step, given in enumerate(gradients.double(), start=1):
        if learner == "adamw":
            x = x * (1 - 0.03 * 0.2)
        g = given if learner == "adamw" else given + 0.2 * x
        if learner == "sgd":
            x = x - 0.03 * g
            continue
        first, second = 0.7 * first + 0.3 * g, 0.8 * second + 0.2 * g**2
        x = x - 0.03 * (first / (1 - 0.7**step)) / ((second / (1 - 0.8**step)).sqrt() + 1e-8)
    torch.testing.assert_close(stepped(learner, gradients).double(), x, rtol=1e-5, atol=1e-6)


def test_every_learner_that_is_allowed_is_built() -> None:
    assert (*FUSED, *PLAIN) == PLAIN_LEARNERS


@pytest.mark.parametrize("bigger", [True, False])
def test_a_plateau_lowers_the_rate_once_patience_is_over(bigger: bool) -> None:
    keys = {**KEYS, "lr_plateau": {"factor": 0.25, "patience": 1}, "valid_metric_bigger": bigger}
    optimizer = build_optimizer(nn.Linear(2, 2), OptimizerSettings.of(keys))
    scheduler = build_scheduler(optimizer, OptimizerSettings.of(keys))
    assert scheduler is not None
    rates = []
    # better, equal, worse: the second validation in a row that is no better lowers the rate
    for score in (0.1, 0.2, 0.2, 0.15, 0.3):
        scheduler.step(score if bigger else -score)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.03, 0.03, 0.03, 0.0075, 0.0075])
    assert build_scheduler(optimizer, OptimizerSettings.of(KEYS)) is None


@pytest.mark.parametrize(("threshold", "rate"), [(0.0, 0.03), (1e-3, 0.015)])
def test_a_rise_below_the_threshold_of_a_plateau_does_not_count(threshold: float, rate: float) -> None:
    keys = {**KEYS, "lr_plateau": {"patience": 0, "threshold": threshold}, "valid_metric_bigger": True}
    optimizer = build_optimizer(nn.Linear(2, 2), OptimizerSettings.of(keys))
    scheduler = build_scheduler(optimizer, OptimizerSettings.of(keys))
    assert scheduler is not None
    for score in (0.2, 0.2001):
        scheduler.step(score)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)
