"""Ranks, ties, best items and a check for NaN in one pass over a block of scores; torch needs six passes.

Plain twin: ``evaluation.ranking._rank_with_torch``, and ``serving.query._best_of_few`` for best items.
Kept for: scores and ranks of a million items take 1.04 times as long as the scores alone (make bench-rank).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from recbole_hyper.kernels import LOWEST
from recbole_hyper.kernels.compiled import compiled, threaded

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_BLOCK = 512  # scores between two checks whether the list of best items changes
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@compiled()
def _take(scores: Any, first: int, best: Any, top: Any) -> None:
    """Merge ``scores`` (m,) of the items first + j into the best scores ``best`` (k,) and their items ``top`` (k,).

    Calls go from the first items to the last, so equal scores stay in item order.
    """
    last = len(best) - 1
    for j in range(len(scores)):
        if scores[j] > best[last]:
            place = last
            while place > 0 and best[place - 1] < scores[j]:
                best[place] = best[place - 1]
                top[place] = top[place - 1]
                place -= 1
            best[place] = scores[j]
            top[place] = first + j


@threaded(fastmath={"reassoc", "contract"})
def rank_rows(
    scores: npt.NDArray[np.float32], targets: Int64, offsets: Int64, seen: Int32, hidden: Int64, k: int
) -> tuple[Int64, Int64, Int64, Int32, npt.NDArray[np.bool_]]:
    """Rank the target (n,) of every row of ``scores`` (n, n_items), column 0 padding.

    Items ``seen[offsets[i]:offsets[i + 1]]`` are excluded from row ``i``, and ``hidden`` items from all rows; their
    scores are overwritten. Returns, each (n,), the number of items with at least the target's score, with exactly that
    score, and excluded by ``seen`` but not by ``hidden``; the k best items (n, k), equal scores in item order, padded
    with 0; and (n,) whether any score is not finite.
    """
    n, n_items = scores.shape
    at_least, equal, removed = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    top, bad = np.zeros((n, k), np.int32), np.zeros(n, np.bool_)
    for i in prange(n):
        row = scores[i]
        row[0] = LOWEST
        for item in hidden:
            bad[i] |= not np.isfinite(row[item])
            row[item] = LOWEST
        for at in range(offsets[i], offsets[i + 1]):
            item = seen[at]
            if row[item] != LOWEST:
                bad[i] |= not np.isfinite(row[item])
                row[item] = LOWEST
                removed[i] += 1
        target = row[targets[i]]
        best = np.full(k, LOWEST, np.float32)
        threshold = LOWEST
        nothing = _ZERO
        for start in range(0, n_items, _BLOCK):
            # in a slice, indices need no check for their sign, so the loop is vectorised
            part = row[start : start + _BLOCK]
            # counts of a block are exact in float32, which has twice as many lanes as int64
            more, same, above = _ZERO, _ZERO, _ZERO
            for j in range(len(part)):
                score = part[j]
                more += _ONE if score >= target else _ZERO
                same += _ONE if score == target else _ZERO
                above += _ONE if score > threshold else _ZERO
                nothing += score * _ZERO  # NaN as soon as one score is not finite
            at_least[i] += int(more)
            equal[i] += int(same)
            if above > _ZERO:
                _take(part, start, best, top[i])
                threshold = best[k - 1]
        bad[i] |= np.isnan(nothing)
    return at_least, equal, removed, top, bad
