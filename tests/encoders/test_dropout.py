"""The fast dropout: share, scale, gradient, evaluation; attention with it equals torch's without it."""

import pytest
import torch
import torch.nn.functional as F

from recbole_hyper.encoders.base import Dropout, dropout
from recbole_hyper.encoders.transformer import causal_attention
from tests.raising import refused


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_share_and_mean(p: float) -> None:
    x = torch.ones(1001, 333)
    dropped = dropout(x, p)
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=0.005)
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert dropped.unique().numel() == 2
    # neighbours that share one draw are independent
    zero = (dropped.flatten()[: 1001 * 332] == 0).float()
    assert torch.corrcoef(torch.stack([zero[:-1], zero[1:]]))[0, 1].abs() < 0.01


def test_gradient_is_the_mask() -> None:
    x = torch.rand(7, 5, dtype=torch.double, requires_grad=True)
    y = dropout(x, 0.4)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())


def test_evaluation_and_zero_change_nothing() -> None:
    x = torch.rand(4, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.9999999)(x).isfinite().all()
    with refused(ValueError, "dropout probability 1"):
        Dropout(1)


def test_attention_with_a_vanishing_rate_equals_torch() -> None:
    query, key, value = torch.rand(3, 2, 2, 6, 4, dtype=torch.double)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(causal_attention(query, key, value, 1e-9), expected)
    mean = torch.stack([causal_attention(query, key, value, 0.3) for _ in range(3000)]).mean(0)
    torch.testing.assert_close(mean, expected, atol=0.05, rtol=0.05)
