"""geoopt's Poincare ball, built so that small and large curvatures keep their digits."""

import math
from typing import Any

import geoopt
import torch
from torch import Tensor

from recbole_hyper.geometry.head import LEAST_LEARNED


def poincare_ball(curvature: float = 1.0, *, learnable: bool = False) -> geoopt.PoincareBall:
    """Return the ball of ``curvature`` c: c |x|^2 < 1, radius 1/sqrt(c), sectional curvature -c.

    ``learnable`` makes c a trained parameter: softplus of ``isp_c``, which ends at ``LEAST_LEARNED`` as in an output
    head. ValueError for no finite number above 0, and to learn from below ``LEAST_LEARNED``.
    """
    if not (math.isfinite(curvature) and curvature > 0):
        hint = "a finite number above 0 is needed, such as 1.0 (flat layers: torch.nn)"
        raise ValueError(f"curvature={curvature}: {hint}")
    if learnable and curvature < LEAST_LEARNED:
        raise ValueError(f"curvature={curvature} (key curvature_init): {LEAST_LEARNED} is the least to learn from")
    ball = _LearnedBall(c=1.0, learnable=True) if learnable else geoopt.PoincareBall(c=1.0)
    with torch.no_grad():  # geoopt's log(exp(c) - 1) is -inf or inf for very small or large c
        ball.isp_c.fill_(curvature + math.log(-math.expm1(-curvature)))
    return ball


class _LearnedBall(geoopt.PoincareBall):
    name = "PoincareBall"  # in messages

    @property
    def c(self) -> Tensor:
        """Curvature, 0-d; at the floor, below which its gradient in float32 would be noise, it has none."""
        return super().c.clamp(min=LEAST_LEARNED)


class SharedBall(geoopt.PoincareBall):
    """A ball with the curvature that another module has and may learn: ``source.curvature``, a float or 0-d tensor."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        del self.isp_c
        # in a tuple, so that nn.Module does not register the source's parameters a second time
        self._source = (source,)

    @property
    def c(self) -> Tensor:
        """Curvature, 0-d; gradients flow to the source."""
        return torch.as_tensor(self._source[0].curvature)


def ball_parameter(points: Tensor, ball: geoopt.PoincareBall) -> geoopt.ManifoldParameter:
    """Return trained points of ``ball`` that Riemannian optimizers move along the manifold."""
    return geoopt.ManifoldParameter(points, manifold=ball)
