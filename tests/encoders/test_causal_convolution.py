"""The causal convolution against a loop, through products and through transforms."""

import pytest
import torch

from recbole_hyper.encoders import causal_convolution as module
from recbole_hyper.encoders.causal_convolution import causal_convolution

SHAPES = [(1, 1, 1), (3, 2, 4), (2, 7, 3), (2, 40, 5)]
WAYS = pytest.mark.parametrize("longest", [0, 1000], ids=["transforms", "products"])


def loop(inputs: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    rows = []
    for i in range(inputs.shape[1]):
        rows.append(sum(kernel[i - j] * inputs[:, j] for j in range(i + 1)))
    return torch.stack(rows, dim=1)


@WAYS
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, int, int], longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PRODUCT", longest)
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(shape[1:], dtype=torch.float64, requires_grad=True)
    above = torch.randn(shape, dtype=torch.float64)
    found = causal_convolution(inputs, kernel)
    expected = loop(inputs, kernel)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(found, (inputs, kernel), above)
    theirs = torch.autograd.grad(expected, (inputs, kernel), above)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@WAYS
def test_float32_and_strided_inputs(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PRODUCT", longest)
    inputs, kernel = torch.randn(4, 60, 12)[:, ::2, ::3], torch.randn(30, 8)[:, ::2]
    expected = loop(inputs.double(), kernel.double()).float()
    torch.testing.assert_close(causal_convolution(inputs, kernel), expected, rtol=1e-4, atol=1e-5)


@WAYS
def test_later_positions_change_no_earlier_state(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PRODUCT", longest)
    inputs, kernel = torch.randn(2, 20, 3, dtype=torch.float64), torch.randn(20, 3, dtype=torch.float64)
    other = inputs.clone()
    other[:, 12:] = torch.randn(2, 8, 3)
    torch.testing.assert_close(causal_convolution(inputs, kernel)[:, :12], causal_convolution(other, kernel)[:, :12])
