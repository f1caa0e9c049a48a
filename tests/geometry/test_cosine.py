"""The cosine head: the formula in float64, lengths that do not matter, vectors of length 0, its temperature, a run."""

import math

import numpy as np
import pytest
import torch

from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.serving.export import vectors_of


def loop(states: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor | None, temperature: float) -> torch.Tensor:
    rows = []
    for state in states.double().tolist():
        row = []
        for j, item in enumerate(weight.double().tolist()):
            cosine = sum(a * b for a, b in zip(state, item, strict=True)) / (math.hypot(*state) * math.hypot(*item))
            row.append(cosine / temperature + (0.0 if offset is None else float(offset[j])))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.05, 2.0])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("size", [1e-2, 1.0, 1e8])
def test_logits_are_the_formula(temperature: float, offset: bool, size: float) -> None:
    states, weight = size * torch.randn(5, 4), size * torch.randn(7, 4)
    offsets = torch.randn(7) if offset else None
    found = Cosine(temperature=temperature).logits(states, weight, offsets)
    torch.testing.assert_close(
        found.double(), loop(states, weight, offsets, temperature), rtol=1e-5, atol=1e-5 / temperature
    )


def test_vectors_of_length_0_score_0_and_have_finite_gradients() -> None:
    states, weight = torch.zeros(3, 4, requires_grad=True), torch.randn(6, 4)
    weight[2] = 0
    weight.requires_grad_()
    loss = cross_entropy(states, torch.tensor([1, 2, 3]), weight, geometry="cosine", padding_idx=0)
    assert float(loss) == pytest.approx(math.log(5))
    for gradient in torch.autograd.grad(loss, (states, weight)):
        assert torch.isfinite(gradient.square()).all()
    assert Cosine().logits(torch.randn(2, 4), weight)[:, 2].abs().max() == 0


def test_the_gradient_of_a_vector_of_length_0_is_finite_in_float16() -> None:
    weight = torch.randn(5, 4)
    weight[0] = 0
    weight = weight.half().requires_grad_()
    cross_entropy(torch.randn(3, 4).half(), torch.tensor([1, 2, 3]), weight, geometry="cosine").backward()
    assert torch.isfinite(weight.grad).all()


def test_a_geometry_with_options_is_taken_by_the_functions() -> None:
    states, weight, targets = torch.randn(8, 4), torch.randn(9, 4), torch.arange(1, 9)
    found = [cross_entropy(states, targets, weight, geometry=Cosine(temperature=t)) for t in (0.05, 0.5)]
    for loss, temperature in zip(found, (0.05, 0.5), strict=True):
        logits = loop(states, weight, None, temperature)
        torch.testing.assert_close(loss.double(), torch.nn.functional.cross_entropy(logits, targets), rtol=1e-5, atol=0)
    torch.testing.assert_close(found[0], cross_entropy(states, targets, weight, geometry="cosine"))


@pytest.mark.parametrize("offset", [True, False])
def test_exported_vectors_give_the_score(offset: bool) -> None:
    head = OutputHead(Cosine(temperature=0.1), torch.randn(9, 4), offset=offset, offset_init=0.3 if offset else 0.0)
    found = vectors_of(head)
    assert found.description["query"] == f"q = {'[F/(0.1 |F|), 1]' if offset else 'F/(0.1 |F|)'}, " + (
        "F the state (d,) of the encoder"
    )
    assert found.description["exact"]
    states = torch.randn(3, 4)
    query = states / states.norm(dim=1, keepdim=True) / 0.1
    query = torch.nn.functional.pad(query, (0, 1), value=1.0) if offset else query
    np.testing.assert_allclose(
        query.numpy() @ found.vectors.T, head.logits(states)[:, 1:].detach().numpy(), rtol=1e-4, atol=1e-4
    )
