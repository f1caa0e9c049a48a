"""The published hyperbolic head, written as the papers do: with points of the ball and Moebius addition."""

from __future__ import annotations

import math

import geoopt.manifolds.stereographic.math as ball
import mpmath
import torch
from torch import Tensor


def gyrovector_logits(states: Tensor, weight: Tensor, offset: Tensor, curvature: float) -> Tensor:
    """Ganea et al. (2018), eq. 25, with geoopt in float64: (n, d), (m, d), (m,) -> (n, m), one pair at a time."""
    k = torch.tensor(-curvature, dtype=torch.float64)
    root = curvature**0.5
    rows = []
    for state in states.double():
        x = ball.expmap0(state, k=k)
        row = []
        for z, r in zip(weight.double(), offset.double(), strict=True):
            p = ball.expmap0(r * z / z.norm(), k=k)
            a = ball.parallel_transport0(p, z, k=k)
            y = ball.mobius_add(-p, x, k=k)
            conformal = 2 / (1 - curvature * p.dot(p))
            inside = 2 * root * y.dot(a) / ((1 - curvature * y.dot(y)) * a.norm())
            row.append(conformal * a.norm() / root * torch.asinh(inside))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def exact_logit(state: list[float], z: list[float], r: float, curvature: float, digits: int = 400) -> mpmath.mpf:
    """The same formula for one pair with ``digits`` decimal digits, for where float64 gyrovectors break."""
    with mpmath.workdps(digits):
        c = mpmath.mpf(curvature)
        root = mpmath.sqrt(c)

        def dot(u: list[mpmath.mpf], v: list[mpmath.mpf]) -> mpmath.mpf:
            return mpmath.fsum(a * b for a, b in zip(u, v, strict=True))

        def exp0(v: list[mpmath.mpf]) -> list[mpmath.mpf]:
            norm = mpmath.sqrt(dot(v, v))
            return (
                [mpmath.mpf(0) for _ in v] if norm == 0 else [mpmath.tanh(root * norm) * a / (root * norm) for a in v]
            )

        z = [mpmath.mpf(a) for a in z]
        norm = mpmath.sqrt(dot(z, z))
        x = exp0([mpmath.mpf(a) for a in state])
        p = exp0([mpmath.mpf(r) * a / norm for a in z])
        # Moebius addition of -p and x
        q = [-a for a in p]
        qx, qq, xx = dot(q, x), dot(q, q), dot(x, x)
        bottom = 1 + 2 * c * qx + c * c * qq * xx
        y = [((1 + 2 * c * qx + c * xx) * a + (1 - c * qq) * b) / bottom for a, b in zip(q, x, strict=True)]
        a = [(1 - c * dot(p, p)) * b for b in z]
        a_norm = mpmath.sqrt(dot(a, a))
        inside = 2 * root * dot(y, a) / ((1 - c * dot(y, y)) * a_norm)
        return 2 / (1 - c * dot(p, p)) * a_norm / root * mpmath.asinh(inside)


def search_vectors(
    states: Tensor, weight: Tensor, offset: Tensor, curvature: float | None
) -> tuple[list[list[float]], list[list[float]]]:
    """What sce and rece search by, one row and one item at a time: (n, d + 1) and (m, d + 1); curvature None is flat.

    Flat: (F, 1) and (z, r). Curved, with s = sqrt(c)|F| and b = 2 sqrt(c) r: (sinh(2s) F/|F|, -cosh(2s)) and the unit
    vector along (cosh(b) z/|z|, sinh(b)) times 2|z|/sqrt(c).
    """
    rows, items = [], []
    for state in states.double().tolist():
        if curvature is None:
            rows.append([*state, 1.0])
            continue
        norm = math.sqrt(math.fsum(a * a for a in state))
        s = math.sqrt(curvature) * norm
        rows.append([*(math.sinh(2 * s) * a / norm for a in state), -math.cosh(2 * s)])
    for z, r in zip(weight.double().tolist(), offset.double().tolist(), strict=True):
        if curvature is None:
            items.append([*z, r])
            continue
        norm, b = math.sqrt(math.fsum(a * a for a in z)), 2 * math.sqrt(curvature) * r
        vector = [*(math.cosh(b) * a / norm for a in z), math.sinh(b)]
        size = 2 * norm / math.sqrt(curvature) / math.sqrt(math.fsum(a * a for a in vector))
        items.append([size * a for a in vector])
    return rows, items
