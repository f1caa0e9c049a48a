"""Hyperbolic layers step by step with geoopt in float64: the formulas as the papers print them.

geoopt's projection (radius 1 - 1e-5 in float64) is off, so that values and gradients are those of the formulas.
"""

from __future__ import annotations

import geoopt
import mpmath
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


def pair_layer(
    x: Tensor, y: Tensor, first: Tensor, second: Tensor, distance_bias: Tensor | None, bias: Tensor, c: float
) -> Tensor:
    """W1 (x) x (+) W2 (x) y (+) d(x, y)^2 (x) b_d (+) b."""
    ball = _ball(c)
    moved = [ball.mobius_matvec(w, p, project=False) for w, p in ((first, x), (second, y))]
    total = ball.mobius_add(*moved, project=False)
    if distance_bias is not None:
        square = ball.dist(x, y, keepdim=True) ** 2
        total = ball.mobius_add(total, ball.mobius_scalar_mul(square, distance_bias, project=False), project=False)
    return ball.mobius_add(total, bias, project=False)


def mlr(x: Tensor, points: Tensor, normals: Tensor, c: float) -> Tensor:
    """Ganea et al. (2018), eq. 25, class by class."""
    ball = _ball(c)
    columns = []
    for p, a in zip(points, normals, strict=True):
        moved = ball.mobius_add(-p, x, project=False)
        size = a.norm()
        argument = 2 * c**0.5 * (moved * a).sum(-1) / ((1 - c * moved.square().sum(-1)) * size)
        columns.append(2 / (1 - c * p.square().sum()) * size / c**0.5 * torch.asinh(argument))
    return torch.stack(columns, -1)


def exact_gru(inputs: Tensor, h0: Tensor, u: Tensor, w: Tensor, b: Tensor, c: float) -> tuple[Tensor, float]:
    """The states of ``gru`` in 50 digits, number by number, and the largest artanh(sqrt(c) |x|) on the way."""
    mpmath.mp.dps = 50
    farthest = mpmath.mpf(0)

    def numbers(values: Tensor) -> list:
        return [mpmath.mpf(float(value)) for value in values]

    def inner(x: list, y: list) -> mpmath.mpf:
        return mpmath.fsum(p * q for p, q in zip(x, y, strict=True))

    def add(x: list, y: list) -> list:
        xy, xx, yy = c * inner(x, y), c * inner(x, x), c * inner(y, y)
        return [((1 + 2 * xy + yy) * p + (1 - xx) * q) / (1 + 2 * xy + xx * yy) for p, q in zip(x, y, strict=True)]

    def exp(v: list) -> list:
        size = mpmath.sqrt(c * inner(v, v))
        return [mpmath.tanh(size) / size * p for p in v]

    def log(x: list) -> list:
        nonlocal farthest
        size = mpmath.sqrt(c * inner(x, x))
        farthest = max(farthest, mpmath.atanh(size))
        return [mpmath.atanh(size) / size * p for p in x]

    def moved(matrix: Tensor, v: list) -> list:
        return exp([inner(numbers(row), v) for row in matrix])

    c = mpmath.mpf(c)
    u_gates, w_gates, biases = u.chunk(3), w.chunk(3), [numbers(point) for point in b]
    result = torch.empty(len(inputs), *h0.shape, dtype=torch.float64)
    for row, start in enumerate(h0):
        h = numbers(start)
        for t in range(len(inputs)):
            x, tangent = numbers(inputs[t, row]), log(h)

            def chain(gate: int, v: list, x: list = x) -> list:
                return add(add(moved(w_gates[gate], v), moved(u_gates[gate], x)), biases[gate])

            r, z = ([1 / (1 + mpmath.exp(-value)) for value in log(chain(gate, tangent))] for gate in range(2))
            candidate = chain(2, [p * q for p, q in zip(r, tangent, strict=True)])
            difference = log(add([-value for value in h], candidate))
            h = add(h, exp([p * q for p, q in zip(z, difference, strict=True)]))
            result[t, row] = torch.tensor([float(value) for value in h], dtype=torch.float64)
    return result, float(farthest)
