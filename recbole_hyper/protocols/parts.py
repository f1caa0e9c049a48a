"""Splits at random or from files: each row has its training, validation and test part one after another."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases, Int64, Split


def dealt(
    store: SequenceStore, sizes: Callable[[Int64], Int64], seed: int, *, by_user: bool
) -> tuple[SequenceStore, Int64]:
    """Deal the interactions to training, validation and test in a random order, RecBole's ``order: RO``.

    ``sizes`` maps numbers of interactions (n,) to sizes of the parts (n, 3): for each user, or without ``by_user`` for
    all users together. Returns the sequences with the parts of a row one after another, each in time order, and the
    sizes (U, 4) of these parts, as ``SequenceStore.parts``.
    """
    rank = np.random.default_rng([seed, 0x0D0E]).permutation(len(store.items))
    order = np.lexsort((rank, store.row_of)) if by_user else np.argsort(rank)
    taken = sizes(store.lengths if by_user else np.array([len(rank)]))
    numbers = np.empty(len(rank), dtype=np.int64)
    numbers[order] = np.repeat(np.tile(np.arange(3), len(taken)), taken.ravel())
    stable = np.lexsort((numbers, store.row_of))
    parts = np.bincount(store.row_of * 4 + 1 + numbers, minlength=4 * store.n_rows).reshape(-1, 4)
    return dataclasses.replace(store, items=store.items[stable], times=store.times[stable], parts=None), parts


def split_of_parts(store: SequenceStore, parts: Int64, *, refit: bool, successive: bool = False) -> Split:
    """Return the split of rows that have training, validation and test one after another, of sizes ``parts`` (U, 4).

    With ``successive`` a case has the earlier cases of its part in its history. Cases without any earlier interaction
    are dropped and counted. Targets older than the training part are counted.
    """
    ends = np.cumsum(parts, axis=1)
    counts: dict[str, Any] = {"users": store.n_rows}
    cases = []
    rows, positions = store.row_of, store.positions
    for number, name in ((2, "validation"), (3, "test")):
        inside = (positions >= ends[rows, number - 1]) & (positions < ends[rows, number])
        users, places = rows[inside], positions[inside]
        known = places if successive else ends[users, number - 1]
        cold = known == 0
        counts[f"{name} cases of users without an earlier interaction, left out"] = int(cold.sum())
        users, known, places = users[~cold], known[~cold], places[~cold]
        cases.append(Cases(store, users, known, np.zeros_like(users), places=None if successive else places))
    train_lengths = np.where(parts[:, 1] > 0, ends[:, 1], 0)
    refit_lengths = np.where(parts[:, 1:3].any(axis=1), ends[:, 2], 0) if refit else None
    trained = last_times(store, train_lengths)
    for name, part in zip(("validation", "test"), cases, strict=True):
        counts[f"{name} targets older than their user's training part"] = int((part.times < trained[part.rows]).sum())
    return Split(store, train_lengths, cases[0], cases[1], refit_lengths=refit_lengths, counts=counts)


def distinct(cases: Cases) -> tuple[Cases, int]:
    """Return the first case of each row and target, and how many others there were."""
    _, first = np.unique(cases.rows * cases.store.n_items + cases.targets, return_index=True)
    kept = np.sort(first)
    return cases[kept], len(cases) - len(kept)


def count_by_row(store: SequenceStore, mask: npt.NDArray[np.bool_]) -> Int64:
    """Return the number (U,) of interactions of each row where ``mask`` is True."""
    return np.bincount(store.row_of[mask], minlength=store.n_rows).astype(np.int64)


def last_times(store: SequenceStore, lengths: Int64) -> npt.NDArray[np.float64]:
    """Return the time (U,) of the last of the first ``lengths[row]`` interactions, -inf for a length of 0."""
    last = np.full(store.n_rows, -np.inf)
    rows = np.flatnonzero(lengths > 0)
    last[rows] = store.times[store.offsets[rows] + lengths[rows] - 1]
    return last
