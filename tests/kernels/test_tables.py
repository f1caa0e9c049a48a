"""Pairs against numpy's sorts and plain lists."""

import numpy as np
import pytest

from recbole_hyper.kernels import tables
from tests.reference import filters

USERS, ITEMS, ROWS = 12, 9, 150


def random_rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    users, items, times = (generator.integers(0, high, ROWS) for high in (USERS, ITEMS, 40))
    return users.astype(np.int32), items.astype(np.int32), times, generator.random(ROWS)


@pytest.mark.parametrize(("min_user", "min_item"), [(0, 0), (7, 14), (12, 9), (14, 10)])
@pytest.mark.parametrize("seed", range(3))
def test_core(seed: int, min_user: int, min_item: int) -> None:
    users, items, *_ = random_rows(seed)
    alive = tables.core(users, items, USERS, ITEMS, min_user, min_item)
    rows = list(zip(users.tolist(), items.tolist(), strict=True))
    assert np.flatnonzero(alive).tolist() == filters.k_core(rows, min_user, min_item)
