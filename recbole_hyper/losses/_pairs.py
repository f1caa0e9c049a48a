"""Logits of targets and negatives, for the losses that sample."""

from __future__ import annotations

from torch import Tensor

from recbole_hyper.data.negatives import UniformNegatives
from recbole_hyper.losses.base import Head, Negatives


def draw(
    targets: Tensor, k: int, head: Head, negatives: Negatives | None, *, exclude_seen: bool, replacement: bool
) -> Tensor:
    """Return (n, k) negatives from ``negatives``, or uniform ones that avoid the target where it is None."""
    source = negatives if negatives is not None else UniformNegatives(targets, head.n_items)
    return source.per_position(k, exclude_seen=exclude_seen, replacement=replacement)
