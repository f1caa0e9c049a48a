"""GRU4Rec in hyperbolic space: Moebius GRU and Poincare head in the same ball."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class HGRU4Rec(HyperRecommender):
    """Moebius GRU (Ganea et al., 2018) with the Poincare head of HSASRecCE, exact cross-entropy over all items."""

    parts = {"encoder": "moebius_gru", "geometry": "poincare", "loss_type": "ce"}
