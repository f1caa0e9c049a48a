"""What every geometry owes: one suite over all registered ones, so that a new file is tested at once."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from recbole_hyper import registry
from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry import head as head_module
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare

NAMES = registry.names("geometry")


def test_known_geometries() -> None:
    assert {"cosine", "euclidean", "poincare"} <= set(NAMES)


@pytest.fixture(params=[*NAMES, "warm dot product"])
def geometry(request: pytest.FixtureRequest) -> Geometry:
    return Euclidean(temperature=0.5) if request.param not in NAMES else registry.resolve("geometry", request.param)()


def test_the_flat_limit_of_the_ball_is_a_dot_product_over_a_quarter() -> None:
    states, weight = torch.randn(6, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    flat = Poincare().logits(states, weight, None, curvature=1e-9)
    torch.testing.assert_close(Euclidean(temperature=0.25).logits(states, weight, None), flat, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_temperature_reaches_loss_and_gradients(dtype: torch.dtype) -> None:
    states = torch.randn(6, 4, dtype=dtype, requires_grad=True)
    weight, targets = torch.randn(9, 4, dtype=dtype, requires_grad=True), torch.arange(6)
    found = cross_entropy(states, targets, weight, geometry=Euclidean(temperature=0.25))
    expected = torch.nn.functional.cross_entropy(4 * states @ weight.t(), targets)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, (states, weight)), torch.autograd.grad(expected, (states, weight))
    )


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan")])
def test_a_temperature_out_of_range_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature=.* above 0"):
        Euclidean(temperature=temperature)


def head_of(geometry: Geometry, offset: bool, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> OutputHead:
    torch.manual_seed(0)
    weight = nn.Parameter(scale * torch.randn(9, 4, dtype=dtype))
    head = OutputHead(geometry, weight, offset=offset, curvature=0.3)
    if head.offset is not None:
        nn.init.normal_(head.offset)
    return head


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_all_ways_to_a_logit_agree(
    geometry: Geometry, offset: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("offset", [True, False])
def test_link_in_place_equals_link_and_its_derivative(geometry: Geometry, offset: bool) -> None:
    inner = torch.linspace(-5, 5, 41, dtype=torch.float64)
    exponent = torch.linspace(0, 30, 41, dtype=torch.float64) if geometry.curved else None
    for given in {None: [None], True: [None, exponent]}[True if exponent is not None else None]:
        leaf = inner.clone().requires_grad_()
        linked = geometry.link(leaf, given)
        (derivative,) = torch.autograd.grad(linked.sum(), leaf)
        value, slope = inner.clone(), torch.empty_like(inner)
        geometry.link_(value, slope, torch.empty_like(inner), given)
        torch.testing.assert_close(value, linked.detach())
        torch.testing.assert_close(slope, derivative)
        # odd and increasing, which the searches and the ranking of one item over states rely on
        torch.testing.assert_close(geometry.link(-inner, given), -linked.detach())
    assert (geometry.link(inner).diff() > 0).all()


def test_gradients(geometry: Geometry) -> None:
    states = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, w, o: geometry.logits(s, w, o, curvature=0.4), (states, weight, offset))


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
    model.head = OutputHead(geometry, model.embedding.weight, offset=True, curvature=0.1)
    assert set(model.state_dict()) == {"embedding.weight", "head.offset"}
    double = copy.deepcopy(model).to(torch.float64)
    assert double.head.weight is double.embedding.weight
    assert double.head.weight is not model.embedding.weight
    double.head.logits(torch.randn(2, 4, dtype=torch.float64)).sum().backward()
    assert double.embedding.weight.grad is not None


def test_learned_curvature_gets_a_gradient() -> None:
    head = OutputHead(
        registry.resolve("geometry", "poincare")(), torch.randn(9, 4), curvature=0.2, learn_curvature=True
    )
    assert head.curvature.item() == pytest.approx(0.2)
    head.logits(torch.randn(2, 4)).sum().backward()
    assert head.log_curvature.grad.abs() > 0
    flat = OutputHead(registry.resolve("geometry", "euclidean")(), torch.randn(9, 4), learn_curvature=True)
    assert flat.log_curvature is None


def test_a_learned_curvature_ends_where_float32_loses_its_gradient() -> None:
    """Its gradient, against float64, is good at the floor; below it would be rounding, and no gradient is given."""
    poincare = registry.resolve("geometry", "poincare")()
    states, weight = torch.randn(64, 16), torch.randn(50, 16)

    def gradient(curvature: float, dtype: torch.dtype) -> float:
        head = OutputHead(poincare, weight.to(dtype), curvature=1.0, learn_curvature=True)
        head.to(dtype)
        with torch.no_grad():
            head.log_curvature.fill_(math.log(curvature))
        head.logits(states.to(dtype)).square().mean().backward()
        return float(head.log_curvature.grad)

    assert gradient(2e-6, torch.float32) == pytest.approx(gradient(2e-6, torch.float64), rel=0.1)
    assert gradient(1e-8, torch.float32) == 0
    head = OutputHead(poincare, weight, curvature=1e-6, learn_curvature=True)
    with torch.no_grad():
        head.log_curvature -= 5
    assert head.curvature_value == pytest.approx(1e-6)
    with pytest.raises(ValueError, match=r"curvature=1e-07 \(key curvature_init\): 1e-06 is the least to learn from"):
        OutputHead(poincare, weight, curvature=1e-7, learn_curvature=True)
    assert OutputHead(poincare, weight, curvature=1e-7).curvature_value == pytest.approx(1e-7)


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
        ({"curvature": 0.0}, "above 0"),
        ({"curvature": float("nan")}, "above 0"),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    options = {"weight": torch.zeros(3, 2), **arguments}
    with pytest.raises(ValueError, match=message):
        OutputHead(registry.resolve("geometry", "poincare")(), options.pop("weight"), **options)


def test_offsets_start_where_they_are_told(geometry: Geometry) -> None:
    weight = nn.Parameter(torch.randn(9, 4))
    head = OutputHead(geometry, weight, offset=True, offset_init=-1.5, curvature=0.3)
    assert head.offset is not None
    assert head.offset.tolist() == [-1.5] * 9
    with pytest.raises(ValueError, match=r"offset_init=-1.5 .*no effect without offset=True"):
        OutputHead(geometry, weight, offset_init=-1.5)
    with pytest.raises(ValueError, match=r"offset_init .*must be a finite number, got nan"):
        OutputHead(geometry, weight, offset=True, offset_init=float("nan"))
