"""The lifts of the Poincare head with their gradients in closed form: ten operations each, not a hundred.

With c the curvature, x = 2 sqrt(c) |F| and b = 2 sqrt(c) r, and all but the scale times exp(-exponent):

    states   A = [k F, -C],   k = 2 sqrt(c) sinh(x) / x,   C = cosh(x)                    exponent x
    items    multiplier = cosh(b) / |z|,   extra = sinh(b),   scale = 2 |z| / sqrt(c)       exponent |b|

An exponent is a constant, so exp(-exponent) is a factor of each derivative. The backward passes use inputs and outputs
of the forward passes alone, so they are differentiable themselves.
"""

from typing import Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Theta

# |F| and |z| are at least this: far below any trained norm, its square still a normal float32
NORM_FLOOR = 1e-15


def lifted_states(states: Tensor, theta: Theta, *, offset: bool, factored: bool) -> tuple[Tensor, Tensor | None]:
    """Return A (..., d + 1), or (..., d) without ``offset``, of states (..., d), and the exponents (...) or None."""
    # a graph is exported from plain operations
    lift = _states if torch.compiler.is_exporting() else _LiftedStates.apply
    vectors, _, _, x, *_ = lift(states, theta, offset, factored)
    return vectors, x if factored else None


def lifted_items(
    weight: Tensor, offset: Tensor | None, theta: Theta, *, factored: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Return multiplier, extra column (None without offsets), scale and exponent (None: 0) of items, (...) each."""
    return _LiftedItems.apply(weight, offset, theta, factored)


def _root(theta: Theta) -> Theta:
    return theta.sqrt() if isinstance(theta, Tensor) else float(theta) ** 0.5


def _cosh(decay: Tensor) -> Tensor:
    """Return cosh(x) exp(-x) of decay = exp(-2 x) - 1; sinh(x) exp(-x) is -decay / 2."""
    return 1 + decay * 0.5


def _states(states: Tensor, theta: Theta, offset: bool, factored: bool) -> tuple[Tensor, ...]:
    """Return A, k, C, x and |F|."""
    root = 2 * _root(theta)
    norm = torch.linalg.vector_norm(states, dim=-1).clamp_min(NORM_FLOOR)
    x = norm * root
    if factored:
        decay = torch.expm1(x * -2)
        rate, cosh = decay / (norm * -2), _cosh(decay)
    else:
        rate, cosh = torch.sinh(x) / norm, torch.cosh(x)
    space = states * rate.unsqueeze(-1)
    vectors = torch.cat((space, -cosh.unsqueeze(-1)), dim=-1) if offset else space
    return vectors, rate, cosh, x, norm


class _LiftedStates(torch.autograd.Function):
    """(F, c) to (A, k, C, x); k and C are outputs so that the backward pass can be differentiated by them."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, theta: Theta, offset: bool, factored: bool) -> tuple[Tensor, ...]:
        vectors, rate, cosh, x, norm = _states(states, theta, offset, factored)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(x)
        ctx.constant = None if isinstance(theta, Tensor) else theta
        ctx.save_for_backward(states, theta if isinstance(theta, Tensor) else None, rate, cosh, norm)
        return vectors, rate, cosh, x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_vectors, by_rate, by_cosh, _ = gradients
        states, theta, rate, cosh, norm = ctx.saved_tensors
        c = ctx.constant if theta is None else theta
        root, width = 2 * _root(c), states.shape[-1]
        square = norm * norm
        if torch.is_grad_enabled():  # for a second derivative
            square = states.square().sum(-1).clamp_min(NORM_FLOOR**2)
        if by_vectors is not None:
            by_space = by_vectors[..., :width]
            along = torch.linalg.vecdot(by_space, states)
            by_rate = along if by_rate is None else by_rate + along
            if by_vectors.shape[-1] > width:
                column = by_vectors[..., width]
                by_cosh = -column if by_cosh is None else by_cosh - column
        # dk/dF = (root C - k) F / |F|^2 and dC/dF = root k F; at small |F| the difference loses what A's rounding hides
        slope: Tensor | None = None
        if by_rate is not None:
            slope = by_rate * ((cosh * root - rate) / square)
        if by_cosh is not None:
            more = by_cosh * (rate * root)
            slope = more if slope is None else slope + more
        if slope is None:
            return None, None, None, None
        by_states = states * slope.unsqueeze(-1)
        if by_vectors is not None:
            by_states = torch.addcmul(by_states, by_space, rate.unsqueeze(-1))
        by_theta = None
        if theta is not None and ctx.needs_input_grad[1]:
            # k grows with sqrt(c) as with |F|, and by itself
            total = (slope * square).sum()
            if by_rate is not None:
                total = total + (by_rate * rate).sum()
            by_theta = total / (2 * c)
        return by_states, by_theta, None, None


class _LiftedItems(torch.autograd.Function):
    """(z, r, c) to (multiplier, extra, scale, exponent)."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, offset: Tensor | None, theta: Theta, factored: bool
    ) -> tuple[Tensor | None, ...]:
        root = _root(theta)
        norm = torch.linalg.vector_norm(weight, dim=-1).clamp_min_(NORM_FLOOR)
        scale, extra, exponent = norm * (2 / root), None, None
        if offset is None:
            multiplier = norm.reciprocal()
            exponent = torch.zeros_like(norm) if factored else None
        elif factored:
            exponent = (offset * (2 * root)).abs_()
            decay = torch.expm1(exponent * -2)
            extra = torch.copysign(decay * -0.5, offset)
            multiplier = _cosh(decay).div_(norm)
        else:
            b = offset * (2 * root)
            extra, multiplier = torch.sinh(b), torch.cosh(b).div_(norm)
        ctx.set_materialize_grads(False)
        if exponent is not None:
            ctx.mark_non_differentiable(exponent)
        ctx.constant = None if isinstance(theta, Tensor) else theta
        learned = theta if isinstance(theta, Tensor) else None
        ctx.save_for_backward(weight, offset, learned, multiplier, extra, scale)
        return multiplier, extra, scale, exponent

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_multiplier, by_extra, by_scale, _ = gradients
        weight, offset, theta, multiplier, extra, scale = ctx.saved_tensors
        c = ctx.constant if theta is None else theta
        root = _root(c)
        norm = scale * (root / 2)
        by_norm: Tensor | None = None if by_scale is None else by_scale * (2 / root)
        by_b: Tensor | None = None
        if by_multiplier is not None:
            share = by_multiplier / norm
            by_norm = -share * multiplier if by_norm is None else torch.addcmul(by_norm, share, multiplier, value=-1)
            by_b = None if extra is None else share * extra
        if by_extra is not None:
            cosh = multiplier * norm
            by_b = by_extra * cosh if by_b is None else torch.addcmul(by_b, by_extra, cosh)
        by_weight = None if by_norm is None else weight * (by_norm / norm).unsqueeze(-1)
        by_offset = None if by_b is None else by_b * (2 * root)
        by_theta = None
        if theta is not None and ctx.needs_input_grad[2]:
            total = torch.zeros_like(c)
            if by_offset is not None:
                total = total + (by_offset * offset).sum()
            if by_scale is not None:
                total = total - (by_scale * scale).sum()
            by_theta = total / (2 * c)
        return by_weight, by_offset, by_theta, None
