"""SASRec with a hyperbolic output head: the multinomial logistic regression of the Poincare ball."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class HSASRec(HyperRecommender):
    """HSASRec (*Hyperbolic Embeddings in Sequential Self-Attention*): Poincare head without offsets, binary loss."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "bce"}


@component("models")
class HSASRecCE(HyperRecommender):
    """HSASRecCE (same paper): Poincare head with trained offsets, exact cross-entropy over all items."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "ce"}
