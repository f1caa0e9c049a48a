"""Pure functions under the geometries: hyperbolic functions that neither overflow nor lose digits, with gradients.

A leaf module: it imports torch, and a kernel where it is used.
"""

import math

import torch
from torch import Tensor


def exponent_limit(dtype: torch.dtype) -> float:
    """Return the largest x for which exp(x) can be squared in ``dtype`` (43.4 in float32, 353 in float64)."""
    return math.log(torch.finfo(dtype).max) / 2 - 1


def asinh_(u: Tensor, slope: Tensor, scratch: Tensor) -> None:
    r"""Replace ``u`` by asinh(u) in place and write the derivative :math:`1/\sqrt{1+u^2}` into ``slope``.

    ``slope`` and ``scratch`` are buffers of u's shape and dtype. |u| must stay below exp(exponent_limit(dtype)).
    Accurate to a few units in the last place for every u, tiny ones included; more than ten times faster than
    torch.asinh on CPU, which is not vectorised there. float32 on CPU takes one pass, in a compiled kernel.
    """
    if u.device.type == "cpu" and u.dtype == torch.float32 and u.is_contiguous() and slope.is_contiguous():
        from recbole_hyper.kernels.softmax import asinh_slope  # numba is imported when a loss is computed

        asinh_slope(u.detach().view(-1).numpy(), slope.detach().view(-1).numpy())
        return
    one = torch.ones((), dtype=u.dtype, device=u.device)
    torch.addcmul(one, u, u, out=scratch)  # 1 + u^2
    torch.rsqrt(scratch, out=slope)
    torch.addcmul(one, scratch, slope, out=scratch)  # 1 + sqrt(1 + u^2)
    # asinh(w) = log1p(w + w^2 / (1 + sqrt(1 + w^2))) for w = |u|, the form that keeps tiny w exact
    torch.div(u, scratch, out=scratch)
    torch.addcmul(u, u, scratch.abs_(), out=scratch)
    scratch.abs_().log1p_()
    # the sign bit by integer arithmetic: twice as fast as copysign
    bits = torch.int64 if u.dtype == torch.float64 else torch.int32
    u.view(bits).bitwise_and_(torch.iinfo(bits).min).bitwise_or_(scratch.view(bits))


class _Asinh(torch.autograd.Function):
    """asinh with the same formula as ``asinh_``; differentiable twice."""

    @staticmethod
    def forward(ctx, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        if torch.compiler.is_exporting():  # a graph has no kernel and no change in place
            w = u.abs()
            return torch.sign(u) * torch.log1p(w + w * (w / (1 + torch.sqrt(1 + w * w))))
        if u.device.type != "cpu":
            return torch.asinh(u)
        value = u.clone()
        asinh_(value, torch.empty_like(u), torch.empty_like(u))
        return value

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return gradient * torch.rsqrt(1 + u * u)


def asinh(u: Tensor) -> Tensor:
    """Return asinh(u) elementwise, for |u| below exp(exponent_limit(dtype)); fast on CPU, any float dtype."""
    return _Asinh.apply(u)


def scaled_asinh_(v: Tensor, slope: Tensor, exponent: Tensor) -> None:
    r"""Replace ``v`` by :math:`asinh(v e^E)`, and write its derivative :math:`1/\sqrt{e^{-2E}+v^2}` into ``slope``.

    For any size of E >= 0. With :math:`f = e^{-E}` and :math:`w = |v|` the value is
    :math:`\log(1 + w (1 + w / (f + \sqrt{f^2 + w^2})) / f)`: tiny w stay exact. f is cut at e^-41 (float32; e^-351 in
    float64), below all rounding, so that the derivative is finite. ``exponent`` is overwritten.
    """
    limit = exponent_limit(v.dtype) - 2
    floor, w = torch.clamp(exponent, max=limit).neg_().exp_(), v.abs()
    root = torch.hypot(floor, w)
    torch.reciprocal(root, out=slope)
    w.addcdiv_(v * v, root.add_(floor))
    w.div_(floor).log1p_().add_(exponent.sub_(limit).relu_())
    torch.copysign(w, v, out=v)


def scaled_asinh_values(v: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`scaled_asinh_` computes, (value, derivative)."""
    value, slope = v.clone(), torch.empty_like(v)
    scaled_asinh_(value, slope, exponent.clone())
    return value, slope


class _ScaledAsinh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v: Tensor, exponent: Tensor) -> Tensor:
        value, slope = scaled_asinh_values(v, exponent)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def scaled_asinh(v: Tensor, exponent: Tensor) -> Tensor:
    """Return asinh(v * exp(exponent)) without overflow; ``exponent`` (>= 0, v's shape) is a constant."""
    if not torch.compiler.is_exporting():
        return _ScaledAsinh.apply(v, exponent)
    # a graph is exported from plain operations, none in place
    limit = exponent_limit(v.dtype) - 2
    floor, w = torch.exp(-exponent.clamp(max=limit)), v.abs()
    ratio = w * (1 + w / (floor + torch.sqrt(floor * floor + w * w))) / floor
    return torch.sign(v) * (torch.log1p(ratio) + torch.relu(exponent - limit))
