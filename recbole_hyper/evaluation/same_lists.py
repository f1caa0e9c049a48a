"""Whether a model gives everyone the same items."""

from __future__ import annotations

import numpy as np

from recbole_hyper.types import Ranks

# (share) .12 and less after two epochs of training on ml-100k, .38 to .98 before a model learns, and for popularity
SAME = 0.3
# of fewer cases, or fewer candidates for a place of the lists, the share is chance
CASES, CANDIDATES = 100, 20


def list_overlap(ranks: Ranks) -> float | None:
    """Return which share of the best items of one case another case has among its best too, 0 to 1.

    The mean over all pairs of different cases, equal to that of a loop over them: with c_i lists that hold item i,
    sum_i c_i (c_i - 1) / (n (n - 1) k). None where it would be chance: under 100 cases or 20 k candidates.
    """
    n, k = ranks.top_items.shape
    if n < CASES or ranks.n_candidates.mean() < CANDIDATES * k:
        return None
    counts = np.bincount(ranks.top_items.ravel()).astype(float)
    counts[0] = 0.0  # padding of short lists
    return float((counts * (counts - 1.0)).sum() / (n * (n - 1.0) * k))
