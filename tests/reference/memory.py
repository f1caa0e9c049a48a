"""The item-to-item memory as plain loops over lists, for comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[int]]


def counts(rows: Rows, n_items: int, window: int, side: str = "both") -> list[list[float]]:
    """Return C (n_items, n_items): over the rows, 1 / sqrt of the smallest distance of two items within the window.

    The second item is after or before the first one, or on any side of it.
    """
    found = [[0.0] * n_items for _ in range(n_items)]
    for row in rows:
        for first in set(row):
            for second in set(row) - {first}:
                steps = [j - i for i, a in enumerate(row) for j, b in enumerate(row) if (a, b) == (first, second)]
                allowed = [abs(one) for one in steps if side == "both" or (one > 0) == (side == "after")]
                distance = min(allowed, default=window + 1)
                if distance <= window:
                    found[first][second] += 1 / math.sqrt(distance)
    return found


def cut(matrix: list[list[float]], neighbours: int) -> list[list[float]]:
    """Return the matrix with the largest entries of each row alone, equal ones in the order of their columns."""
    found = []
    for row in matrix:
        order = sorted(range(len(row)), key=lambda item, row=row: (-round(row[item], 9), item))[:neighbours]
        found.append([value if item in order else 0.0 for item, value in enumerate(row)])
    return found


def memory(recent: Sequence[int], matrix: list[list[float]], decay: float) -> list[float]:
    """Return m of every item: the mean of the rows of the ``recent`` items, newest first, that were counted."""
    total, found = 0.0, [0.0] * len(matrix)
    for age, item in enumerate(recent):
        n = sum(matrix[item])
        if n:
            weight = decay**age * n**0.5
            total += weight
            found = [value + weight * count / n for value, count in zip(found, matrix[item], strict=True)]
    return [value / total for value in found] if total else found


def mixture(network: Sequence[float], remembered: Sequence[float], share: float) -> list[float]:
    """Return p of every item: the network's alone where nothing is remembered."""
    share = share if any(remembered) else 0.0
    return [(1 - share) * a + share * b for a, b in zip(network, remembered, strict=True)]


def gain(scores: Sequence[float], target: int, left_out: Sequence[int]) -> float:
    """Return NDCG@10 of one case; padding and the items left out are no candidates."""
    if target in left_out:
        return 0.0
    rank = 1 + sum(score > scores[target] for item, score in enumerate(scores) if item not in (0, target, *left_out))
    return 1 / math.log2(rank + 1) if rank <= 10 else 0.0
