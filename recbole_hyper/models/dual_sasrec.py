"""DualSASRec: dual_transformer encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class DualSASRec(HyperRecommender):
    """SASRec's transformer in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_transformer", "geometry": "euclidean", "loss_type": "ce"}
