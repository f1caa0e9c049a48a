"""Relative delta of the Poincare disk as far as floating point reaches, and the curvature that data imply."""

import math

EPS_DEFAULT = 1e-12  # the paper's recommendation; it also shows 1e-5


def disk_delta_rel(eps: float = EPS_DEFAULT) -> float:
    """Return delta_rel of the disk with Euclidean radius 1 - eps (HSASRec paper, section 3.3 and Eq. 10).

    It is ln(1 + sqrt 2) / ln(1 + 2 (1 - eps) / eps): 0.0722 at eps = 1e-5, 0.0311 at 1e-12. ValueError unless eps is
    in (0, 1).
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(
            f"eps, the distance from the effective radius to the rim of the disk, must be 0 < eps < 1, got {eps}"
        )
    return math.log1p(math.sqrt(2.0)) / math.log1p(2.0 * (1.0 - eps) / eps)


def curvature_of(delta_rel: float, eps: float = EPS_DEFAULT) -> float:
    """Return c = (delta_rel(disk, eps) / delta_rel)^2 (HSASRec paper, section 3.3); infinite for a tree (0).

    The ball with this c (radius 1 / sqrt c, sectional curvature -c) has the relative delta of the data.
    ValueError unless delta_rel is in [0, 1] and eps in (0, 1).
    """
    if not 0.0 <= delta_rel <= 1.0:
        raise ValueError(f"delta_rel must be in [0, 1], got {delta_rel}")
    return math.inf if delta_rel == 0.0 else (disk_delta_rel(eps) / delta_rel) ** 2
