"""Hyperbolic multinomial logistic regression: classes are hyperplanes of the Poincare ball."""

from __future__ import annotations

import geoopt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.geometry._math import asinh
from recbole_hyper.geometry.base import compute_dtype
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.hyperbolic import _math as hyperbolic
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball

NORMALS = ("euclidean", "sphere")


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
    with torch.autocast(x.device.type, enabled=False):
        return _logits(x.to(dtype), points.to(dtype), normals.to(dtype), curvature)


def _logits(x: Tensor, points: Tensor, normals: Tensor, curvature: hyperbolic.Curvature) -> Tensor:
    lifted, base = hyperbolic.lift_point(x, curvature), hyperbolic.lift_point(points, curvature)
    time = (1 + hyperbolic.square_norm(lifted)).sqrt()
    space = 2 * time * lifted
    space_time = torch.cat([space, 1 + 2 * hyperbolic.square_norm(lifted)], -1)
    base_square = hyperbolic.square_norm(base)
    base_space = 2 * (1 + base_square).sqrt() * base  # hyperboloid coordinates of p; its time is 1 + 2 base_square
    norm = (hyperbolic.square_norm(normals) + hyperbolic.tiny(normals.dtype)).sqrt()
    unit = normals / norm
    along = (base_space * unit).sum(-1, keepdim=True)
    carried = torch.cat([unit + along / (2 + 2 * base_square) * base_space, -along], -1)
    root = curvature**0.5
    return asinh(space_time @ carried.t()) * (2 * (1 + base_square) * norm / root).squeeze(-1)


class HyperbolicMLR(nn.Module):
    r"""Classifier of points of the ball of curvature c > 0 into k = ``n_classes``, one hyperplane (p_k, a_k) each.

    ``normals="euclidean"`` (Ganea et al.): ``normals`` (k, d) are Euclidean parameters, see :func:`hyperplane_logits`.
    ``normals="sphere"`` (hyrnn): unit normals on geoopt's sphere and a factor exp(``log_scale``) per class on the
    signed distance. ``points`` (k, d) lie on the ball in both. Points x are read in the dtype of the parameters, and
    autocast has no effect.
    """

    def __init__(self, in_features: int, n_classes: int, *, curvature: float = 1.0, normals: str = "euclidean") -> None:
        super().__init__()
        if normals not in NORMALS:
            raise ValueError(f"normals={normals!r}: allowed are {', '.join(NORMALS)}")
        self.curvature = curvature
        self.ball = poincare_ball(curvature)
        start = hyperbolic.exp0(torch.randn(n_classes, in_features) * 1e-3, curvature)
        self.points = ball_parameter(start, self.ball)
        direction = F.normalize(torch.randn(n_classes, in_features), dim=-1)
        self.log_scale: nn.Parameter | None
        if normals == "sphere":
            self.sphere = geoopt.Sphere()
            self.normals = geoopt.ManifoldParameter(direction, manifold=self.sphere)
            self.log_scale = nn.Parameter(torch.zeros(n_classes))
        else:
            self.normals = nn.Parameter(direction)
            self.log_scale = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., k) of points (..., d)."""
        x = x.to(self.points.dtype)
        hyperbolic.check_points(x, self.curvature, "x")
        points, normals = self.points.as_subclass(Tensor), self.normals.as_subclass(Tensor)
        logits = hyperplane_logits(x, points, normals, self.curvature)
        if self.log_scale is None:
            return logits
        # the logit is lambda_p |a| times the signed distance; here the factor is exp(log_scale)
        factor = hyperbolic.conformal_factor(points, self.curvature).squeeze(-1) * normals.norm(dim=-1)
        return logits * (self.log_scale.exp() / factor)


class UnidirectionalMLR(nn.Module):
    r"""Hyperbolic MLR in its (z, r) form: p = exp_0(r z/|z|), a the normal z carried to p; k = ``n_classes``, c > 0.

    The form of the Poincare output head, and the same code: :class:`recbole_hyper.geometry.poincare.Poincare`. Every
    parameter is Euclidean: ``weight`` (k, d), ``offset`` (k,), 0 at the start.
    """

    def __init__(self, in_features: int, n_classes: int, *, curvature: float = 1.0) -> None:
        super().__init__()
        hyperbolic.check_curvature(curvature)
        self.curvature = curvature
        self.geometry = Poincare()
        self.weight = nn.Parameter(torch.randn(n_classes, in_features) * in_features**-0.5)
        self.offset = nn.Parameter(torch.zeros(n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., k) of points (..., d) of the ball."""
        x = x.to(self.weight.dtype)
        hyperbolic.check_points(x, self.curvature, "x")
        states = hyperbolic.log0(x, self.curvature)
        logits = self.geometry.logits(states.flatten(0, -2), self.weight, self.offset, curvature=self.curvature)
        return logits.view(*x.shape[:-1], -1)
