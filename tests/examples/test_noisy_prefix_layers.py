"""Pair layer and hyperbolic MLR against the printed formulas, with gradient checks and faults."""

from collections.abc import Callable

import geoopt
import pytest
import torch
from torch import Tensor, nn

from examples.noisy_prefix import layers as hyp
from recbole_hyper.hyperbolic._math import exp0
from tests.hyperbolic.test_math import points
from tests.reference import moebius as reference


def spread(module: nn.Module, curvature: float) -> nn.Module:
    """Move the module's points away from 0, so that no term of a formula vanishes."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.double().parameters():
            if isinstance(parameter, geoopt.ManifoldParameter) and isinstance(parameter.manifold, geoopt.PoincareBall):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(exp0(noise * 0.4 / curvature**0.5, curvature))
    return module


@pytest.mark.parametrize("curvature", [0.1, 1.0])
@pytest.mark.parametrize("use_distance", [True, False])
def test_pair_layer_is_the_formula(curvature: float, use_distance: bool) -> None:
    layer = spread(hyp.MoebiusPairLayer(4, 3, use_distance=use_distance, curvature=curvature), curvature)
    x, y = points(0.6, curvature, 0, torch.float64), points(0.6, curvature, 1, torch.float64)
    expected = reference.pair_layer(
        x,
        y,
        layer.first_weight,
        layer.second_weight,
        layer.distance_bias.as_subclass(Tensor) if use_distance else None,
        layer.bias.as_subclass(Tensor),
        curvature,
    )
    torch.testing.assert_close(layer(x, y), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("curvature", [0.1, 1.0])
@pytest.mark.parametrize(("dtype", "radius", "tolerance"), [(torch.float64, 0.999, 1e-9), (torch.float32, 0.99, 1e-3)])
def test_mlr_is_the_formula(curvature: float, dtype: torch.dtype, radius: float, tolerance: float) -> None:
    layer = spread(hyp.HyperbolicMLR(4, 5, curvature=curvature), curvature)
    x = points(radius, curvature, 0, torch.float64)
    expected = reference.mlr(x, layer.points.as_subclass(Tensor), layer.normals, curvature).detach()
    assert float(expected.abs().max()) > 1
    torch.testing.assert_close(layer.to(dtype)(x.to(dtype)).double().detach(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "build", [lambda: hyp.HyperbolicMLR(3, 2, curvature=0.7), lambda: hyp.MoebiusPairLayer(3, 2, curvature=0.7)]
)
def test_gradients(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    layer = spread(build(), 0.7)
    names = [name for name, p in layer.named_parameters() if p.requires_grad]
    values = [
        dict(layer.named_parameters())[name].detach().as_subclass(Tensor).clone().requires_grad_() for name in names
    ]
    inputs = [points(0.8, 0.7, seed, torch.float64, 3)[:2].requires_grad_() for seed in range(2)]
    if not isinstance(layer, hyp.MoebiusPairLayer):
        inputs = inputs[:1]

    def run(*arguments: Tensor) -> Tensor:
        given, parameters = arguments[: len(inputs)], arguments[len(inputs) :]
        # functional_call would put plain tensors where ManifoldParameters are, which is what a gradient check needs
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), given)

    assert torch.autograd.gradcheck(run, (*inputs, *values))


def test_euclidean_pair_layer_is_the_limit_of_the_hyperbolic_one() -> None:
    c = 1e-8
    curved, flat = hyp.MoebiusPairLayer(4, 3, curvature=c).double(), hyp.EuclideanPairLayer(4, 3).double()
    with torch.no_grad():
        curved.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
        curved.distance_bias.copy_(torch.tensor([0.2, 0.1, -0.3]) / 4)  # d^2 tends to 4 |x - y|^2
        flat.first.weight.copy_(curved.first_weight)
        flat.second.weight.copy_(curved.second_weight)
        flat.first.bias.copy_(curved.bias)
        flat.distance_bias.copy_(curved.distance_bias * 4)
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(curved(x, y), flat(x, y), rtol=1e-5, atol=1e-6)


def test_mlr_has_a_gradient_on_its_hyperplane() -> None:
    """asinh has slope 1 at 0: points on a hyperplane are moved off it, and gradients there are those of the formula."""
    normals = torch.tensor([[0.0, 2.0, 0.0], [1.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    planes = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[0.4, 0.0, 0.2], [0.3, 0.3, 0.1], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    logits = hyp.hyperplane_logits(x, planes, normals, 0.7)
    assert logits.detach().abs().min() == 0
    assert torch.autograd.gradcheck(lambda *given: hyp.hyperplane_logits(*given, 0.7), (x, planes, normals))
    (gradient,) = torch.autograd.grad(logits[0, 0], x)
    assert gradient[0, 1] > 1
