"""RecBole's splits by ratio, in time order: the interactions of each user, or of all users."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol
from recbole_hyper.protocols.parts import count_by_row
from recbole_hyper.types import Int64, Split
from recbole_hyper.values import is_number


def part_sizes(totals: Int64, ratios: list[float]) -> Int64:
    """Return RecBole's sizes (U, parts) of the parts of ``totals`` (U,) rows: all but the first are rounded down.

    A part with a positive ratio that would be empty takes one row from the first part, as long as that keeps one. The
    last part comes first.
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


class Shares(Protocol):
    """Base of splits by the shares of training, validation and test."""

    def shares(self) -> list[float]:
        """Return the three shares; ProtocolError for anything else."""
        shares = self.argument
        is_triple = isinstance(shares, list | tuple) and len(shares) == 3
        if not (is_triple and all(is_number(share) and share >= 0 for share in shares) and sum(shares)):
            raise self.error("three shares such as [0.8, 0.1, 0.1] are expected")
        return list(shares)

    def cut(self, store: SequenceStore, train_lengths: Int64, valid_end: Int64, counts: dict[str, Any]) -> Split:
        """As :meth:`Protocol.cut`; ProtocolError if a part with a positive share is empty."""
        split = super().cut(store, train_lengths, valid_end, counts)
        _, valid_share, test_share = self.argument
        for part, share, cases in (("validation", valid_share, split.valid), ("test", test_share, split.test)):
            if share > 0 and not len(cases):
                raise self.error(f"the {part} part is empty; histories are too short, or its share is too small")
        return split


class Ratio(Shares):
    """``{RS: [0.8, 0.1, 0.1]}``: shares of each user's targets. A test history contains the user's earlier test items.

    With ``group_by: none`` the shares are of all users' targets together, in time order, equal times by user.
    """

    name = "RS"
    title, by_rows = "ratio of each user's interactions", True

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        super().__init__(argument, successive=successive, refit=refit, by_user=by_user)
        if not by_user:
            self.title = "ratio of all interactions"

    def sizes(self, totals: Int64) -> Int64:
        return part_sizes(totals, self.shares())

    def split(self, store: SequenceStore) -> Split:
        if self.by_user:
            sizes = self.sizes(np.maximum(store.lengths - 1, 0))
            train_lengths = np.where(store.lengths > 0, sizes[:, 0] + 1, 0)
            ends = train_lengths, train_lengths + sizes[:, 1]
        else:
            ends = self._ends_of_all(store)
        counts = {"users": store.n_rows, "users with 1 interaction": int((store.lengths == 1).sum())}
        return self.cut(store, *ends, counts)

    def _ends_of_all(self, store: SequenceStore) -> tuple[Int64, Int64]:
        """Return the ends (U,) of training and validation if the targets of all users are split in one time order."""
        order = np.argsort(store.times, kind="stable")
        n_targets = np.cumsum(store.positions[order] > 0, dtype=np.int64)
        totals = np.cumsum(self.sizes(n_targets[-1:])[0])[:2]
        # a part ends with its last target; first interactions of users before it belong to it
        first, second = np.searchsorted(n_targets, totals, side="right")
        train_lengths, valid_end = (
            np.bincount(store.row_of[order[:place]], minlength=store.n_rows).astype(np.int64)
            for place in (first, second)
        )
        return train_lengths, valid_end


class TimeRatio(Shares):
    """RecBole 1.2.1's ``{TS: [0.8, 0.1, 0.1]}``: the newest tenth of all targets is the test, over all users.

    Of a user's earlier interactions, the first 8 of 9 parts are for training and the rest for validation. So validation
    targets of one user can be older than training targets of another; ``GT`` also separates these in time.
    """

    name = "TS"
    title = "time-based ratio"

    def check_argument(self) -> None:
        if self.shares()[0] == 0:
            raise self.error("the first share, of training, must be above 0")

    def split(self, store: SequenceStore) -> Split:
        shares = np.asarray(self.shares(), dtype=np.float64) / np.sum(self.argument)
        # RecBole splits (prefix, target) rows: the first interaction of a user is not a target
        is_target = store.positions > 0
        if not is_target.any():
            raise self.error("no user has two interactions")
        boundary = np.percentile(store.times[is_target], 100 * (1 - shares[2]))
        before = count_by_row(store, is_target & (store.times <= boundary))
        trained = (before * (shares[0] / (1 - shares[2]))).astype(np.int64)
        train_lengths = np.where(store.lengths > 0, trained + 1, 0)
        valid_end = np.where(store.lengths > 0, before + 1, 0)
        counts = {"users": store.n_rows, "users without a training target": int((trained == 0).sum())}
        return self.cut(store, train_lengths, valid_end, counts)
