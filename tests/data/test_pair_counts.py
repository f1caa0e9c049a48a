"""Counts of neighbouring items: against a loop, with any memory budget, and the cut to the strongest."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data import pair_counts as module
from recbole_hyper.data.pair_counts import Side, pair_counts, strongest
from recbole_hyper.data.sequences import SequenceStore
from tests.reference import memory as reference

N_ITEMS = 9
Rows = list[list[int]]
rows = st.lists(st.lists(st.integers(1, N_ITEMS - 1), min_size=1, max_size=7), min_size=1, max_size=6)


def store_of(sequences: Rows, n_items: int = N_ITEMS) -> SequenceStore:
    """Return a store with these rows, users from 1."""
    users = np.repeat(np.arange(1, len(sequences) + 1), [len(row) for row in sequences])
    items = np.concatenate([np.asarray(row) for row in sequences])
    names = [f"u{user}" for user in range(len(sequences) + 1)], [f"i{item}" for item in range(n_items)]
    return SequenceStore.from_interactions(users, items, np.arange(len(items)), *names)


SIDES: tuple[Side, ...] = ("both", "after", "before")


@given(sequences=rows, window=st.integers(1, 5), budget=st.sampled_from([1, 3000, 2**30]), side=st.sampled_from(SIDES))
@settings(max_examples=30, deadline=None)
def test_equals_the_loop_within_any_memory(sequences: Rows, window: int, budget: int, side: Side) -> None:
    store = store_of(sequences)
    options = {"window": window, "neighbours": N_ITEMS, "memory_budget": budget}
    counts, totals = pair_counts(store, store.lengths, side=side, **options)
    expected = np.asarray(reference.counts(sequences, N_ITEMS, window, side))
    np.testing.assert_allclose(counts.toarray(), expected, rtol=1e-6)
    np.testing.assert_allclose(totals, expected.sum(axis=1), rtol=1e-6)
    assert counts.dtype == np.float32
    assert counts.has_sorted_indices


@given(sequences=rows, neighbours=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_keeps_the_strongest_neighbours_and_the_whole_sum(sequences: Rows, neighbours: int) -> None:
    store = store_of(sequences)
    counts, totals = pair_counts(store, store.lengths, window=3, neighbours=neighbours)
    whole = reference.counts(sequences, N_ITEMS, 3)
    np.testing.assert_allclose(counts.toarray(), reference.cut(whole, neighbours), rtol=1e-6)
    np.testing.assert_allclose(totals, np.asarray(whole).sum(axis=1), rtol=1e-6)


def test_the_strongest_neighbours_with_ties_in_item_order() -> None:
    counts = scipy.sparse.csr_matrix([[0, 2, 1, 2, 3, 2], [0, 0, 0, 0, 0, 0]])
    assert strongest(counts, 3).toarray().tolist() == [[0, 2, 0, 2, 3, 0], [0, 0, 0, 0, 0, 0]]


def test_reads_the_training_part_alone() -> None:
    store = store_of([[1, 2, 3], [2, 1, 4]])
    counts, _ = pair_counts(store, np.array([2, 0]), window=5, neighbours=5)
    assert {(int(a), int(b)) for a, b in zip(*counts.nonzero(), strict=True)} == {(1, 2), (2, 1)}


def test_keys_of_a_large_catalogue_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a smaller range of numbers a block has fewer rows, and the counts are the same."""
    sequences = [[1, 2, 3, 1], [3, 2], [2, 5, 6], [6, 5]]
    store = store_of(sequences)
    expected, _ = pair_counts(store, store.lengths, window=2, neighbours=9)
    monkeypatch.setattr(module, "_BITS_OF_A_KEY", 2 * (N_ITEMS - 1).bit_length() + 1)
    found, _ = pair_counts(store, store.lengths, window=2, neighbours=9)
    assert (found != expected).nnz == 0
