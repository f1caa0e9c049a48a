"""What a finished run recommends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.asked import histories, ids, known, whole
from recbole_hyper.evaluation.top_items import top_items
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.load import load


def recommend(
    output_dir: str | Path,
    users: Iterable[str | int] | None = None,
    *,
    sequences: Iterable[Iterable[str | int]] | None = None,
    k: int = 10,
    exclude_seen: bool = True,
) -> pd.DataFrame:
    """Recommend items from a finished run, for known users (with all they did) or for any histories of item ids.

    Args:
        output_dir: folder of the run.
        users: original user ids, any iterable; None with ``sequences``.
        sequences: histories of original item ids, oldest first, any iterable of iterables.
        k: items per user.
        exclude_seen: leave out what the history holds.

    Returns:
        A row per recommendation: user_id (or the index of the sequence), position from 1, item_id, score. No rows for
        no users or no sequences.

    Raises:
        ValueError: neither or both of users and sequences, a text where a list is needed, an unknown user or item, an
            empty history, a k that is no whole number or more than there are items.
    """
    if (users is None) == (sequences is None):
        raise ValueError("give users or sequences, one of the two")
    named = None if users is None else ids("users", users)
    given = None if sequences is None else histories("sequences", sequences)
    k = whole("k", k)
    if not isinstance(exclude_seen, (bool, np.bool_)):
        raise ValueError(f"exclude_seen={exclude_seen!r}: True or False is needed")
    model, config, data = load(output_dir)
    store = data.store
    if k >= store.n_items:
        raise ValueError(f"k={k}: between 1 and {store.n_items - 1} items can be recommended")
    rows, owners = _histories_of(named, store) if named is not None else _rows_of(given or [], store)
    score, budget = make_scorer(model, config), int(config["ranking_memory_budget"])
    lists, scores = top_items(score, store, rows, owners, k=k, exclude_seen=bool(exclude_seen), memory_budget=budget)
    # an empty column of texts has the type that pandas gives one of texts
    names = np.arange(len(rows)) if named is None else np.array(named, dtype=object if named else str)
    found = pd.DataFrame(
        {
            "user_id": np.repeat(names, k),
            "position": np.tile(np.arange(1, k + 1), len(lists)),
            "item_id": store.item_tokens[lists.ravel()],
            "score": scores.ravel(),
        }
    )
    return found[lists.ravel() > 0].reset_index(drop=True)


def _histories_of(
    users: Sequence[Any], store: SequenceStore
) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64]]:
    """Return all that each user did, and the (n,) ids of the users."""
    row_of = {store.user_tokens[user]: row for row, user in enumerate(store.users)}
    known("users", users, row_of)
    rows = np.array([row_of[str(user)] for user in users], dtype=np.int64)
    return [store.row(row) for row in rows], store.users[rows]


def _rows_of(
    sequences: Sequence[Sequence[str]], store: SequenceStore
) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64]]:
    """Return histories of original item ids as ids of the store, and a (n,) user id of 0, nobody's, for each."""
    item_id = {token: index for index, token in enumerate(store.item_tokens[1:], 1)}  # entry 0 is padding
    known("items", (item for sequence in sequences for item in sequence), item_id)
    rows = [np.array([item_id[item] for item in sequence], dtype=np.int32) for sequence in sequences]
    return rows, np.zeros(len(rows), dtype=np.int64)
