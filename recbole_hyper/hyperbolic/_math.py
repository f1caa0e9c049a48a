r"""Moebius operations that keep their precision in float32, up to the boundary of the ball.

Every point has **lifted coordinates**. With :math:`s = \mathrm{artanh}(\sqrt c |x|)`, half the distance to the origin
in the ball of curvature 1, and :math:`\hat x` the direction,

.. math:: \sigma = \sinh(s)\,\hat x = \sqrt c\,x / \sqrt{1 - c|x|^2}, \qquad C = \cosh(s) = \sqrt{1 + |\sigma|^2} .

The factor :math:`1 - c|x|^2`, in which the usual formulas lose precision, is :math:`1/C^2` and is never computed.
Moebius addition (Ganea et al. 2018, eq. 4) is exactly

.. math:: e = C_2 \sigma_1 + C_1 \sigma_2, \qquad \sigma_1 \oplus \sigma_2 =
          \frac{C_2\, e + |e|^2 \sigma_1}{C_1 \sqrt{1 + |e|^2}}, \qquad |\sigma_1 \oplus \sigma_2| = |e| .

**Projection** limits s to ``max_rapidity(dtype)``: 7 in float32 (radius 1 - 1.7e-6), 15 in float64 (radius
1 - 1.9e-13). The derivative is that of the projected function. Coordinates are in the last axis.
"""

import math
from typing import Any

import torch
from torch import Tensor

Curvature = float | Tensor


def max_rapidity(dtype: torch.dtype) -> float:
    """Return the largest s = artanh(sqrt(c) |x|) of a point; projection moves farther points there."""
    return 15.0 if dtype == torch.float64 else 7.0


def tiny(dtype: torch.dtype) -> float:
    """Return a number to add under square roots: far below rounding errors, far above underflow."""
    if dtype == torch.float64:
        return 1e-200
    return max(1e-30, torch.finfo(dtype).tiny)  # float16 cannot hold 1e-30


def square_norm(x: Tensor) -> Tensor:
    """Return |x|^2 with the axis kept."""
    return x.square().sum(-1, keepdim=True)


# value of a radial function at s, its derivative, and the distance that the limit applies to
def _sinh(s: Tensor, square: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    clipped = s.clamp(max=limit)
    return torch.sinh(clipped), torch.cosh(clipped), s


def _asinh(n: Tensor, square: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    cosh = (square + 1).sqrt()
    s = torch.log1p(n + (square + tiny(square.dtype)) / (cosh + 1))
    return s.clamp(max=limit), 1 / cosh, s


def _tanh(s: Tensor, square: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    value = torch.tanh(s.clamp(max=limit))
    return value, 1 - value * value, s


class _Radial(torch.autograd.Function):
    """x -> f(|x|) x / |x| for one of the functions above."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float, function: Any) -> Tensor:
        square = square_norm(x)
        guarded = square + tiny(square.dtype)
        s = guarded.sqrt()
        value, derivative, distance = function(s, square, limit)
        ratio = value / s
        # the difference has a rounding error, but gradients contain it only as square * slope
        slope = (torch.where(distance > limit, torch.zeros_like(derivative), derivative) - ratio) / guarded
        ctx.save_for_backward(x, ratio, slope)
        return x * ratio

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, ratio, slope = ctx.saved_tensors
        along = (gradient * x).sum(-1, keepdim=True)
        return torch.addcmul(gradient * ratio, slope * along, x), None, None


def lift_tangent(tangent: Tensor, limit: float | None = None) -> Tensor:
    """Return the lifted point exp_0(t) of a tangent vector t at the origin, with s <= ``limit`` (max_rapidity)."""
    return _Radial.apply(tangent, max_rapidity(tangent.dtype) if limit is None else limit, _sinh)


def tangent_of_lifted(lifted: Tensor, limit: float | None = None) -> Tensor:
    """Return log_0 of a lifted point, with s <= ``limit`` (max_rapidity)."""
    return _Radial.apply(lifted, max_rapidity(lifted.dtype) if limit is None else limit, _asinh)


def lift_point(x: Tensor, curvature: Curvature) -> Tensor:
    r"""Return :math:`\sqrt c\,x/\sqrt{1 - c|x|^2}`; points at or beyond the boundary are projected first."""
    limit = max_rapidity(x.dtype)
    scaled = x * curvature**0.5
    square = square_norm(scaled)
    highest = math.tanh(limit) ** 2
    beyond = square > highest
    shrunk = scaled * (highest / torch.where(beyond, square, torch.ones_like(square))).sqrt()
    lifted = scaled * (1 - torch.where(beyond, torch.zeros_like(square), square)).rsqrt()
    return torch.where(beyond, shrunk * math.cosh(limit), lifted)


def point_of_lifted(lifted: Tensor, curvature: Curvature) -> Tensor:
    """Return the point of the ball of ``curvature``."""
    return lifted * (curvature**0.5 * (1 + square_norm(lifted)).sqrt()).reciprocal()


def lifted_sum(first: Tensor, second: Tensor) -> Tensor:
    """Return the Moebius sum of two lifted points."""
    cosh_first, cosh_second = (1 + square_norm(first)).sqrt(), (1 + square_norm(second)).sqrt()
    e = cosh_second * first + cosh_first * second
    square = square_norm(e)
    return (cosh_second * e + square * first) / (cosh_first * (1 + square).sqrt())


def exp0(tangent: Tensor, curvature: Curvature = 1.0) -> Tensor:
    r"""Return :math:`\exp_0(v) = \tanh(\sqrt c|v|)\,v/(\sqrt c|v|)`, a point of the ball."""
    root = curvature**0.5
    return _Radial.apply(tangent * root, max_rapidity(tangent.dtype), _tanh) / root


def log0(x: Tensor, curvature: Curvature = 1.0) -> Tensor:
    r"""Return :math:`\log_0(x) = \mathrm{artanh}(\sqrt c|x|)\,x/(\sqrt c|x|)`, a tangent vector at the origin."""
    return tangent_of_lifted(lift_point(x, curvature)) / curvature**0.5


def check_finite(values: Tensor, name: str) -> None:
    """Raise ValueError for NaN or infinity in ``values`` on the CPU.

    A graph that is exported cannot check, and a GPU would have to wait. There a NaN reaches the loss, which stops the
    training.
    """
    checked = values.device.type == "cpu" and not torch.compiler.is_exporting()
    if checked and not bool(torch.isfinite(values).all()):
        count = f"{int((~torch.isfinite(values)).sum())} of {values.numel()}"
        raise ValueError(f"{name}: {count} values are NaN or infinite; check the learning rate and the data")


def check_points(x: Tensor, curvature: Curvature, name: str) -> None:
    """Raise ValueError for points ``x`` that are not finite or not inside the open ball of ``curvature``."""
    check_finite(x, name)
    largest = float((square_norm(x.detach()) * curvature).max()) if x.numel() else 0.0
    if largest >= 1:
        raise ValueError(
            f"{name}: a point of norm {math.sqrt(largest / float(curvature)):.6g} is outside the ball of radius "
            f"{1 / math.sqrt(float(curvature)):.6g}; pass points of the ball, or exp0 of tangent vectors"
        )
