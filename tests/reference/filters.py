"""Interaction filters as plain loops over lists, for comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Pair = tuple[int, int]


def k_core(pairs: list[Pair], min_user: int, min_item: int) -> list[int]:
    """Indices left after removing one row at a time until every user and item has enough rows."""
    left = list(range(len(pairs)))
    while True:
        users = Counter(pairs[n][0] for n in left)
        items = Counter(pairs[n][1] for n in left)
        bad = [n for n in left if users[pairs[n][0]] < min_user or items[pairs[n][1]] < min_item]
        if not bad:
            return left
        left.remove(bad[0])


def single_pass(pairs: list[Pair], min_user: int, min_item: int) -> list[int]:
    """Indices left after dropping rare items once, then users with few of the remaining rows once."""
    items = Counter(item for _, item in pairs)
    left = [n for n, (_, item) in enumerate(pairs) if items[item] >= min_item]
    users = Counter(pairs[n][0] for n in left)
    return [n for n in left if users[pairs[n][0]] >= min_user]


def distinct_single_pass(pairs: list[Pair], min_user: int, min_item: int) -> list[int]:
    """The SCE paper's filter: items by their distinct users, then users by their distinct items."""
    left = [n for n, (_, item) in enumerate(pairs) if len({u for u, i in pairs if i == item}) >= min_item]
    kept = [pairs[n] for n in left]
    return [n for n in left if len({i for u, i in kept if u == pairs[n][0]}) >= min_user]


def repeated(pairs: list[Pair], keep: str) -> list[int]:
    """Indices of the rows to drop so that only the first or last row of each pair is left."""
    order = list(range(len(pairs))) if keep == "first" else list(range(len(pairs)))[::-1]
    seen: set[Pair] = set()
    dropped = []
    for n in order:
        if pairs[n] in seen:
            dropped.append(n)
        seen.add(pairs[n])
    return sorted(dropped)


def bought(rows: Sequence[tuple[int, int, int, int]]) -> list[bool]:
    """Return which of the rows (user, item, time, quantity) are purchases of which something is left after returns."""
    left = [0] * len(rows)
    stacks: dict[tuple[int, int], list[int]] = {}
    for row in sorted(range(len(rows)), key=lambda row: rows[row][2]):
        user, item, _, quantity = rows[row]
        stack = stacks.setdefault((user, item), [])
        if quantity > 0:
            left[row] = quantity
            stack.append(row)
        while quantity < 0 and stack:
            given = min(left[stack[-1]], -quantity)
            left[stack[-1]] -= given
            quantity += given
            if not left[stack[-1]]:
                stack.pop()
    return [quantity > 0 for quantity in left]
