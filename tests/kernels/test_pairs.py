"""Loops over (user, item) pairs against numpy's sorts and plain lists."""

import numpy as np
import pytest

from recbole_hyper.kernels import pairs
from tests.reference import filters

USERS, ITEMS, ROWS = 12, 9, 150


def random_rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    users, items, times = (generator.integers(0, high, ROWS) for high in (USERS, ITEMS, 40))
    return users.astype(np.int32), items.astype(np.int32), times, generator.random(ROWS)


def test_counts() -> None:
    users = random_rows(0)[0]
    np.testing.assert_array_equal(pairs.counts(users, USERS + 3), np.bincount(users, minlength=USERS + 3))


@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_grouped_by_user_and_sorted_by_time(seed: int, rated: bool) -> None:
    users, items, times, ratings = random_rows(seed)
    ratings = ratings if rated else ratings[:0]
    columns = (times, items, ratings)
    grouped = tuple(np.empty_like(column) for column in columns)
    starts = np.concatenate(([0], np.bincount(users, minlength=USERS).cumsum()))
    for low, high in ((0, 5), (5, USERS)):
        pairs.group(users, columns, starts, low, high, grouped)
    order = np.lexsort((times, users))  # stable, so ties keep their order
    for column, found in zip(columns, grouped, strict=True):
        np.testing.assert_array_equal(found, column[order] if len(column) else column)


@pytest.mark.parametrize("seed", range(3))
def test_repeats(seed: int) -> None:
    users, items, *_ = random_rows(seed)
    users, items = np.sort(users), items
    rows = list(zip(users.tolist(), items.tolist(), strict=True))
    for backward, keep in ((False, "first"), (True, "last")):
        found = pairs.repeated(users, items, ITEMS, backward)
        assert np.flatnonzero(found).tolist() == filters.repeated(rows, keep)


@pytest.mark.parametrize(("min_user", "min_item"), [(0, 0), (10, 17), (14, 10), (1000, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_core(seed: int, min_user: int, min_item: int) -> None:
    users, items, *_ = random_rows(seed)
    counts = (pairs.counts(users, USERS), pairs.counts(items, ITEMS))
    alive = pairs.core(users, items, *counts, min_user, min_item)
    rows = list(zip(users.tolist(), items.tolist(), strict=True))
    assert np.flatnonzero(alive).tolist() == filters.k_core(rows, min_user, min_item)
