"""Layers between Poincare balls: Moebius operations, linear maps, hyperbolic MLR, distance features."""

from recbole_hyper.hyperbolic._math import (
    conformal_factor,
    exp0,
    exp_map,
    gyration,
    log0,
    log_map,
    max_rapidity,
    moebius_add,
    moebius_matvec,
    parallel_transport,
    project,
    square_distance,
)
from recbole_hyper.hyperbolic.linear import EuclideanPairLayer, MoebiusLinear, MoebiusPairLayer
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball
from recbole_hyper.hyperbolic.mlr import HyperbolicMLR, UnidirectionalMLR, hyperplane_logits

__all__ = [
    "EuclideanPairLayer",
    "HyperbolicMLR",
    "MoebiusLinear",
    "MoebiusPairLayer",
    "UnidirectionalMLR",
    "ball_parameter",
    "conformal_factor",
    "exp0",
    "exp_map",
    "gyration",
    "hyperplane_logits",
    "log0",
    "log_map",
    "max_rapidity",
    "moebius_add",
    "moebius_matvec",
    "parallel_transport",
    "poincare_ball",
    "project",
    "square_distance",
]
