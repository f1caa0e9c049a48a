"""geoopt's Poincare ball, built so that small and large curvatures keep their precision."""

import math

import geoopt
import torch
from torch import Tensor

from recbole_hyper.geometry.head import LEAST_LEARNED, OutputHead


def poincare_ball(curvature: float = 1.0, *, learnable: bool = False) -> geoopt.PoincareBall:
    """Return the ball of ``curvature`` c: c |x|^2 < 1, radius 1/sqrt(c), sectional curvature -c.

    ``learnable`` makes c a trained parameter, softplus of ``isp_c``, of at least ``LEAST_LEARNED`` as in an output
    head. ValueError for a curvature that is not finite and above 0, or to learn from below ``LEAST_LEARNED``.
    """
    if not (math.isfinite(curvature) and curvature > 0):
        raise ValueError(f"curvature={curvature} must be a finite number above 0; for flat layers use torch.nn")
    if learnable and curvature < LEAST_LEARNED:
        raise ValueError(
            f"curvature={curvature} (key curvature_init): a learned curvature starts at {LEAST_LEARNED} or more"
        )
    ball = _LearnedBall(c=1.0, learnable=True) if learnable else geoopt.PoincareBall(c=1.0)
    with torch.no_grad():  # geoopt's log(exp(c) - 1) is -inf or inf for very small or large c
        ball.isp_c.fill_(curvature + math.log(-math.expm1(-curvature)))
    return ball


class _LearnedBall(geoopt.PoincareBall):
    name = "PoincareBall"  # in messages

    @property
    def c(self) -> Tensor:
        """Curvature, 0-d. At its minimum, below which the float32 gradient would be noise, it has no gradient."""
        return super().c.clamp(min=LEAST_LEARNED)


class SharedBall(geoopt.PoincareBall):
    """A ball whose curvature is ``head.theta`` of an output head with a Poincare geometry, which may learn it."""

    def __init__(self, head: OutputHead) -> None:
        super().__init__()
        del self.isp_c
        # in a tuple, so that nn.Module does not register the head's parameters a second time
        self._head = (head,)

    @property
    def c(self) -> Tensor:
        """Curvature, 0-d; gradients flow to the head."""
        return torch.as_tensor(self._head[0].theta)


def ball_parameter(points: Tensor, ball: geoopt.PoincareBall) -> geoopt.ManifoldParameter:
    """Return trained points of ``ball`` that Riemannian optimizers move along the manifold."""
    return geoopt.ManifoldParameter(points, manifold=ball)
