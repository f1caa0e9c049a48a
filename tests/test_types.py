"""Histories and cases as pointers into a store, against loops over the rows."""

import numpy as np
import pytest

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases, Prefixes, Split


@pytest.fixture
def store() -> SequenceStore:
    generator = np.random.default_rng(0)
    users, items = np.repeat(np.arange(1, 7), 5), generator.integers(1, 10, 30)
    tokens = ["[PAD]", *map(str, range(9))]
    return SequenceStore.from_interactions(users, items, generator.permutation(30), tokens[:7], tokens)


@pytest.fixture
def cases(store: SequenceStore) -> Cases:
    prefixes = Prefixes.build(store, [0, 2, 2, 5], [4, 2, 3, 1])
    return Cases(
        store, prefixes.rows, prefixes.ends, prefixes.starts, candidates=np.arange(8, dtype=np.int32).reshape(4, 2)
    )


def test_histories_begin_at_0_unless_said_otherwise(store: SequenceStore) -> None:
    assert Prefixes.build(store, [1, 3], [2, 4]).starts.tolist() == [0, 0]
    built = Prefixes.build(store, [1, 3], [2, 4], [1, 0])
    assert (built.rows.tolist(), built.ends.tolist(), built.starts.tolist()) == ([1, 3], [2, 4], [1, 0])
    assert built.rows.dtype == np.int64
    assert len(built) == 2


def test_targets_and_times(store: SequenceStore, cases: Cases) -> None:
    for number, (row, end) in enumerate(zip(cases.rows, cases.ends, strict=True)):
        begin = int(store.offsets[row])
        assert cases.targets[number] == store.row(row)[end] == store.items[begin + end]
        assert cases.times[number] == store.times[begin + end]
    later = Cases(store, cases.rows, cases.ends, cases.starts, places=np.array([4, 3, 4, 2]))
    expected = [store.row(row)[place] for row, place in zip(later.rows, later.places, strict=True)]
    assert later.targets.tolist() == expected


@pytest.mark.parametrize("part", [slice(1, 3), np.array([3, 0]), slice(0, 0)])
def test_a_part_has_all_columns(cases: Cases, part: slice | np.ndarray) -> None:
    chosen = cases[part]
    for name in ("rows", "ends", "starts", "candidates", "targets"):
        np.testing.assert_array_equal(getattr(chosen, name), getattr(cases, name)[part])
    assert chosen.places is None


def test_a_split_without_test(store: SequenceStore, cases: Cases) -> None:
    known, valid = np.arange(store.n_items) > 0, np.arange(store.n_items) > 2
    split = Split(store, store.lengths, cases, cases[1:], store.lengths, known, valid)
    alone = split.without_test()
    assert (len(alone.test), alone.refit_lengths, len(alone.valid)) == (0, None, 4)
    assert len(split.test) == 3
    assert split.candidates("valid") is valid
    assert split.candidates("test") is known
    assert Split(store, store.lengths, cases, cases, catalogue=known).candidates("valid") is known
    assert Split(store, store.lengths, cases, cases).candidates("test") is None
