"""Lists under rules: item by item, the best one that no limit forbids.

Plain twin: the loop in ``tests/serving/test_rules.py``.
Kept for: lists under limits among 100,000 items take no longer than the scores; numpy takes several times as long.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from recbole_hyper.kernels import LOWEST
from recbole_hyper.kernels.compiled import compiled, threaded
from recbole_hyper.kernels.ranks import Int32

Scores = npt.NDArray[np.float32]

# values with diversity are compared in steps of 1 / GRID, so that no tie depends on how the compiler rounds
GRID = 2.0**32


@compiled()
def _similarity(one: int, other: int, vectors: Any, kinds: Any) -> float:
    """Return the inner product of two items' vectors; without vectors, 1 if the items are of one kind, else 0."""
    if len(kinds):
        return 1.0 if kinds[one] == kinds[other] and kinds[one] >= 0 else 0.0
    total = 0.0
    for j in range(vectors.shape[1]):
        total += np.float64(vectors[one, j]) * np.float64(vectors[other, j])
    return total


@threaded()
def choose_rows(
    items: Int32, scores: Scores, k: int, codes: Int32, limits: Int32, diversity: float, vectors: Scores, kinds: Int32
) -> tuple[Int32, Scores]:
    """Choose ``k`` of the candidates of every row one after another, each the best that no limit forbids.

    The value of an item is (1 - diversity) * relevance - diversity * its largest similarity to an item chosen before.
    Relevance is the score, scaled to 0 .. 1 over the row's candidates. Values that differ by less than 2^-32 are ties,
    broken by item number.

    ``items`` and ``scores`` (n, m) are best first, padded with 0. At most ``limits[j]`` (g,) items of a list share a
    code of ``codes[j]`` (g, n_items); code -1 has no limit. Similarity compares ``vectors`` (n_items, d) or ``kinds``
    (n_items,); the other is empty. Returns (n, k) items, padded with 0, and their scores.
    """
    n, m = items.shape
    top, best = np.zeros((n, k), np.int32), np.full((n, k), LOWEST, np.float32)
    for i in prange(n):
        count = 0
        while count < m and items[i, count] > 0:
            count += 1
        if count == 0:
            continue
        # float() would keep float32 in a compiled function
        low = np.float64(scores[i, count - 1])
        width = np.float64(scores[i, 0]) - low
        free = np.ones(count, np.bool_)
        used = np.zeros((len(limits), count), np.int32)
        similarity = np.full(count, -np.inf)
        for j in range(count):
            for g in range(len(limits)):
                if codes[g, items[i, j]] >= 0 and limits[g] == 0:
                    free[j] = False
        for place in range(k):
            chosen, highest = -1, -np.inf
            for j in range(count):
                if not free[j]:
                    continue
                value: Any = np.float64(scores[i, j])
                if diversity > 0:
                    relevance = (value - low) / width if width > 0 else 0.0
                    value = (1 - diversity) * relevance - (diversity * similarity[j] if place > 0 else 0.0)
                    value = np.floor(value * GRID + 0.5)
                if value > highest or (value == highest and items[i, j] < items[i, chosen]):
                    chosen, highest = j, value
            if chosen < 0:
                break
            item = items[i, chosen]
            top[i, place], best[i, place], free[chosen] = item, scores[i, chosen], False
            for j in range(count):
                if not free[j]:
                    continue
                if diversity > 0:
                    similarity[j] = max(similarity[j], _similarity(item, items[i, j], vectors, kinds))
                for g in range(len(limits)):
                    if codes[g, item] >= 0 and codes[g, items[i, j]] == codes[g, item]:
                        used[g, j] += 1
                        if used[g, j] >= limits[g]:
                            free[j] = False
    return top, best


@threaded()
def fill_rows(scores: Scores, top: Int32, best: Scores, codes: Int32, limits: Int32, n_codes: int) -> None:
    """Fill the lists ``top`` and their scores ``best`` (n, k) of :func:`choose_rows` in place, from all items.

    ``scores`` (n, n_items) are LOWEST for excluded items; ``codes`` (below ``n_codes``) and ``limits`` as in
    :func:`choose_rows`.
    """
    n, n_items = scores.shape
    for i in prange(n):
        used = np.zeros((len(limits), n_codes), np.int32)
        for place in range(top.shape[1]):
            item = top[i, place]
            if item == 0:
                highest = LOWEST
                for j in range(1, n_items):
                    if scores[i, j] > highest:
                        forbidden = False
                        for g in range(len(limits)):
                            forbidden |= codes[g, j] >= 0 and used[g, codes[g, j]] >= limits[g]
                        for before in range(place):
                            forbidden |= top[i, before] == j
                        if not forbidden:
                            highest, item = scores[i, j], j
                if item == 0:
                    break
                top[i, place], best[i, place] = item, highest
            for g in range(len(limits)):
                if codes[g, item] >= 0:
                    used[g, codes[g, item]] += 1
