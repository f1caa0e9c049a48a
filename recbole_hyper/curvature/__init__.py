"""Gromov delta of data and the curvature that it implies."""

from recbole_hyper.curvature.gromov import DeltaResult, gromov_delta

__all__ = ["DeltaResult", "gromov_delta"]
