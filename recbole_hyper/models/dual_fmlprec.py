"""DualFMLPRec: dual_fmlp encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models._dual import DualRecommender


@component("models")
class DualFMLPRec(DualRecommender):
    """FMLP-Rec's filter layers in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_fmlp", "geometry": "euclidean", "loss_type": "ce"}
