"""BCE+: binary cross-entropy with k negatives, averaged over the k + 1 labels."""

from torch import Tensor

from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Negatives, SampledLoss
from recbole_hyper.losses.gbce import generalised_binary_cross_entropy


class BinaryCrossEntropyPlus(SampledLoss):
    """Binary cross-entropy with k negatives (SCE paper, "BCE+"), divided by k + 1 as in its code.

    Negatives are distinct items outside the user's whole training sequence. Fewer than k such items raise an error.
    """

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        drawn = _pairs.draw(targets, self.n_negatives, head, negatives, exclude_seen=True, replacement=False)
        positive, negative = _pairs.target_and_negative_logits(states, targets, drawn, head)
        return generalised_binary_cross_entropy(positive, negative, beta=1.0, weights=weights)
