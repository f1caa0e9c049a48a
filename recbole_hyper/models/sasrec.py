"""SASRec with the losses of the papers: the transformer encoder and a dot product."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class SASRecBCE(HyperRecommender):
    """SASRec (Kang and McAuley, 2018) as the papers train it: binary cross-entropy with one uniform negative."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "bce"}


@component("models")
class SASRecCE(HyperRecommender):
    """SASRec trained with the exact cross-entropy over all items (HSASRec paper, section 4; SCE paper, "CE")."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "ce"}
