"""Reads and checks the lists that peers wrote, and ranks them with this package's evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.types import Ranks

COLUMNS = ["user", "item", "rank"]
Int64 = npt.NDArray[np.int64]


class BadListsError(ValueError):
    """Lists cannot be ranked; the message names the user and the reason."""


def read_lists(file: Path, users: Int64, seen: Int64, n_items: int, k: int) -> Int64:
    """Return the items (n, k) of each user, best first, 0 where a list is shorter.

    Args:
        file: user, item and rank from 1, with a header, separated by tabs.
        users: (n,) users of the split; those without a list get zeros.
        seen: (m, 2) user and item pairs that may not be listed.
        n_items: number of item ids, including 0 for padding.
        k: length of the longest list.

    Raises:
        BadListsError: a file that is missing, empty or not such a table, an unknown user or item, an item that is seen
            or listed twice, or ranks that are not 1, 2, ... k.
    """
    frame = _table(file)
    user, item, rank = (frame[name].to_numpy() for name in COLUMNS)
    order = np.lexsort((rank, user))
    user, item, rank = user[order], item[order], rank[order]
    starts = np.flatnonzero(np.diff(user, prepend=user[0] - 1))
    lengths = np.diff(np.append(starts, len(user)))
    expected = np.arange(len(user)) - np.repeat(starts, lengths) + 1
    pairs = user * n_items + item
    first = np.zeros(len(user), dtype=bool)
    first[np.unique(pairs, return_index=True)[1]] = True
    faults = {
        "the user is not in this part of the split": ~np.isin(user, users),
        f"ranks are not 1, 2, ... up to {k}": (rank != expected) | (rank > k),
        f"an item is outside 1 to {n_items - 1}": (item < 1) | (item >= n_items),
        "an item is listed twice": ~first,
        "an item is in the history": np.isin(pairs, seen[:, 0] * n_items + seen[:, 1]),
    }
    for fault, where in faults.items():
        if where.any():
            row = int(where.argmax())
            raise BadListsError(f"{file.name}, user {user[row]}, item {item[row]}, rank {rank[row]}: {fault}")
    by_user = np.argsort(users, kind="stable")
    lists = np.zeros((len(users), k), dtype=np.int64)
    lists[by_user[np.searchsorted(users[by_user], user)], rank - 1] = item
    return lists


def _table(file: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(file, sep="\t", dtype="int64")
    except FileNotFoundError as error:
        raise BadListsError(f"{file.name} is missing") from error
    except (ValueError, pd.errors.ParserError) as error:
        raise BadListsError(f"{file.name} is not a table of {', '.join(COLUMNS)}: {error}") from error
    if list(frame) != COLUMNS:
        raise BadListsError(f"{file.name} has the columns {', '.join(map(str, frame))}, not {', '.join(COLUMNS)}")
    if frame.empty:
        raise BadListsError(f"{file.name} is empty")
    return frame


def score_lists(lists: Int64, targets: Int64) -> dict[str, float]:
    """Return NDCG@k and Hit@k of lists (n, k) for targets (n,); a target that is not in the list is a miss."""
    k = lists.shape[1]
    hits = lists == targets[:, None]
    ranks = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, k + 1).astype(np.int64)
    candidates = np.full(len(targets), k + 1, dtype=np.int64)
    found = Ranks(ranks, candidates, lists.astype(np.int32), 0.0)
    return compute_metrics(found, ["NDCG", "Hit"], [k], 6, n_items=int(lists.max()), n_users=len(targets))
