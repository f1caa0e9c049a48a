"""HSTU with the softmax over sampled negatives that it is published with."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class HSTU(HyperRecommender):
    """HSTU (Zhai et al., 2024): pointwise attention that knows times, and the loss of SASRecSampledCE."""

    parts = {"encoder": "hstu", "geometry": "euclidean", "loss_type": "sampled_ce"}
