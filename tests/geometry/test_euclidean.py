"""The dot product over a temperature; a learned temperature, its gradient, its record and a run that serves with it."""

from pathlib import Path

import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.losses.ce import exact_cross_entropy
from recbole_hyper.serving.export import vectors_of
from tests.conftest import SMALL
from tests.raising import refused


@pytest.mark.parametrize("geometry", [Euclidean, Cosine])
@pytest.mark.parametrize("offset", [True, False])
def test_the_gradient_is_that_of_logits_over_a_temperature(geometry: type, offset: bool) -> None:
    torch.manual_seed(0)
    states, weight, targets = torch.randn(6, 4), torch.randn(9, 4), torch.arange(1, 7)
    head = OutputHead(geometry(temperature="learn"), weight, offset=offset, padding_idx=None)
    theta = head.theta
    exact_cross_entropy(states, targets, weight, head.offset, head.geometry, theta=theta).backward()
    temperature = torch.tensor(head.theta_value, requires_grad=True)
    first, second = (
        (states, weight)
        if geometry is Euclidean
        else (torch.nn.functional.normalize(vectors, dim=1) for vectors in (states, weight))
    )
    torch.nn.functional.cross_entropy(first @ second.t() / temperature, targets).backward()
    assert head.log_temperature is not None
    assert head.log_temperature.grad is not None
    assert temperature.grad is not None
    torch.testing.assert_close(head.log_temperature.grad, temperature.grad * temperature.detach(), rtol=1e-4, atol=1e-5)
    assert head.learned == {"temperature": pytest.approx(geometry(temperature="learn").learns_from)}


@pytest.mark.parametrize(("geometry", "loss"), [(Euclidean, "ce"), (Cosine, "sampled_ce")])
def test_a_run_learns_it_and_serves_with_it(geometry: type, loss: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "output_dir": str(tmp_path / "run"), "n_negatives": 4}
    keys |= {"geometry": geometry.__name__.lower(), "temperature": "learn", "loss_type": loss}
    result = run("SASRecCE", "random", config_dict=keys)
    assert result["temperature"] != pytest.approx(geometry(temperature="learn").learns_from, rel=1e-6)
    assert "curvature" not in result
    model = load(tmp_path / "run").model
    states = torch.randn(3, model.head.weight.shape[1])
    torch.testing.assert_close(model.head.frozen().scores(states), model.head.logits(states), rtol=1e-5, atol=1e-5)
    assert "temperature" in vectors_of(model.head).description["query"]


@pytest.mark.parametrize("geometry", [Euclidean, Cosine])
@pytest.mark.parametrize("value", ["learned", 0, -1.0, float("inf"), float("nan")])
def test_what_is_neither_a_number_above_0_nor_learn_is_refused(geometry: type, value: object) -> None:
    with refused(ConfigError, "temperature="):
        geometry(temperature=value)


def test_the_flat_limit_of_the_ball_is_a_dot_product_over_a_quarter() -> None:
    states, weight = torch.randn(6, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    flat = Poincare().logits(states, weight, None, theta=1e-9)
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
    with refused(ValueError, "temperature="):
        Euclidean(temperature=temperature)
