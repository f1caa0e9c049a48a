"""The neural models: each names its encoder, the geometry of its head, and its loss."""

from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.registry import register


@register("models")
class SASRecBCE(HyperRecommender):
    """SASRec (Kang and McAuley, 2018) as the papers train it: binary cross-entropy with one uniform negative."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "bce"}


@register("models")
class SASRecCE(HyperRecommender):
    """SASRec trained with the exact cross-entropy over all items (HSASRec paper, section 4; SCE paper, "CE")."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class HSASRec(HyperRecommender):
    """HSASRec (*Hyperbolic Embeddings in Sequential Self-Attention*): Poincare head without offsets, binary loss."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "bce"}


@register("models")
class HSASRecCE(HyperRecommender):
    """HSASRecCE (same paper): Poincare head with trained offsets, exact cross-entropy over all items."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "ce"}


@register("models")
class gSASRec(HyperRecommender):
    """gSASRec (Petrov and Macdonald, 2023): binary cross-entropy with k negatives, calibrated for the sampling."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "gbce"}


@register("models")
class SASRecBCEPlus(HyperRecommender):
    """SASRec with k unseen negatives per position ("BCE+" of the SCE paper)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "bce_plus"}


@register("models")
class SASRecSampledCE(HyperRecommender):
    """SASRec with softmax over k unseen negatives that a sequence's positions share ("CE-" of the SCE paper)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "sampled_ce"}


@register("models")
class eSASRec(HyperRecommender):
    """eSASRec (Tikhonovich et al., 2025): LiGR blocks, and the loss of SASRecSampledCE."""

    parts = {"encoder": "ligr", "geometry": "euclidean", "loss_type": "sampled_ce"}


@register("models")
class SASRecSCE(HyperRecommender):
    """SASRec with scalable cross-entropy (Mezentsev et al., 2024)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "sce"}


@register("models")
class SASRecRECE(HyperRecommender):
    """SASRec with reduced cross-entropy (Gusak et al., 2024)."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "rece"}


@register("models")
class HSASRecSCE(HyperRecommender):
    """HSASRec's Poincare head with offsets, trained by scalable cross-entropy; ours."""

    parts = {"encoder": "transformer", "geometry": "poincare", "loss_type": "sce"}


@register("models")
class HSTU(HyperRecommender):
    """HSTU (Zhai et al., 2024): pointwise attention that reads times, and the loss of SASRecSampledCE."""

    parts = {"encoder": "hstu", "geometry": "euclidean", "loss_type": "sampled_ce"}


@register("models")
class FuXi(HyperRecommender):
    """FuXi-alpha (Ye et al., 2025): channels of content, time and position, and the loss of SASRecSampledCE."""

    parts = {"encoder": "fuxi", "geometry": "euclidean", "loss_type": "sampled_ce"}


@register("models")
class GRU4RecCE(HyperRecommender):
    """RecBole's GRU4Rec network, trained at every position of whole sequences with exact cross-entropy."""

    parts = {"encoder": "gru", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class HGRU4Rec(HyperRecommender):
    """Moebius GRU (Ganea et al., 2018) with the Poincare head of HSASRecCE, exact cross-entropy over all items."""

    parts = {"encoder": "moebius_gru", "geometry": "poincare", "loss_type": "ce"}


@register("models")
class FMLPRec(HyperRecommender):
    """FMLP-Rec (WWW 2022) as published: circular filters on every prefix, binary cross-entropy with one negative."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "bce"}


@register("models")
class FMLPRecCE(HyperRecommender):
    """FMLP-Rec with causal filters on whole sequences and exact cross-entropy: one direction of DualFMLPRec."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class BSARec(HyperRecommender):
    """BSARec (Shin et al., 2024) as published: attention beside a filter, one window per prefix, cross-entropy."""

    parts = {"encoder": "bsarec", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class DualRec(HyperRecommender):
    """DualRec (CIKM 2022): past and future encoders with windowed attention, which teach each other."""

    parts = {"encoder": "dual", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class DualSASRec(HyperRecommender):
    """SASRec's transformer in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_transformer", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class DualGRU4Rec(HyperRecommender):
    """A gated recurrent network in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_gru", "geometry": "euclidean", "loss_type": "ce"}


@register("models")
class DualFMLPRec(HyperRecommender):
    """FMLP-Rec's filter layers in both directions (DualRec paper, Table 4)."""

    parts = {"encoder": "dual_fmlp", "geometry": "euclidean", "loss_type": "ce"}
