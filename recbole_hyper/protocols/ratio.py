"""RecBole's split by ratio of each user's interactions, in time order."""

from __future__ import annotations

import numpy as np

from recbole_hyper.components import component
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.types import Cases, Int64, Split


def part_sizes(totals: Int64, ratios: list[float]) -> Int64:
    """Return the (U, parts) sizes that RecBole gives parts of ``totals`` rows: all but the first rounded down.

    A part that would be empty although its ratio is positive gets one row, from the last part on, while the first
    part keeps more than one.
    """
    shares = np.asarray(ratios, dtype=np.float64) / np.sum(ratios)
    exact = totals[:, None] * shares
    sizes = exact.astype(np.int64)
    sizes[:, 0] = totals - sizes[:, 1:].sum(axis=1)
    for part in range(len(ratios) - 1, 0, -1):
        grown = (sizes[:, 0] > 1) & (exact[:, part] > 0) & (exact[:, part] < 1)
        sizes[grown, part] += 1
        sizes[grown, 0] -= 1
    return sizes


@component("protocols", "RS")
class Ratio(Protocol):
    """``{RS: [0.8, 0.1, 0.1]}``: shares of each user's targets. A test history holds that user's earlier test items."""

    title = "ratio of each user's interactions"

    def split(self, store: SequenceStore) -> Split:
        """Return the split; see the class."""
        ratios = self.argument
        if not (
            isinstance(ratios, list | tuple)
            and len(ratios) == 3
            and all(value >= 0 for value in ratios)
            and sum(ratios)
        ):
            raise ProtocolError(f"split {{RS: {ratios!r}}}: three shares such as [0.8, 0.1, 0.1] are expected")
        # RecBole splits (prefix, target) rows, of which a user has one less than interactions
        sizes = part_sizes(np.maximum(store.lengths - 1, 0), list(ratios))
        train_lengths = np.where(store.lengths > 0, sizes[:, 0] + 1, 0)
        rows, positions = store.row_of, store.positions
        valid_end = train_lengths + sizes[:, 1]
        is_valid = (positions >= train_lengths[rows]) & (positions < valid_end[rows])
        is_test = positions >= valid_end[rows]
        for name, share, asked in (("validation", ratios[1], is_valid), ("test", ratios[2], is_test)):
            if share > 0 and not asked.any():
                raise ProtocolError(f"split {{RS: {ratios!r}}}: the {name} part is empty; histories are too short")
        return Split(
            store,
            train_lengths,
            Cases.build(store, rows[is_valid], positions[is_valid]),
            Cases.build(store, rows[is_test], positions[is_test]),
            refit_lengths=valid_end if self.refit else None,
            counts={"users": store.n_rows, "users with 1 interaction": int((store.lengths == 1).sum())},
        )
