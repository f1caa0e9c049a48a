"""DualRec: dual encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class DualRec(HyperRecommender):
    """DualRec (CIKM 2022): windowed attention with relative positions, past and future, that teach each other."""

    parts = {"encoder": "dual", "geometry": "euclidean", "loss_type": "ce"}
