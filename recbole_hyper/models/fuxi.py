"""FuXi-alpha with the softmax over sampled negatives that it is published with."""

from __future__ import annotations

from recbole_hyper.components import component
from recbole_hyper.models.base import HyperRecommender


@component("models")
class FuXi(HyperRecommender):
    """FuXi-alpha (Ye et al., 2025): channels of content, time and place, and the loss of SASRecSampledCE."""

    parts = {"encoder": "fuxi", "geometry": "euclidean", "loss_type": "sampled_ce"}
