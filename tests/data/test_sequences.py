"""The store: order, offsets, selection, round trip to disk."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.sequences import SequenceStore, ranges
from tests.raising import refused

TOKENS = np.array(["[PAD]", *(f"t{index}" for index in range(1, 10))])


def store_of(interactions: list[tuple[int, int, float]]) -> SequenceStore:
    users, items, times = zip(*interactions, strict=True) if interactions else ((), (), ())
    return SequenceStore.from_interactions(users, items, times, TOKENS, TOKENS)


INTERACTIONS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 4).map(float)), min_size=1, max_size=40
)


@given(INTERACTIONS)
@settings(max_examples=40, deadline=None)
def test_rows_equal_a_stable_sort_of_each_user(interactions: list[tuple[int, int, float]]) -> None:
    store = store_of(interactions)
    users = sorted({user for user, _, _ in interactions})
    assert store.users.tolist() == users
    for row, user in enumerate(users):
        own = sorted((entry for entry in interactions if entry[0] == user), key=lambda entry: entry[2])
        assert store.row(row).tolist() == [item for _, item, _ in own]


@given(INTERACTIONS, st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_select_equals_a_loop(interactions: list[tuple[int, int, float]], seed: int) -> None:
    store = store_of(interactions)
    keep = np.random.default_rng(seed).random(len(store.items)) < 0.5
    kept = store.select(keep)
    for row in range(store.n_rows):
        begin, end = store.offsets[row], store.offsets[row + 1]
        assert kept.row(row).tolist() == store.items[begin:end][keep[begin:end]].tolist()


@given(INTERACTIONS, st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3]))
@settings(max_examples=40, deadline=None)
def test_newest_counts_equal_a_loop(interactions: list[tuple[int, int, float]], seed: int, share: float) -> None:
    store = store_of(interactions)
    lengths = np.random.default_rng(seed).integers(0, store.lengths + 1)
    items, times = (part[store.prefix_index(lengths)] for part in (store.items, store.times))
    newest = times >= np.quantile(times, 1 - share) if len(times) else []
    expected = [items[newest].tolist().count(item) for item in range(store.n_items)]
    assert store.newest_counts(lengths, share).tolist() == expected


def test_times_closer_than_float32_can_tell_are_kept_apart() -> None:
    base = 1_400_000_000.0
    store = store_of([(1, 1, base + 3), (1, 2, base + 1), (1, 3, base + 2)])
    assert store.row(0).tolist() == [2, 3, 1]
    assert np.float32(base + 1) == np.float32(base + 3)  # what RecBole would sort by


def test_nan_time_is_refused() -> None:
    with refused(ValueError, "interactions", "finite"):
        store_of([(1, 1, float("nan")), (1, 2, 1.0)])


def test_save_and_load(tmp_path: Path) -> None:
    store = store_of([(1, 1, 0.0), (2, 3, 5.0), (1, 2, 1.0)])
    store.save(tmp_path / "store")
    again = SequenceStore.load(tmp_path / "store")
    assert again.fingerprint() == store.fingerprint()
    assert isinstance(again.items, np.memmap)
    with refused(FileNotFoundError, "meta.json"):
        SequenceStore.load(tmp_path)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=12))
def test_ranges(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    lengths = np.array([length for _, length in pairs], dtype=np.int64)
    expected = [value for start, length in pairs for value in range(start, start + length)]
    assert ranges(starts, lengths).tolist() == expected


def test_matrix_is_binary() -> None:
    store = store_of([(1, 1, 0.0), (1, 1, 1.0), (1, 2, 2.0), (3, 2, 0.0)])
    expected = np.zeros((2, 10))
    expected[0, [1, 2]] = expected[1, 2] = 1
    assert (store.matrix().toarray() == expected).all()
    assert store.matrix(np.array([1, 0])).sum() == 1
