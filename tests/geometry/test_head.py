"""The output head with every registered geometry: ways to a logit, tied weights, offsets, a learned curvature."""

import copy
import math

import pytest
import torch
from torch import nn

from recbole_hyper import registry
from recbole_hyper.geometry import head as head_module
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.head import OutputHead
from tests.raising import refused


def head_of(geometry: Geometry, offset: bool, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> OutputHead:
    torch.manual_seed(0)
    weight = nn.Parameter(scale * torch.randn(9, 4, dtype=dtype))
    head = OutputHead(geometry, weight, offset=offset, theta=0.3)
    if head.offset is not None:
        nn.init.normal_(head.offset)
    return head


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_all_ways_to_a_logit_agree(geometry, offset, scale, monkeypatch) -> None:
    """All items, some items, own items, single pairs and the cached scorer, also where exponents are taken out."""
    head = head_of(geometry, offset, torch.float32)
    states = scale * torch.randn(6, 4)
    logits = head.logits(states)
    assert logits.shape == (6, 9)
    tolerance = {"rtol": 1e-5, "atol": 1e-4}
    items = torch.tensor([3, 3, 0, 8])
    torch.testing.assert_close(head.logits(states, items), logits[:, items], **tolerance)
    own = torch.randint(0, 9, (6, 5))
    for all_per_candidate in (0, 9):
        monkeypatch.setattr(head_module, "_ALL_PER_CANDIDATE", all_per_candidate)
        torch.testing.assert_close(head.pair_logits(states, own), logits.gather(1, own), **tolerance)
    frozen = head.frozen()
    torch.testing.assert_close(frozen.scores(states), logits.detach(), **tolerance)
    torch.testing.assert_close(frozen.scores(states, 2, 7), logits[:, 2:7].detach(), **tolerance)
    alone = torch.stack([head.logits(state[None])[0] for state in states])
    torch.testing.assert_close(alone, logits, **tolerance)


def test_scale_of_the_origin(geometry: Geometry) -> None:
    """A state or an item at the origin scores 0 against everything without offsets."""
    head = head_of(geometry, offset=False)
    assert head.logits(torch.zeros(2, 4, dtype=torch.float64)).abs().max() == 0
    with torch.no_grad():
        head.weight[3] = 0
    assert head.logits(torch.randn(2, 4, dtype=torch.float64))[:, 3].abs().max() == 0


def test_tied_weight_is_registered_once_and_stays_tied(geometry: Geometry) -> None:
    model = nn.Module()
    model.embedding = nn.Embedding(9, 4, padding_idx=0)
    model.head = OutputHead(geometry, model.embedding.weight, offset=True, theta=0.1)
    assert set(model.state_dict()) == {"embedding.weight", "head.offset"}
    double = copy.deepcopy(model).to(torch.float64)
    assert double.head.weight is double.embedding.weight
    assert double.head.weight is not model.embedding.weight
    double.head.logits(torch.randn(2, 4, dtype=torch.float64)).sum().backward()
    assert double.embedding.weight.grad is not None


def test_learned_curvature_gets_a_gradient() -> None:
    head = OutputHead(registry.resolve("geometry", "poincare")(), torch.randn(9, 4), theta=0.2, learn_curvature=True)
    assert head.theta.item() == pytest.approx(0.2)
    head.logits(torch.randn(2, 4)).sum().backward()
    assert head.log_curvature.grad.abs() > 0
    flat = OutputHead(registry.resolve("geometry", "euclidean")(), torch.randn(9, 4), learn_curvature=True)
    assert flat.log_curvature is None


def test_a_learned_curvature_ends_where_float32_loses_its_gradient() -> None:
    """Its gradient, against float64, is good at the floor; below it would be rounding, and no gradient is given."""
    poincare = registry.resolve("geometry", "poincare")()
    states, weight = torch.randn(64, 16), torch.randn(50, 16)

    def gradient(curvature: float, dtype: torch.dtype) -> float:
        head = OutputHead(poincare, weight.to(dtype), theta=1.0, learn_curvature=True)
        head.to(dtype)
        with torch.no_grad():
            head.log_curvature.fill_(math.log(curvature))
        head.logits(states.to(dtype)).square().mean().backward()
        return float(head.log_curvature.grad)

    assert gradient(2e-6, torch.float32) == pytest.approx(gradient(2e-6, torch.float64), rel=0.1)
    assert gradient(1e-8, torch.float32) == 0
    head = OutputHead(poincare, weight, theta=1e-6, learn_curvature=True)
    with torch.no_grad():
        head.log_curvature -= 5
    assert head.theta_value == pytest.approx(1e-6)
    with refused(ValueError, "curvature=1e-07", "curvature_init)", "1e-06"):
        OutputHead(poincare, weight, theta=1e-7, learn_curvature=True)
    assert OutputHead(poincare, weight, theta=1e-7).theta_value == pytest.approx(1e-7)


def test_scores_carry_no_gradient(geometry: Geometry) -> None:
    head = head_of(geometry, offset=True)
    states = torch.randn(2, 4, dtype=torch.float64)
    scores = head.frozen().scores(states)
    assert not scores.requires_grad
    torch.testing.assert_close(scores, head.logits(states).detach())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": torch.zeros(3)}, "weight must have shape"),
        ({"offset": torch.zeros(4)}, "offset must have shape"),
        ({"theta": 0.0}, "above 0"),
        ({"theta": float("nan")}, "above 0"),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    options = {"weight": torch.zeros(3, 2), **arguments}
    with pytest.raises(ValueError, match=message):
        OutputHead(registry.resolve("geometry", "poincare")(), options.pop("weight"), **options)


def test_offsets_start_where_they_are_told(geometry: Geometry) -> None:
    weight = nn.Parameter(torch.randn(9, 4))
    head = OutputHead(geometry, weight, offset=True, offset_init=-1.5, theta=0.3)
    assert head.offset is not None
    assert head.offset.tolist() == [-1.5] * 9
    with refused(ValueError, "offset_init=-1", "offset=True"):
        OutputHead(geometry, weight, offset_init=-1.5)
    with refused(ValueError, "offset_init"):
        OutputHead(geometry, weight, offset=True, offset_init=float("nan"))
