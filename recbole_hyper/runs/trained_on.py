"""What a run was trained on, to find evaluation cases that a warm start has already learned.

A warm start keeps the interactions that the earlier run learned, also those that this one started from: the folder of
the earlier run may be gone when the next run starts or is evaluated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.ids import Ids
from recbole_hyper.runs.saved_data import DATA, EARLIER
from recbole_hyper.types import Cases, Int64, Split

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TrainedOn:
    """Interactions of ``store`` that a model was trained on; ``mask`` (nnz,) is True for them."""

    store: SequenceStore
    mask: Mask

    def contains(self, store: SequenceStore, rows: Int64, positions: Int64) -> Mask:
        """Return (n,) whether the interaction at a row and a position of ``store`` is one of them.

        It is if it has the same user, item and time.
        """
        n_items, index = len(store.item_tokens), store.offsets[rows] + positions
        users = Ids(store.user_tokens).find(self.store.user_tokens)[self.store.users]
        items = Ids(store.item_tokens).find(self.store.item_tokens)[self.store.items]
        known = np.repeat(users, self.store.lengths) * n_items + items
        wanted = store.users[rows] * n_items + store.items[index]
        # an index of all interactions would be large, and few are of the same user and item
        near = self.mask & np.isin(known, wanted)
        learned = pd.MultiIndex.from_arrays([known[near], self.store.times[near]])
        found: Mask = pd.MultiIndex.from_arrays([wanted, store.times[index]]).isin(learned)
        return found


def learned_by(folder: Path, split: Split, store: SequenceStore, *, refitted: bool) -> list[TrainedOn]:
    """Return what the run in ``folder`` on a ``split`` of ``store`` was trained on, and what it started from.

    ``refitted`` if its model was refit on train + validation.
    """
    mask = np.zeros(len(split.store.items), dtype=bool)
    lengths = split.refit_lengths if refitted and split.refit_lengths is not None else split.train_lengths
    mask[split.store.prefix_index(lengths)] = True
    own, file = TrainedOn(split.store, mask), folder / DATA / f"{EARLIER}.npy"
    before = np.load(file, allow_pickle=False) if file.is_file() else np.zeros(0, dtype=bool)
    return [own, TrainedOn(store, before)] if len(before) == len(store.items) else [own]


def among(learned: Sequence[TrainedOn], store: SequenceStore, rows: Int64, positions: Int64) -> Mask:
    """Return (n,) whether the interaction at a row and a position of ``store`` is one of the ``learned``, if any."""
    found: Mask = np.logical_or.reduce([part.contains(store, rows, positions) for part in learned])
    return found


def not_new(cases: Cases, learned: Sequence[TrainedOn], *, timed: bool) -> int:
    """Return the number of cases that a model trained on ``learned`` should not be tested on.

    Their target is among ``learned``; or, if ``timed``, something in ``learned`` is newer.
    """
    if not learned or not len(cases):
        return 0
    known = among(learned, cases.store, cases.rows, cases.target_positions)
    if timed:
        known |= cases.times < max(part.store.times[part.mask].max(initial=-np.inf) for part in learned)
    return int(known.sum())
