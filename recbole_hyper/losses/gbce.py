"""gBCE: binary cross-entropy with a positive part that is calibrated for the sampling rate (gSASRec)."""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Negatives, NNegatives, SampledLoss, mean
from recbole_hyper.options import Option
from recbole_hyper.values import Share


def generalised_binary_cross_entropy(
    positive: Tensor, negative: Tensor, *, beta: float, weights: Tensor | None = None
) -> Tensor:
    r"""Return the mean over rows of :math:`-\frac1{k+1}[\beta\log\sigma(s_t)+\sum_j\log(1-\sigma(s_j))]`.

    ``positive`` (n,) and ``negative`` (n, k) are logits; ``beta`` is in (0, 1], and 1 for BCE+.
    """
    total = beta * F.softplus(-positive) + F.softplus(negative).sum(1)
    return mean(total / (negative.shape[1] + 1), weights)


def calibration(k: int, n_items: int, t: float) -> float:
    """Return beta of gSASRec (Petrov & Macdonald 2023, eq. 13): alpha (t (1 - 1/alpha) + 1/alpha), alpha = k / (N - 1).

    ``k`` is the number of negatives per positive, ``n_items`` is N without padding; alpha is at most 1. t = 0 is plain
    BCE (beta = 1), t = 1 fully calibrated (beta = alpha). ValueError for t outside [0, 1].
    """
    check_t(t)
    alpha = min(1.0, k / max(1, n_items - 1))
    return alpha * (t * (1 - 1 / alpha) + 1 / alpha)


def check_t(t: float) -> None:
    """Raise ValueError unless 0 <= t <= 1."""
    if not 0 <= t <= 1:
        raise ValueError(f"gbce_t must lie in [0, 1] (0: plain BCE, 1: fully calibrated), got {t}")


class GeneralisedBinaryCrossEntropy(SampledLoss):
    """gBCE (gSASRec, Petrov & Macdonald 2023), computed as beta * softplus(-s): no clamps, any size of s.

    Negatives are drawn uniformly with replacement from all items but the target and padding. Seen items are included,
    as in both published codes.
    """

    def __init__(
        self,
        *,
        n_negatives: Annotated[
            NNegatives, "per position, uniform, seen items included; gSASRec's port, SCE paper sec. 4.2.3"
        ] = 256,
        t: Annotated[
            Share,
            Option("calibration; 0 is BCE+, 1 fully calibrated; gSASRec's port", key="gbce_t"),
        ] = 0.75,
    ) -> None:
        super().__init__(n_negatives=n_negatives)
        check_t(t)
        self.t = t

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        drawn = _pairs.draw(targets, self.n_negatives, head, negatives, exclude_seen=False, replacement=True)
        positive, negative = _pairs.target_and_negative_logits(states, targets, drawn, head)
        beta = calibration(self.n_negatives, head.n_items - (head.padding_idx is not None), self.t)
        return generalised_binary_cross_entropy(positive, negative, beta=beta, weights=weights)
