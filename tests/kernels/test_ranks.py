"""The one-pass kernel against the torch path, on every kind of row that makes them differ if anything does."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import NonFiniteScoreError, rank_cases
from recbole_hyper.kernels.ranks import _BLOCK
from recbole_hyper.types import Cases
from tests.raising import refused

pytestmark = pytest.mark.usefixtures("kernels")


def cases_of(generator: np.random.Generator, n_items: int, count: int) -> Cases:
    rows = [generator.integers(1, n_items, generator.integers(2, 9)).tolist() for _ in range(count)]
    users = [user for user, row in enumerate(rows, 1) for _ in row]
    items = [item for row in rows for item in row]
    tokens = ["[PAD]", *map(str, range(1, n_items))]
    store = SequenceStore.from_interactions(users, items, range(len(items)), ["[PAD]", *map(str, range(count))], tokens)
    return Cases.build(store, np.arange(count), store.lengths - 1)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([12, _BLOCK - 1, _BLOCK, _BLOCK + 1, 3 * _BLOCK + 7]),
    st.integers(1, 11),
    st.sampled_from([2, 40, 10**9]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_kernel_and_torch_agree(seed: int, n_items: int, k: int, levels: int, exclude_seen: bool) -> None:
    generator = np.random.default_rng(seed)
    cases = cases_of(generator, n_items, 7)
    # few levels make many ties; the values are exact in float32
    table = (generator.integers(0, levels, (7, n_items)) - levels // 2).astype(np.float32)
    catalogue = generator.random(n_items) < 0.8
    outcomes = []
    for dtype in (torch.float32, torch.float64):  # float64 takes the torch path
        found = rank_cases(
            lambda part, dtype=dtype: torch.tensor(table[part.rows], dtype=dtype),
            cases,
            n_items=n_items,
            k=k,
            exclude_seen=exclude_seen,
            catalogue=catalogue,
            memory_budget=3 * n_items * 5,
        )
        outcomes.append(found)
    for name in ("ranks", "n_candidates", "top_items"):
        np.testing.assert_array_equal(getattr(outcomes[0], name), getattr(outcomes[1], name), err_msg=name)
    assert outcomes[0].tied == outcomes[1].tied


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["first", "last", "history", "hidden", "target"])
def test_a_score_that_is_no_number_is_found_wherever_it_is(value: float, where: str) -> None:
    generator = np.random.default_rng(0)
    n_items = _BLOCK + 3
    cases = cases_of(generator, n_items, 3)
    table = generator.random((3, n_items)).astype(np.float32)
    catalogue = np.ones(n_items, dtype=bool)
    catalogue[7] = False
    table[1, {"first": 1, "last": n_items - 1, "history": cases.store.row(1)[0], "hidden": 7,
              "target": cases.targets[1]}[where]] = value  # fmt: skip
    with refused(NonFiniteScoreError, "'1'"):
        rank_cases(lambda part: torch.from_numpy(table[part.rows]), cases, n_items=n_items, k=2, catalogue=catalogue)


def test_padding_may_hold_anything() -> None:
    cases = cases_of(np.random.default_rng(0), 9, 3)
    table = np.random.default_rng(1).random((3, 9)).astype(np.float32)
    clean = rank_cases(lambda part: torch.from_numpy(table[part.rows]), cases, n_items=9, k=2)
    table[:, 0] = np.nan
    dirty = rank_cases(lambda part: torch.from_numpy(table[part.rows]), cases, n_items=9, k=2)
    np.testing.assert_array_equal(clean.ranks, dirty.ranks)
    np.testing.assert_array_equal(clean.top_items, dirty.top_items)
