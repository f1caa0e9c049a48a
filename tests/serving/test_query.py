"""Queries, and the search of whole rows: what a stable sort gives, ties, exclusions and faults."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.errors import NonFiniteScoreError
from recbole_hyper.serving.query import Query, array_digest, best_items, joined, plain_query
from tests.raising import refused


def sorted_items(
    scores: np.ndarray, k: int, lists: list[list[int]], hidden: np.ndarray, boost: np.ndarray
) -> tuple[list[list[int]], list[list[float]]]:
    """Python's stable sort, a row at a time."""
    items, values = [], []
    for row, left_out in zip(scores + boost, lists, strict=True):
        allowed = [item for item in sorted({*range(1, len(row))} - {*left_out}) if not hidden[item]]
        best = sorted(allowed, key=lambda item, row=row: -row[item])[:k]  # type: ignore[misc]
        items.append(best + [0] * (k - len(best)))
        values.append([float(row[item]) for item in best] + [-np.inf] * (k - len(best)))
    return items, values


@settings(deadline=None, max_examples=40)  # the first call compiles
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
    for kernel_from in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("recbole_hyper.serving.query.KERNEL_FROM", kernel_from)
            items, values = best_items(scores + boost, k, offsets=offsets, excluded=excluded, hidden=hidden)
        assert items.tolist() == wanted[0]
        assert values.tolist() == wanted[1]


@pytest.mark.usefixtures("kernels")
def test_the_kernel_finds_a_score_that_is_not_finite() -> None:
    test_only_searched_items_need_a_finite_score()


def test_only_searched_items_need_a_finite_score() -> None:
    scores = np.ones((3, 5), dtype=np.float32)
    scores[:, 0] = np.nan
    scores[1, 2] = np.inf
    for bad in (np.nan, np.inf, -np.inf):
        scores[1, 2] = bad
        with refused(NonFiniteScoreError, "scores", "finite"):
            best_items(scores.copy(), 2)
    assert best_items(scores.copy(), 2, hidden=np.arange(5) == 2)[0].tolist() == [[1, 3]] * 3


HISTORIES = [[3, 1], [], [2, 2, 5], [4]]


def items_of(query: Query) -> list[list[int]]:
    return [query.items[query.offsets[row] : query.offsets[row + 1]].tolist() for row in range(len(query))]


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([3, 0, 0]), np.array([], dtype=np.int64)])
def test_rows_of_a_query_are_its_histories(rows: slice | np.ndarray) -> None:
    times = [[float(10 * row + at) for at in range(len(items))] for row, items in enumerate(HISTORIES)]
    part = plain_query(HISTORIES, times)[rows]
    numbers = np.arange(len(HISTORIES))[rows].tolist()
    assert items_of(part) == [HISTORIES[row] for row in numbers]
    assert part.times is not None
    assert part.times.tolist() == [time for row in numbers for time in times[row]]
    assert (part.names.tolist(), part.warm.tolist()) == (numbers, [bool(HISTORIES[row]) for row in numbers])


def test_joined_queries_are_one_after_another() -> None:
    query = joined([plain_query(HISTORIES), plain_query(HISTORIES[:1], [[1.0, 2.0]])])
    assert items_of(query) == [*HISTORIES, HISTORIES[0]]
    assert query.names.tolist() == [0, 1, 2, 3, 4]
    assert query.times is not None
    assert query.times.tolist() == [0.0] * (len(query.items) - 2) + [1.0, 2.0]  # the others' are equal


def test_a_digest_changes_with_every_field() -> None:
    query = plain_query(HISTORIES)
    changed = [
        replace(query, items=query.items[::-1].copy()),
        replace(query, names=query.names.astype(str).astype(object)),
        replace(query, unknown_items=1),
        replace(query, times=np.zeros(len(query.items))),
        replace(query, warm=~query.warm),
    ]
    digests = [array_digest(one) for one in (query, *changed)]
    assert len(set(digests)) == len(digests)
    assert array_digest(plain_query(HISTORIES)) == digests[0]


def test_cold_histories_are_counted_and_named() -> None:
    plain_query(HISTORIES[:1]).require_warm()
    with refused(ValueError, "histories", "first"):
        plain_query(HISTORIES).require_warm()
