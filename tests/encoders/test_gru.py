"""The recurrent models, GRU4RecCE and HGRU4Rec: they learn a planted walk and run with a learned curvature."""

import copy
import math
from pathlib import Path

import pytest
import torch

from recbole_hyper.config import Config
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.training.optim import build_optimizer
from recbole_hyper.training.settings import OptimizerSettings
from tests.conftest import SMALL


def made(random_data: Path, **keys: object) -> tuple[Config, torch.nn.Module]:
    given = {**SMALL, "data_path": str(random_data), "curvature": "learn", "curvature_init": 0.25, **keys}
    config = Config("HGRU4Rec", "random", config_dict=given)
    return config, config.model_class(config, SequenceDataset(config))


def test_encoder_and_head_learn_one_curvature(random_data: Path) -> None:
    config, model = made(random_data, weight_decay=0.1, curvature_learning_rate=0.07)
    names = [name for name, p in model.named_parameters() if p.requires_grad and p.dim() == 0]
    assert names == ["head.log_curvature"]
    assert float(model.encoder.gru.curvature) == pytest.approx(0.25)
    items, lengths = torch.randint(1, 50, (4, 6)), torch.full((4,), 6)
    model.eval()
    alone = model(items, lengths)
    (gradient,) = torch.autograd.grad(alone.square().sum(), model.head.log_curvature)
    assert gradient.abs() > 0
    with torch.no_grad():
        model.head.log_curvature.add_(1.0)
    assert float(model.encoder.gru.curvature) == float(model.head.theta) == pytest.approx(0.25 * math.e)
    assert float(model.encoder.gru.bias_l0.manifold.c) == pytest.approx(0.25 * math.e)
    assert not torch.equal(model(items, lengths), alone)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.head.log_curvature.zero_()
    assert float(twin.encoder.gru.curvature) == 1.0
    assert float(model.encoder.gru.curvature) == pytest.approx(0.25 * math.e)
    for learner in ("adam", "riemannian_adam"):
        config["learner"] = learner
        group = build_optimizer(model, OptimizerSettings.of(config)).param_groups[-1]
        assert group["params"] == [model.head.log_curvature]
        assert (group["lr"], group["weight_decay"]) == (0.07, 0.0)


def test_an_encoder_with_a_flat_head_learns_its_own_curvature(random_data: Path) -> None:
    config, model = made(random_data, geometry="euclidean", weight_decay=0.1, curvature_learning_rate=0.07)
    group = build_optimizer(model, OptimizerSettings.of(config)).param_groups[-1]
    assert group["params"] == [model.encoder.gru.ball.isp_c]
    assert (group["lr"], group["weight_decay"]) == (0.07, 0.0)


@pytest.mark.parametrize("learner", ["adam", "riemannian_adam"])
def test_a_step_moves_the_one_curvature(learner: str, random_data: Path) -> None:
    config, model = made(random_data, learner=learner)
    optimizer = build_optimizer(model, OptimizerSettings.of(config))
    items, lengths = torch.randint(1, 50, (4, 6)), torch.full((4,), 6)
    model(items, lengths).square().sum().backward()
    optimizer.step()
    assert float(model.encoder.gru.curvature) == float(model.head.theta) != pytest.approx(0.25, rel=1e-5)
    assert float(model.encoder.gru.bias_l0.detach().norm(dim=-1).max()) < float(model.head.theta) ** -0.5
