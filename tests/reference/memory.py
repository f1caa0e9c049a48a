"""The item-to-item memory as plain loops over lists, for comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[int]]


def counts(rows: Rows, n_items: int, window: int) -> list[list[float]]:
    """Return C (n_items, n_items): over the rows, 1 / sqrt of the smallest distance of two items within the window."""
    found = [[0.0] * n_items for _ in range(n_items)]
    for row in rows:
        for first in set(row):
            for second in set(row) - {first}:
                distance = min(
                    abs(i - j) for i, a in enumerate(row) for j, b in enumerate(row) if (a, b) == (first, second)
                )
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


def mixture(
    network: Sequence[float], recent: Sequence[int], matrix: list[list[float]], gate: float, age: Sequence[float],
    evidence: float,
) -> list[float]:  # fmt: skip
    """Return p of every item: of the network, and of each of the ``recent`` items, newest first, that was counted."""
    votes, shares = [gate], [list(network)]
    for k, item in enumerate(recent):
        total = sum(matrix[item])
        if total > 1e-3:
            votes.append(age[k] + evidence * math.log(total))
            shares.append([value / total for value in matrix[item]])
    top = max(votes)
    weights = [math.exp(vote - top) for vote in votes]
    return [
        sum(weight * share[item] for weight, share in zip(weights, shares, strict=True)) / sum(weights)
        for item in range(len(network))
    ]
