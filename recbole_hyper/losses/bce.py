"""Binary cross-entropy with sampled negatives: the loss of the SASRec paper."""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.losses.base import Head, NNegatives, PairedLoss


class BinaryCrossEntropy(PairedLoss):
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

    def of_rows(self, positive: Tensor, negative: Tensor, head: Head) -> Tensor:
        r"""Return :math:`-\log\sigma(s_t)-\sum_j\log(1-\sigma(s_j))`."""
        return F.softplus(-positive) + F.softplus(negative).sum(1)
