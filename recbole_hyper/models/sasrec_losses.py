"""SASRec's transformer with the losses for large catalogues; the geometry is the dot product but for HSASRecSCE."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class gSASRec(HyperRecommender):
    """gSASRec (Petrov and Macdonald, 2023): binary cross-entropy with k negatives, calibrated for the sampling."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "gbce"}


@component("models")
class SASRecBCEPlus(HyperRecommender):
    """SASRec with k unseen negatives per position ("BCE+" of the SCE paper)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "bce_plus"}


@component("models")
class SASRecSampledCE(HyperRecommender):
    """SASRec with softmax over k unseen negatives that a sequence's positions share ("CE-" of the SCE paper)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "sampled_ce"}


@component("models")
class eSASRec(HyperRecommender):
    """eSASRec (Tikhonovich et al., 2025): LiGR blocks, and the loss of SASRecSampledCE."""

    parts = {"encoder": "ligr", "geometry": "euclidean", "loss_type": "sampled_ce"}


@component("models")
class SASRecSCE(HyperRecommender):
    """SASRec with scalable cross-entropy (Mezentsev et al., 2024)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "sce"}


@component("models")
class SASRecRECE(HyperRecommender):
    """SASRec with reduced cross-entropy (Gusak et al., 2024)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "rece"}


@component("models")
class HSASRecSCE(HyperRecommender):
    """HSASRec's Poincare head with offsets, trained by scalable cross-entropy; ours."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "sce"}
