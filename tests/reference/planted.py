"""Datasets with a pattern that a model must learn, and the answers that the pattern gives; plain Python and numpy."""

from __future__ import annotations

import numpy as np

ITEMS = 60
NOISE = 0.05
BLOCK = 10


def successors(items: int = ITEMS, seed: int = 7) -> dict[str, str]:
    """Return what follows each item: one circle through all items, in an order that their names do not tell."""
    order = np.random.default_rng(seed).permutation(items)
    return {f"i{item}": f"i{following}" for item, following in zip(order, np.roll(order, -1), strict=True)}


def walk_rows(users: int = 120, length: int = 9, noise: float = NOISE, seed: int = 8) -> list[tuple]:
    """Return interactions of users who walk along :func:`successors` from any item; ``noise`` of the steps go anywhere.

    The newest item alone decides the next, so whatever reads another place of the history does not learn it.
    """
    generator, follows = np.random.default_rng(seed), successors()
    rows = []
    for user in range(users):
        item = f"i{generator.integers(ITEMS)}"
        for step in range(length):
            rows.append((f"u{user}", item, 1000 + step))
            item = follows[item] if generator.random() >= noise else f"i{generator.integers(ITEMS)}"
    return rows


def block_of(item: str) -> int:
    """Return the block of an item of :func:`block_rows`."""
    return int(item[1:]) % (ITEMS // BLOCK)


def block_rows(users: int = 120, length: int = 7, seed: int = 9) -> list[tuple]:
    """Return interactions of users who take distinct items of one block of ten, in any order, the first from elsewhere.

    Which item comes next is open, its block is not: a list of the items left in the block holds it.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        block = user % (ITEMS // BLOCK)
        inside = generator.permutation([item for item in range(ITEMS) if block_of(f"i{item}") == block])
        outside = generator.choice([item for item in range(ITEMS) if block_of(f"i{item}") != block])
        for step, item in enumerate([outside, *inside[: length - 1]]):
            rows.append((f"u{user}", f"i{item}", 1000 + step))
    return rows
