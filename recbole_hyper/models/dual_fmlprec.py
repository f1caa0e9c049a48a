"""DualFMLPRec: dual_fmlp encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class DualFMLPRec(HyperRecommender):
    """FMLP-Rec's filter layers in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_fmlp", "geometry": "euclidean", "loss_type": "ce"}
