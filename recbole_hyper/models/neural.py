"""The neural models. Unless a model names other parts, it has a transformer, a Euclidean head and cross-entropy."""

from recbole_hyper.models.base import HyperRecommender


class SASRecBCE(HyperRecommender, loss_type="bce"):
    """SASRec (Kang and McAuley, 2018) as the papers train it: binary cross-entropy with one uniform negative."""


class SASRecCE(HyperRecommender):
    """SASRec trained with the exact cross-entropy over all items (HSASRec paper, section 4; SCE paper, "CE")."""


class HSASRec(HyperRecommender, geometry="poincare", loss_type="bce"):
    """HSASRec (*Hyperbolic Embeddings in Sequential Self-Attention*): Poincare head without offsets, binary loss."""


class HSASRecCE(HyperRecommender, geometry="poincare"):
    """HSASRecCE (same paper): Poincare head with trained offsets, exact cross-entropy over all items."""


class gSASRec(HyperRecommender, loss_type="gbce"):
    """gSASRec (Petrov and Macdonald, 2023): binary cross-entropy with k negatives, calibrated for the sampling."""


class SASRecBCEPlus(HyperRecommender, loss_type="bce_plus"):
    """SASRec with k unseen negatives per position (SCE paper, "BCE+")."""


class SASRecSampledCE(HyperRecommender, loss_type="sampled_ce"):
    """SASRec with a softmax over k unseen negatives, shared by all positions of a sequence (SCE paper, "CE-")."""


class eSASRec(HyperRecommender, encoder="ligr", loss_type="sampled_ce"):
    """eSASRec (Tikhonovich et al., 2025): LiGR blocks, and the loss of SASRecSampledCE."""


class SASRecSCE(HyperRecommender, loss_type="sce"):
    """SASRec with scalable cross-entropy (Mezentsev et al., 2024)."""


class SASRecRECE(HyperRecommender, loss_type="rece"):
    """SASRec with reduced cross-entropy (Gusak et al., 2024)."""


class HSASRecSCE(HyperRecommender, geometry="poincare", loss_type="sce"):
    """HSASRec's Poincare head with offsets, trained by scalable cross-entropy; ours."""


class HSTU(HyperRecommender, encoder="hstu", loss_type="sampled_ce"):
    """HSTU (Zhai et al., 2024): pointwise attention that reads times, and the loss of SASRecSampledCE."""


class FuXi(HyperRecommender, encoder="fuxi", loss_type="sampled_ce"):
    """FuXi-alpha (Ye et al., 2025): channels of content, time and position, and the loss of SASRecSampledCE."""


class GRU4RecCE(HyperRecommender, encoder="gru"):
    """RecBole's GRU4Rec network, trained at every position of whole sequences with exact cross-entropy."""


class HGRU4Rec(HyperRecommender, encoder="moebius_gru", geometry="poincare"):
    """Moebius GRU (Ganea et al., 2018) with the Poincare head and exact cross-entropy of HSASRecCE."""


class FMLPRec(HyperRecommender, encoder="fmlp", loss_type="bce"):
    """FMLP-Rec (WWW 2022) as published: circular filters on every prefix, binary cross-entropy with one negative."""


class FMLPRecCE(HyperRecommender, encoder="fmlp"):
    """FMLP-Rec with causal filters on whole sequences and exact cross-entropy: one direction of DualFMLPRec."""


class BSARec(HyperRecommender, encoder="bsarec"):
    """BSARec (Shin et al., 2024) as published: attention beside a filter, one window per prefix, cross-entropy."""


class DualRec(HyperRecommender, encoder="dual"):
    """DualRec (CIKM 2022): two encoders with windowed attention, for past and future, that teach each other."""


class DualSASRec(HyperRecommender, encoder="dual_transformer"):
    """SASRec's transformer in both directions (DualRec paper, Table 4)."""


class DualGRU4Rec(HyperRecommender, encoder="dual_gru"):
    """A gated recurrent network in both directions (DualRec paper, Table 4)."""


class DualFMLPRec(HyperRecommender, encoder="dual_fmlp"):
    """FMLP-Rec's filter layers in both directions (DualRec paper, Table 4)."""
