"""BCE+: binary cross-entropy with k negatives, averaged over the k + 1 labels."""

import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.losses.base import Head, PairedLoss


class BinaryCrossEntropyPlus(PairedLoss):
    """Binary cross-entropy with k negatives (SCE paper, "BCE+"), divided by k + 1 as in its code.

    Negatives are distinct items outside the user's whole training sequence. Fewer than k such items raise an error.
    """

    replacement = False

    def of_rows(self, positive: Tensor, negative: Tensor, head: Head) -> Tensor:
        r"""Return :math:`-\frac1{k+1}[\log\sigma(s_t)+\sum_j\log(1-\sigma(s_j))]`."""
        return (F.softplus(-positive) + F.softplus(negative).sum(1)) / (negative.shape[1] + 1)
