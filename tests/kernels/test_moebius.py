"""The building blocks of the Moebius GRU against float64 formulas and the gradients of autograd."""

import numpy as np
import pytest
import torch
from torch import Tensor

from recbole_hyper.kernels import moebius

D, W = 5, 7


def columns(seed: int, size: float = 1.0) -> np.ndarray:
    return (size * np.random.default_rng(seed).standard_normal((D, W))).astype(np.float32)


def cosh_of(points: np.ndarray) -> np.ndarray:
    out = np.empty(W, np.float32)
    moebius.cosh_of(points, out)
    return out


@pytest.mark.parametrize("size", [1e-6, 0.1, 1.0, 3.0])
def test_radial_functions(size: float) -> None:
    a = columns(0, size)
    norm = np.linalg.norm(a.astype(np.float64), axis=0)
    ratio, cosh, slope = np.empty((3, W), np.float32)
    limit = np.float32(4.0)
    moebius.exp_radial(a, limit, ratio, cosh, slope)
    s = np.minimum(norm, 4.0)
    np.testing.assert_allclose(ratio, np.sinh(s) / norm, rtol=2e-6)
    np.testing.assert_allclose(cosh, np.cosh(s), rtol=2e-6)
    step = 1e-3 * norm
    low, high = (np.sinh(np.minimum(n, 4.0)) / n for n in (norm - step, norm + step))
    expected = (high - low) / (2 * step) / norm if size >= 0.1 else np.full(W, 1 / 3)
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-6)

    moebius.log_radial((norm**2).astype(np.float32), np.float32(1.5), ratio, slope)
    np.testing.assert_allclose(ratio, np.minimum(np.arcsinh(norm), 1.5) / norm, rtol=2e-6)
    low, high = (np.minimum(np.arcsinh(n), 1.5) / n for n in (norm - step, norm + step))
    expected = (high - low) / (2 * step) / norm if size >= 0.1 else np.full(W, -1 / 3)
    kink = np.abs(np.arcsinh(norm) - 1.5) < 2 * step
    np.testing.assert_allclose(slope[~kink], expected[~kink], rtol=2e-3, atol=1e-6)


def test_the_gradient_of_a_radial_function() -> None:
    a, g = columns(0), columns(1)
    ratio, cosh, slope = np.empty((3, W), np.float32)
    moebius.exp_radial(a, np.float32(50), ratio, cosh, slope)
    found = np.empty((D, W), np.float32)
    moebius.radial_backward(g, a, ratio, slope, found)
    leaf = torch.tensor(a, dtype=torch.float64, requires_grad=True)
    norm = leaf.norm(dim=0)
    (torch.sinh(norm) / norm * leaf * torch.tensor(g)).sum().backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-4, atol=1e-5)


def plain_sum(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum of points lifted to the hyperboloid: first (+) second moves the second along a boost."""
    c1, c2 = (torch.sqrt(1 + point.square().sum(0)) for point in (first, second))
    # the boost that takes the origin to ``first`` applied to (c2, second)
    return second + first * (c2 + (first * second).sum(0) / (1 + c1))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [0.01, 0.7])
def test_the_sum_and_its_gradients(sign: int, size: float) -> None:
    first, second, g = columns(0, size), columns(1, size), columns(2)
    c1, c2, n2 = cosh_of(first), cosh_of(second), np.empty(W, np.float32)
    e, found = np.empty((2, D, W), np.float32)
    moebius.moebius_sum(np.float32(sign), first, c1, second, c2, e, n2, found)
    leaves = [torch.tensor(point, dtype=torch.float64, requires_grad=True) for point in (first, second)]
    # the kernel's half argument: gyrovectors of the ball are tanh(s), lifted points sinh(s), their sum has twice the s
    expected = half(plain_sum(double(sign * leaves[0]), double(leaves[1])))
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-6)
    (expected * torch.tensor(g)).sum().backward()
    gradients = np.empty((2, D, W), np.float32)
    moebius.moebius_sum_backward(np.float32(sign), g, e, first, n2, c1, c2, *gradients)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-3, atol=1e-4)


def double(points: Tensor) -> Tensor:
    """Map sinh(s) to sinh(2 s) along the same direction."""
    return 2 * points * torch.sqrt(1 + points.square().sum(0))


def half(points: Tensor) -> Tensor:
    """Undo :func:`double`."""
    return points / torch.sqrt(2 + 2 * torch.sqrt(1 + points.square().sum(0)))


@pytest.mark.parametrize("inner", [3, 8, 11])
def test_products(inner: int) -> None:
    generator = np.random.default_rng(inner)
    matrix, v = (generator.standard_normal(shape).astype(np.float32) for shape in ((6, inner), (inner, W)))
    out = np.ones((6, W), np.float32)
    moebius.product(matrix, v, out, True)
    np.testing.assert_allclose(out, 1 + matrix @ v, rtol=1e-5, atol=1e-5)
    moebius.product(matrix, v, out, False)
    np.testing.assert_allclose(out, matrix @ v, rtol=1e-5, atol=1e-5)


def test_rows_are_loaded_and_stored_with_padding() -> None:
    source, tile = np.arange(40, dtype=np.float32).reshape(10, 4), np.empty((2, W), np.float32)
    moebius.load(source, 6, 1, tile)
    np.testing.assert_array_equal(tile[:, :4], source[6:, 1:3].T)
    assert not tile[:, 4:].any()
    target = np.zeros_like(source)
    moebius.store(tile, target, 6, 1)
    np.testing.assert_array_equal(target[6:, 1:3], source[6:, 1:3])
    assert target.astype(bool).sum() == 8
