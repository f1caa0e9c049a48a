"""The search of whole rows: what a stable sort gives, ties, exclusions and faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.errors import NonFiniteScoreError
from recbole_hyper.serving.query import best_items


def sorted_items(
    scores: np.ndarray, k: int, lists: list[list[int]], hidden: np.ndarray, boost: np.ndarray
) -> tuple[list[list[int]], list[list[float]]]:
    """Python's stable sort, a row at a time."""
    items, values = [], []
    for row, left_out in zip(scores + boost, lists, strict=True):
        allowed = [item for item in range(1, len(row)) if item not in left_out and not hidden[item]]
        best = sorted(allowed, key=lambda item, row=row: -row[item])[:k]  # type: ignore[misc]
        items.append(best + [0] * (k - len(best)))
        values.append([float(row[item]) for item in best] + [-np.inf] * (k - len(best)))
    return items, values


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**32 - 1), st.integers(2, 1400), st.integers(1, 12))
def test_search_is_a_stable_sort(seed: int, n_items: int, k: int) -> None:
    generator = np.random.default_rng(seed)
    k = min(k, n_items - 1)
    # few different values, so that there are ties
    scores = generator.integers(-5, 5, (3, n_items)).astype(np.float32)
    lists = [generator.integers(0, n_items, count).tolist() for count in (0, 5, 2 * n_items)]
    hidden, boost = generator.random(n_items) < 0.3, generator.integers(-2, 3, n_items).astype(np.float32)
    wanted = sorted_items(scores, k, lists, hidden, boost)
    offsets = np.cumsum([0, *map(len, lists)])
    excluded = np.concatenate(lists).astype(np.int64)
    items, values = best_items(scores + boost, k, offsets=offsets, excluded=excluded, hidden=hidden)
    assert items.tolist() == wanted[0]
    assert values.tolist() == wanted[1]


def test_only_items_that_may_be_found_must_have_a_finite_score() -> None:
    scores = np.ones((3, 5), dtype=np.float32)
    scores[:, 0] = np.nan
    scores[1, 2] = np.inf
    for bad in (np.nan, np.inf, -np.inf):
        scores[1, 2] = bad
        with pytest.raises(NonFiniteScoreError, match=r"1 of 3 rows have scores that are not finite \(first: row 1\)"):
            best_items(scores.copy(), 2)
    assert best_items(scores.copy(), 2, hidden=np.arange(5) == 2)[0].tolist() == [[1, 3]] * 3
