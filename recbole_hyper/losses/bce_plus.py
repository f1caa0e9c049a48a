"""BCE+: binary cross-entropy with k negatives, averaged over the k + 1 labels."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.data.negatives import check_k
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _memory, _pairs
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.losses.gbce import generalised_binary_cross_entropy


@component("losses", "bce_plus")
class BinaryCrossEntropyPlus(Loss):
    """Binary cross-entropy with k negatives (SCE paper, "BCE+"), divided by k + 1 as in its code.

    Negatives are distinct items outside the user's whole training sequence; a user who leaves fewer than k is an error.

    Args:
        n_negatives: k >= 1.
    """

    uses_negatives = True

    def __init__(self, *, n_negatives: int = 256) -> None:
        super().__init__()
        check_k(n_negatives)
        self.n_negatives = n_negatives

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss over the n rows."""
        drawn = _pairs.draw(targets, self.n_negatives, head, negatives, exclude_seen=True, replacement=False)
        positive, negative = _pairs.target_and_negative_logits(states, targets, drawn, head)
        return generalised_binary_cross_entropy(positive, negative, beta=1.0)

    def memory_bytes(
        self,
        n: int,
        d: int,
        n_items: int,
        dtype: torch.dtype = torch.float32,
        *,
        geometry: Geometry | None = None,
    ) -> int:
        """Return the bytes of drawing, of the logits and of one piece of gathered items."""
        return _memory.pair_bytes(n, self.n_negatives, d, dtype, geometry)
