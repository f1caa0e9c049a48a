"""Relative delta of the Poincare disk as far as floating point reaches, and the curvature that data imply."""

import math

EPS_DEFAULT = 1e-12  # the paper's recommendation; it also shows 1e-5


def disk_delta_rel(eps: float = EPS_DEFAULT) -> float:
    """delta_rel of the Poincare disk with effective Euclidean radius 1 - eps (HSASRec paper, section 3.3 and Eq. 10).

    delta_P = ln(1 + sqrt 2) for the whole disk of curvature -1, r_P = ln(1 + 2 (1 - eps) / eps) is the hyperbolic
    radius of the Euclidean radius 1 - eps, and the diameter is 2 r_P, so delta_rel(P) = 2 delta_P / (2 r_P):
    0.0722 at eps = 1e-5, 0.0311 at 1e-12.

    Raises:
        ValueError: eps outside (0, 1).
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps is the distance of the effective radius to the rim of the disk, 0 < eps < 1; got {eps}")
    return math.log1p(math.sqrt(2.0)) / math.log1p(2.0 * (1.0 - eps) / eps)


def curvature_of(delta_rel: float, eps: float = EPS_DEFAULT) -> float:
    """c = (delta_rel(P, eps) / delta_rel(X))^2 (HSASRec paper, section 3.3); infinite for a tree (delta_rel 0).

    The ball of parameter c (radius 1 / sqrt c, sectional curvature -c) then has the relative delta of the data.

    Raises:
        ValueError: delta_rel outside [0, 1], eps outside (0, 1).
    """
    if not 0.0 <= delta_rel <= 1.0:
        raise ValueError(f"delta_rel lies in [0, 1], got {delta_rel}")
    if delta_rel == 0.0:
        return math.inf
    return (disk_delta_rel(eps) / delta_rel) ** 2


def delta_rel_of(curvature: float, eps: float = EPS_DEFAULT) -> float:
    """The delta_rel that a published c stands for: the inverse of :func:`curvature_of`."""
    if not curvature > 0.0:
        raise ValueError(f"curvature must be positive, got {curvature}")
    return disk_delta_rel(eps) / math.sqrt(curvature)
