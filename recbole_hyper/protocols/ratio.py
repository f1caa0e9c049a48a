"""RecBole's split by ratio of the interactions of each user, or of all users, in time order."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import is_number
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.registry import register
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


def checked_shares(name: str, argument: Any) -> list[float]:
    """Return the shares of training, validation and test that a split has; ProtocolError for anything else."""
    right = isinstance(argument, list | tuple) and len(argument) == 3
    if not (right and all(is_number(share) and share >= 0 for share in argument) and sum(argument)):
        raise ProtocolError(f"split {{{name}: {argument!r}}}: three shares such as [0.8, 0.1, 0.1] are expected")
    return list(argument)


def cut(
    name: str, protocol: Protocol, store: SequenceStore, train_lengths: Int64, valid_end: Int64, counts: dict[str, Any]
) -> Split:
    """Return the split whose training and validation parts end at the positions given for each row (U,).

    The first interaction of a user is no target, as RecBole splits (prefix, target) rows. ProtocolError where a part
    with a positive share is empty.
    """
    rows, positions = store.row_of, store.positions
    is_valid = (positions >= train_lengths[rows]) & (positions < valid_end[rows]) & (positions > 0)
    is_test = (positions >= valid_end[rows]) & (positions > 0)
    for part, share, chosen in (
        ("validation", protocol.argument[1], is_valid),
        ("test", protocol.argument[2], is_test),
    ):
        if share > 0 and not chosen.any():
            raise ProtocolError(
                f"split {{{name}: {protocol.argument!r}}}: the {part} part is empty; histories are too short, or its "
                "share is too small"
            )
    return Split(
        store,
        train_lengths,
        Cases.build(store, rows[is_valid], positions[is_valid]),
        Cases.build(store, rows[is_test], positions[is_test]),
        refit_lengths=valid_end if protocol.refit else None,
        counts=counts,
    )


@register("protocols", "RS")
class Ratio(Protocol):
    """``{RS: [0.8, 0.1, 0.1]}``: shares of each user's targets. A test history holds that user's earlier test items.

    With ``group_by: none`` the targets of all users together are split in time order, equal times by user.
    """

    title, by_rows = "ratio of each user's interactions", True

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        super().__init__(argument, successive=successive, refit=refit, by_user=by_user)
        if not by_user:
            self.title = "ratio of all interactions"

    def sizes(self, totals: Int64) -> Int64:
        return part_sizes(totals, checked_shares("RS", self.argument))

    def split(self, store: SequenceStore) -> Split:
        if self.by_user:
            sizes = self.sizes(np.maximum(store.lengths - 1, 0))
            train_lengths = np.where(store.lengths > 0, sizes[:, 0] + 1, 0)
            valid_end = train_lengths + sizes[:, 1]
        else:
            train_lengths, valid_end = self._of_all(store, store.positions)
        counts = {"users": store.n_rows, "users with 1 interaction": int((store.lengths == 1).sum())}
        return cut("RS", self, store, train_lengths, valid_end, counts)

    def _of_all(self, store: SequenceStore, positions: Int64) -> tuple[Int64, Int64]:
        """Return where training and validation of each row end, when all targets are split in one order of time."""
        rows = store.row_of
        order = np.argsort(store.times, kind="stable")
        n_targets = np.cumsum(positions[order] > 0, dtype=np.int64)
        ends = np.cumsum(self.sizes(n_targets[-1:])[0])[:2]
        # everything up to the last target of a part, first interactions of users among it
        places = np.searchsorted(n_targets, ends, side="right")
        train_lengths, valid_end = (
            np.bincount(rows[order[:place]], minlength=store.n_rows).astype(np.int64) for place in places
        )
        return train_lengths, valid_end
