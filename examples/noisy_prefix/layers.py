"""Layers of the noisy-prefix classifier after its encoders: one joins two points, one classifies by hyperplanes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.geometry.base import compute_dtype
from recbole_hyper.geometry.poincare import asinh
from recbole_hyper.hyperbolic import _math as hyperbolic
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball


def project(x: Tensor, curvature: hyperbolic.Curvature = 1.0) -> Tensor:
    """Return x, moved back to radius tanh(max_rapidity) / sqrt(c) if it is outside."""
    largest = math.tanh(hyperbolic.max_rapidity(x.dtype)) / curvature**0.5
    norm = (hyperbolic.square_norm(x) + hyperbolic.tiny(x.dtype)).sqrt()
    return torch.where(norm > largest, x * (largest / norm), x)


def lifted_square_distance(first: Tensor, second: Tensor, curvature: hyperbolic.Curvature = 1.0) -> Tensor:
    r"""Return the squared distance :math:`(4/c)\,\mathrm{asinh}^2|C_2\sigma_1 - C_1\sigma_2|` of two lifted points."""
    cosh_first, cosh_second = (1 + hyperbolic.square_norm(first)).sqrt(), (1 + hyperbolic.square_norm(second)).sqrt()
    difference = cosh_second * first - cosh_first * second
    return 4 / curvature * hyperbolic.tangent_of_lifted(difference, math.inf).square().sum(-1)


class MoebiusPairLayer(nn.Module):
    r"""Join two points: :math:`W_1 \otimes x \oplus W_2 \otimes y \oplus d(x, y)^2 \otimes b_d \oplus b`.

    The layer after the two encoders of the noisy-prefix classifier (Ganea et al. 2018, section 4), with the squared
    distance as a feature unless ``use_distance`` is False. Sums associate to the left. ``bias`` and ``distance_bias``
    (out,) are points of the ball, ``first_weight`` and ``second_weight`` (out, in) are Euclidean. It computes in their
    dtype, also under autocast.
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
                square = lifted_square_distance(first, second, c).unsqueeze(-1)
                total = hyperbolic.lifted_sum(total, hyperbolic.lift_tangent(square * direction))
            total = hyperbolic.lifted_sum(total, lift(self.bias.as_subclass(Tensor), c))
            return project(hyperbolic.point_of_lifted(total, c), c)


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


def hyperplane_logits(x: Tensor, points: Tensor, normals: Tensor, curvature: hyperbolic.Curvature = 1.0) -> Tensor:
    r"""Return the logits (..., k) of hyperbolic MLR (Ganea et al. 2018, eq. 25).

    .. math:: \frac{\lambda_p |a|}{\sqrt c}\,\mathrm{asinh}\frac{2\sqrt c\,\langle -p \oplus x, a\rangle}
              {(1 - c|-p \oplus x|^2)\,|a|}

    evaluated as one matrix product on the hyperboloid, where the argument of asinh is linear: with :math:`X = (\cosh
    2s, \sinh 2s\,\hat x)` it is :math:`\langle \nu, \vec X\rangle - \nu_0 X_0`, :math:`\nu` being the normal carried
    from 0 to p. Its error in float32 is that of rounding :math:`X`, about 1e-7 cosh(2s).

    ``x`` (..., d) are points of the ball, ``points`` (k, d) those p of the hyperplanes, ``normals`` (k, d) their
    normals a (tangent vectors at p), none of them 0. Half precision gives float32, also under autocast.
    """
    dtype = compute_dtype(x, points, normals)
    x, points, normals = x.to(dtype), points.to(dtype), normals.to(dtype)
    with torch.autocast(x.device.type, enabled=False):
        lifted, base = hyperbolic.lift_point(x, curvature), hyperbolic.lift_point(points, curvature)
        space = 2 * (1 + hyperbolic.square_norm(lifted)).sqrt() * lifted
        space_time = torch.cat([space, 1 + 2 * hyperbolic.square_norm(lifted)], -1)
        base_square = hyperbolic.square_norm(base)
        base_space = 2 * (1 + base_square).sqrt() * base  # hyperboloid coordinates of p; its time is 1 + 2 base_square
        norm = (hyperbolic.square_norm(normals) + hyperbolic.tiny(dtype)).sqrt()
        unit = normals / norm
        along = (base_space * unit).sum(-1, keepdim=True)
        carried = torch.cat([unit + along / (2 + 2 * base_square) * base_space, -along], -1)
        return asinh(space_time @ carried.t()) * (2 * (1 + base_square) * norm / curvature**0.5).squeeze(-1)


class HyperbolicMLR(nn.Module):
    r"""Classifier of points of the ball of curvature c > 0 into k = ``n_classes``, one hyperplane (p_k, a_k) each.

    ``points`` (k, d) lie on the ball, ``normals`` (k, d) are Euclidean: see :func:`hyperplane_logits`. Points x are
    read in the dtype of the parameters, and autocast has no effect.
    """

    def __init__(self, in_features: int, n_classes: int, *, curvature: float = 1.0) -> None:
        super().__init__()
        self.curvature = curvature
        self.ball = poincare_ball(curvature)
        start = hyperbolic.exp0(torch.randn(n_classes, in_features) * 1e-3, curvature)
        self.points = ball_parameter(start, self.ball)
        self.normals = nn.Parameter(F.normalize(torch.randn(n_classes, in_features), dim=-1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., k) of points (..., d)."""
        x = x.to(self.points.dtype)
        hyperbolic.check_points(x, self.curvature, "x")
        return hyperplane_logits(x, self.points.as_subclass(Tensor), self.normals, self.curvature)
