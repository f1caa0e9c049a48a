"""The lifts of the Poincare head, against many digits and gradcheck."""

import mpmath
import pytest
import torch
from torch import Tensor

from recbole_hyper.geometry.poincare import lifted_items, lifted_states

X = torch.cat([torch.logspace(-12, 1, 60), torch.tensor([0.0, 0.49, 0.5, 0.51])])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factored", [True, False])
def test_states_and_items_to_the_last_digits(dtype: torch.dtype, factored: bool) -> None:
    """One coordinate and a curvature of 1/4: x = |F| and b = r; far out only where the exponent is taken out."""
    x = torch.cat([X, torch.tensor([300.0] if factored else [])]).to(dtype)
    vectors, exponent = lifted_states(x[:, None], 0.25, offset=True, factored=factored)
    multiplier, extra, scale, exponents = lifted_items(torch.full_like(x, 2.0)[:, None], x, 0.25, factored=factored)
    exact = [mpmath.mpf(float(value)) for value in x]
    taken = [mpmath.exp(-value) if factored else 1 for value in exact]
    sinh = torch.tensor([float(mpmath.sinh(v) * t) for v, t in zip(exact, taken, strict=True)], dtype=torch.float64)
    cosh = torch.tensor([float(mpmath.cosh(v) * t) for v, t in zip(exact, taken, strict=True)], dtype=torch.float64)
    found = [(vectors[:, 0], sinh), (vectors[:, 1], -cosh), (extra, sinh), (multiplier, cosh / 2)]
    for ours, expected in [*found, (scale, torch.full_like(sinh, 8.0))]:
        assert ours is not None
        torch.testing.assert_close(ours.double(), expected, rtol=8 * torch.finfo(dtype).eps, atol=0)
    if factored:
        assert exponent is not None
        assert exponents is not None
        torch.testing.assert_close(exponent, x.clamp(min=1e-15))
        torch.testing.assert_close(exponents, x)


def tensors(size: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 4), (6, 4), (6,))
    made = [size * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in (*made, torch.tensor(0.3, dtype=torch.float64))]


@pytest.mark.parametrize("factored", [True, False])
def test_gradients(factored: bool) -> None:
    """By F, z, r and c, and of the gradients; the exponents are constants, so products with them are compared."""

    def products(states: Tensor, weight: Tensor, offset: Tensor, theta: Tensor) -> Tensor:
        lifted, exponent = lifted_states(states, theta, offset=True, factored=factored)
        multiplier, extra, scale, exponents = lifted_items(weight, offset, theta, factored=factored)
        assert extra is not None
        inner = lifted[:, :-1] @ (weight * multiplier[:, None]).t() + lifted[:, -1:] * extra
        if exponent is not None and exponents is not None:
            inner = inner * (exponent[:, None] + exponents).detach().exp()
        return inner * scale

    assert torch.autograd.gradcheck(products, tensors())
    if not factored:  # a constant exponent has no second derivative
        assert torch.autograd.gradgradcheck(products, tensors())


def test_gradients_at_the_origin_are_finite() -> None:
    states, weight, offset, theta = tensors(0.0)
    vectors, _ = lifted_states(states, theta, offset=True, factored=True)
    multiplier, extra, scale, _ = lifted_items(weight, offset, theta, factored=True)
    assert extra is not None
    total = vectors.sum() + (multiplier * weight.norm(dim=-1)).sum() + extra.sum() + scale.sum()
    gradients = torch.autograd.grad(total, [states, weight, offset, theta])
    assert all(bool(one.isfinite().all()) for one in gradients)
    torch.testing.assert_close(gradients[0], torch.full_like(states, 2 * 0.3**0.5))


def test_float32_gradients_at_every_size() -> None:
    """Small states, where a difference cancels, and far ones: the error is that of rounding."""
    for size in (1e-8, 1e-4, 1e-2, 0.3, 3.0, 50.0):
        found = []
        for dtype in (torch.float32, torch.float64):
            states, weight, offset, _ = (one.detach().to(dtype).requires_grad_() for one in tensors(size))
            vectors, _ = lifted_states(states, 0.3, offset=True, factored=True)
            multiplier, extra, scale, _ = lifted_items(weight, offset, 0.3, factored=True)
            assert extra is not None
            total = (vectors * torch.linspace(1, 2, vectors.numel(), dtype=dtype).view_as(vectors)).sum()
            total = total + (multiplier * size).sum() + extra.sum() + scale.sum()
            found.append([one.double() for one in torch.autograd.grad(total, [states, weight, offset])])
        for one, other in zip(*found, strict=True):
            assert float((one - other).abs().max() / other.abs().max()) < 2e-6, size
