"""What the losses with k negatives for each positive share."""

from __future__ import annotations

import torch

from recbole_hyper.data.negatives import check_k
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _memory
from recbole_hyper.losses.base import Loss


class SampledLoss(Loss):
    """A loss that draws k negatives.

    Args:
        n_negatives: k >= 1.
    """

    uses_negatives = True

    def __init__(self, *, n_negatives: int = 256) -> None:
        super().__init__()
        check_k(n_negatives)
        self.n_negatives = n_negatives

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
        return _memory.pair_bytes(n, self.n_negatives, d, n_items, dtype, geometry)
