"""FMLP-Rec with its own loss and with the exact cross-entropy."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class FMLPRec(HyperRecommender):
    """FMLP-Rec (WWW 2022) as published: circular filters on every prefix, binary cross-entropy with one negative."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "bce"}


@component("models")
class FMLPRecCE(HyperRecommender):
    """FMLP-Rec with causal filters on whole sequences and exact cross-entropy: one direction of DualFMLPRec."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "ce"}
