"""Which interactions stay: users and items with enough of them, one of each repeated pair, good enough ratings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.prepare.errors import PrepareError

Codes = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

# below this share of removed rows, whole passes are left for work on the rows concerned alone
SHRINKS = 0.02


def k_core(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the rows of the largest subset in which every user and item has enough rows.

    Users with fewer than ``min_user`` rows and items with fewer than ``min_item`` are removed in turns until none
    is left to remove; the result does not depend on the order (it is what RecBole's user_inter_num_interval and
    item_inter_num_interval give).

    Users and items are (n,) codes from 0; the result is the (n,) mask of the rows that stay, possibly empty.
    """
    kept = np.ones(len(users), dtype=bool)
    if len(users) == 0 or (min_user <= 1 and min_item <= 1):
        return kept
    left_users, left_items = users, items
    rows: npt.NDArray[np.integer] | None = None
    while True:
        user_counts = np.bincount(left_users)
        item_counts = np.bincount(left_items)
        stay = (user_counts >= min_user)[left_users]
        stay &= (item_counts >= min_item)[left_items]
        removed = len(stay) - int(np.count_nonzero(stay))
        if removed:
            kept[np.flatnonzero(~stay) if rows is None else rows[~stay]] = False
            rows = np.flatnonzero(stay) if rows is None else rows[stay]
            left_users, left_items = left_users[stay], left_items[stay]
        if removed == 0 or len(left_users) == 0:
            return kept
        if removed < SHRINKS * len(stay):
            alive = _peel(left_users, left_items, min_user, min_item)
            kept[rows] = alive
            return kept


def _peel(users: Codes, items: Codes, min_user: int, min_item: int) -> Mask:
    """The same fixed point, touching each row at most twice: good for many rounds that remove little each."""
    alive = np.ones(len(users), dtype=bool)
    sides = []
    for codes, fewest in ((users, min_user), (items, min_item)):
        counts = np.bincount(codes)
        starts = np.concatenate([[0], np.cumsum(counts)])
        sides.append((codes, counts, starts, np.argsort(codes, kind="stable"), fewest))
    frontiers = [np.flatnonzero((counts > 0) & (counts < fewest)) for _, counts, _, _, fewest in sides]
    while len(frontiers[0]) or len(frontiers[1]):
        for this, other in ((0, 1), (1, 0)):
            _, counts, starts, order, _ = sides[this]
            doomed, frontiers[this] = frontiers[this], np.empty(0, np.int64)
            rows = order[_ranges(starts[doomed], starts[doomed + 1])]
            rows = rows[alive[rows]]
            alive[rows] = False
            counts[doomed] = 0
            codes, others, _, _, fewest = sides[other]
            touched, lost = np.unique(codes[rows], return_counts=True)
            others[touched] -= lost
            fallen = touched[(others[touched] < fewest) & (others[touched] > 0)]
            frontiers[other] = np.union1d(frontiers[other], fallen)
    return alive


def _ranges(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return start..stop-1 of every pair, one after the other."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def single_pass(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the rows left by dropping rare items once, then users with few rows once (the SCE paper's filter).

    Afterwards some items may have fewer than ``min_item`` rows again. Arguments and result as for ``k_core``.
    """
    if len(users) == 0:
        return np.ones(0, dtype=bool)
    kept = (np.bincount(items) >= min_item)[items]
    counts = np.bincount(users[kept], minlength=int(users.max()) + 1)
    return kept & (counts >= min_user)[users]


FILTERS = {"k_core": k_core, "single_pass": single_pass}
COUNTS = ("interactions", "distinct")


def filtered(
    users: Codes, items: Codes, *, method: str, min_user: int, min_item: int, count: str = "interactions"
) -> Mask:
    """Return the rows that stay under the filter ``method``, ``k_core`` or ``single_pass``.

    ``count`` says what is counted: ``interactions`` are rows; ``distinct`` counts each (user, item) pair once, so that
    repeats do not help a user or an item to stay (repeats of pairs that stay are kept).

    Raises:
        PrepareError: nothing stays.
    """
    rows = slice(None) if count == "interactions" else ~repeated(users, items, "first")
    some_users, some_items = users[rows], items[rows]
    mask = FILTERS[method](some_users, some_items, min_user=min_user, min_item=min_item)
    if not mask.any():
        raise PrepareError(
            f"the filter {method} (users >= {min_user}, items >= {min_item} {count}) removes all "
            f"{len(users):,} interactions; lower --min_user and --min_item"
        )
    if count == "distinct":
        good_users = np.zeros(int(users.max()) + 1, dtype=bool)
        good_items = np.zeros(int(items.max()) + 1, dtype=bool)
        good_users[some_users[mask]] = True
        good_items[some_items[mask]] = True
        # a pair stays exactly if its user and its item do
        mask = good_users[users] & good_items[items]
    return mask


DUPLICATES = ("keep", "first", "last")


def repeated(users: Codes, items: Codes, keep: str) -> Mask:
    """Return the rows to drop so that each (user, item) pair occurs once: all but its ``first`` or ``last`` row."""
    if len(users) == 0:
        return np.zeros(0, dtype=bool)
    pairs = users.astype(np.int64) * (int(items.max()) + 1) + items
    return np.asarray(pd.Series(pairs).duplicated(keep="first" if keep == "first" else "last"))
