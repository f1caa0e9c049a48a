"""Linear maps between Poincare balls, and the two-point layer of the noisy-prefix classifier."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_hyper.hyperbolic import _math as hyperbolic
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball


class MoebiusLinear(nn.Module):
    r"""Map points of the ball of curvature c > 0 by :math:`y = W \otimes x \oplus b` (Ganea et al. 2018, section 3.2).

    ``weight`` (out, in) is Euclidean, uniform in +-1/sqrt(in); ``bias`` (out,) is a point of the ball near 0. The dtype
    is that of ``weight``, also under autocast: half precision has no digits left near the boundary. ValueError for a
    curvature that is not above 0; in forward, for points outside the ball or NaN.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, curvature: float = 1.0) -> None:
        super().__init__()
        self.curvature = curvature
        self.ball = poincare_ball(curvature)
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = (
            ball_parameter(hyperbolic.exp0(torch.randn(out_features) * 1e-5, curvature), self.ball) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map points (..., in) to points (..., out)."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.weight.dtype)
            hyperbolic.check_points(x, self.curvature, "x")
            tangent = hyperbolic.tangent_of_lifted(hyperbolic.lift_point(x, self.curvature))
            total = hyperbolic.lift_tangent(tangent @ self.weight.t())
            if self.bias is not None:
                bias = hyperbolic.lift_point(self.bias.as_subclass(Tensor), self.curvature)
                total = hyperbolic.lifted_sum(total, bias)
            return hyperbolic.project(hyperbolic.point_of_lifted(total, self.curvature), self.curvature)


class MoebiusPairLayer(nn.Module):
    r"""Join two points: :math:`W_1 \otimes x \oplus W_2 \otimes y \oplus d(x, y)^2 \otimes b_d \oplus b`.

    The layer behind the two encoders of the noisy-prefix classifier (Ganea et al. 2018, section 4), with the squared
    distance as its feature, unless ``use_distance`` is False; sums associate to the left. ``bias`` and
    ``distance_bias`` (out,) lie on the ball, ``first_weight`` and ``second_weight`` (out, in) are Euclidean. The dtype
    is theirs, also under autocast.
    """

    def __init__(
        self, in_features: int, out_features: int, *, use_distance: bool = True, curvature: float = 1.0
    ) -> None:
        super().__init__()
        self.curvature = curvature
        self.ball = poincare_ball(curvature)
        bound = 1 / math.sqrt(in_features)
        self.first_weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.second_weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))

        def near_zero() -> Tensor:
            return ball_parameter(hyperbolic.exp0(torch.randn(out_features) * 1e-5, curvature), self.ball)

        self.bias = near_zero()
        self.distance_bias = near_zero() if use_distance else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Join points x, y (..., in) into points (..., out)."""
        c, lift = self.curvature, hyperbolic.lift_point
        with torch.autocast(x.device.type, enabled=False):
            x, y = x.to(self.first_weight.dtype), y.to(self.first_weight.dtype)
            hyperbolic.check_points(x, c, "x")
            hyperbolic.check_points(y, c, "y")
            first, second = lift(x, c), lift(y, c)
            total = hyperbolic.lifted_sum(
                hyperbolic.lift_tangent(hyperbolic.tangent_of_lifted(first) @ self.first_weight.t()),
                hyperbolic.lift_tangent(hyperbolic.tangent_of_lifted(second) @ self.second_weight.t()),
            )
            if self.distance_bias is not None:
                # r (x) b = exp_0(r log_0 b)
                direction = hyperbolic.tangent_of_lifted(lift(self.distance_bias.as_subclass(Tensor), c))
                square = hyperbolic.lifted_square_distance(first, second, c).unsqueeze(-1)
                total = hyperbolic.lifted_sum(total, hyperbolic.lift_tangent(square * direction))
            total = hyperbolic.lifted_sum(total, lift(self.bias.as_subclass(Tensor), c))
            return hyperbolic.project(hyperbolic.point_of_lifted(total, c), c)


class EuclideanPairLayer(nn.Module):
    r"""The flat twin: :math:`W_1 x + W_2 y + |x - y|^2 b_d + b`."""

    def __init__(self, in_features: int, out_features: int, *, use_distance: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, out_features)
        self.second = nn.Linear(in_features, out_features, bias=False)
        self.distance_bias = nn.Parameter(torch.randn(out_features) * 1e-5) if use_distance else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Join vectors x, y (..., in) into (..., out)."""
        total = self.first(x) + self.second(y)
        if self.distance_bias is not None:
            total = total + (x - y).square().sum(-1, keepdim=True) * self.distance_bias
        return total
