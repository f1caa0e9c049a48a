"""gBCE: binary cross-entropy with a positive part that is calibrated for the sampling rate (gSASRec)."""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.losses.base import Head, NNegatives, PairedLoss
from recbole_hyper.options import Option
from recbole_hyper.values import Share


def calibration(k: int, n_items: int, t: float) -> float:
    """Return beta of gSASRec (Petrov & Macdonald 2023, eq. 13): alpha (t (1 - 1/alpha) + 1/alpha), alpha = k / (N - 1).

    ``k`` is the number of negatives per positive, ``n_items`` is N without padding; alpha is at most 1. t = 0 is plain
    BCE (beta = 1), t = 1 fully calibrated (beta = alpha).
    """
    alpha = min(1.0, k / max(1, n_items - 1))
    return alpha * (t * (1 - 1 / alpha) + 1 / alpha)


class GeneralisedBinaryCrossEntropy(PairedLoss):
    """gBCE (gSASRec, Petrov & Macdonald 2023), computed as beta * softplus(-s): no clamps, any size of s.

    Negatives are drawn uniformly with replacement from all items but the target and padding. Seen items are included,
    as in both published codes.
    """

    exclude_seen = False

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
        self.t = t

    def of_rows(self, positive: Tensor, negative: Tensor, head: Head) -> Tensor:
        r"""Return :math:`-\frac1{k+1}[\beta\log\sigma(s_t)+\sum_j\log(1-\sigma(s_j))]`."""
        k = negative.shape[1]
        beta = calibration(k, head.n_items - (head.padding_idx is not None), self.t)
        return (beta * F.softplus(-positive) + F.softplus(negative).sum(1)) / (k + 1)
