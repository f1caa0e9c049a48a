"""GRU4Rec on whole sequences with exact cross-entropy: the Euclidean twin of HGRU4Rec."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class GRU4RecCE(HyperRecommender):
    """RecBole's GRU4Rec network, supervised at every position of un-augmented sequences, dot product, cross-entropy."""

    parts = {"encoder": "gru", "geometry": "euclidean", "loss_type": "ce"}
