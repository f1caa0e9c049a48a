"""DualGRU4Rec: dual_gru encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class DualGRU4Rec(HyperRecommender):
    """A gated recurrent network in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_gru", "geometry": "euclidean", "loss_type": "ce"}
