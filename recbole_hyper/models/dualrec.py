"""DualRec: dual encoder, dot product, cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models._dual import DualRecommender


@component("models")
class DualRec(DualRecommender):
    """DualRec (CIKM 2022): windowed attention with relative positions, past and future, that teach each other."""

    parts = {"encoder": "dual", "geometry": "euclidean", "loss_type": "ce"}
