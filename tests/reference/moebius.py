"""Hyperbolic layers step by step with geoopt in float64: the formulas as the papers print them.

geoopt's projection (radius 1 - 1e-5 in float64) is off, so that values and gradients are those of the formulas.
"""

from __future__ import annotations

import geoopt
import torch
from torch import Tensor


def _ball(c: float) -> geoopt.PoincareBall:
    return geoopt.PoincareBall(c=torch.tensor(c, dtype=torch.float64))


def cell(
    x: Tensor, h: Tensor, u: Tensor, w: Tensor, b: Tensor, c: float, tanh: bool = False, after: bool = False
) -> Tensor:
    """One Moebius GRU step: points x (B, in), h (B, d); u (3d, in), w (3d, d), biases b (3, d) on the ball."""
    ball = _ball(c)
    u_r, u_z, u_h = u.chunk(3)
    w_r, w_z, w_h = w.chunk(3)

    def add(first: Tensor, second: Tensor) -> Tensor:
        return ball.mobius_add(first, second, project=False)

    def matvec(matrix: Tensor, point: Tensor) -> Tensor:
        return ball.mobius_matvec(matrix, point, project=False)

    def gate(w_gate: Tensor, u_gate: Tensor, b_gate: Tensor) -> Tensor:
        total = add(matvec(w_gate, h), matvec(u_gate, x))
        return torch.sigmoid(ball.logmap0(add(total, b_gate)))

    def diag(weights: Tensor, point: Tensor) -> Tensor:
        return ball.expmap0(weights * ball.logmap0(point), project=False)

    r, z = gate(w_r, u_r, b[0]), gate(w_z, u_z, b[1])
    moved = diag(r, matvec(w_h, h)) if after else matvec(w_h, diag(r, h))
    candidate = add(add(moved, matvec(u_h, x)), b[2])
    if tanh:
        candidate = ball.expmap0(torch.tanh(ball.logmap0(candidate)), project=False)
    return add(h, diag(z, add(-h, candidate)))


def gru(
    inputs: Tensor, h0: Tensor, u: Tensor, w: Tensor, b: Tensor, c: float, tanh: bool = False, after: bool = False
) -> Tensor:
    """All states (L, B, d) of one layer; ``inputs`` (L, B, in) are tangent vectors at the origin."""
    ball = _ball(c)
    states, h = [], h0
    for x in inputs:
        h = cell(ball.expmap0(x, project=False), h, u, w, b, c, tanh, after)
        states.append(h)
    return torch.stack(states)
