"""Binary cross-entropy with sampled negatives: the loss of the SASRec paper."""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Negatives, NNegatives, SampledLoss, mean


def binary_cross_entropy(positive: Tensor, negative: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the mean over rows of :math:`-\log\sigma(s_t)-\sum_j\log(1-\sigma(s_j))` of logits (n,) and (n, k).

    With ``weights`` (n,) it is the weighted sum.
    """
    return mean(F.softplus(-positive) + F.softplus(negative).sum(1), weights)


class BinaryCrossEntropy(SampledLoss):
    """Binary cross-entropy of the target against k uniform negatives (SASRec, Kang & McAuley 2018, eq. 6).

    Negatives are drawn with replacement from the items outside the user's whole training sequence. Their sum is not
    divided by k.
    """

    def __init__(
        self,
        *,
        n_negatives: Annotated[
            NNegatives, "per position, uniform over items the user has not seen; SASRec paper sec. III-F"
        ] = 1,
    ) -> None:
        super().__init__(n_negatives=n_negatives)

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        drawn = _pairs.draw(targets, self.n_negatives, head, negatives, exclude_seen=True, replacement=True)
        return binary_cross_entropy(*_pairs.target_and_negative_logits(states, targets, drawn, head), weights)
