"""Gromov delta of data and the curvature that it implies."""

from recbole_hyper.curvature.disk import curvature_of, delta_rel_of, disk_delta_rel
from recbole_hyper.curvature.estimate import CurvatureEstimate, estimate_curvature
from recbole_hyper.curvature.gromov import DeltaResult, gromov_delta

__all__ = [
    "CurvatureEstimate",
    "DeltaResult",
    "curvature_of",
    "delta_rel_of",
    "disk_delta_rel",
    "estimate_curvature",
    "gromov_delta",
]
