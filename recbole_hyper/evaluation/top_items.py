"""The best items after whole histories: what a finished model recommends next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import Scorer, rank_cases
from recbole_hyper.types import Cases


def top_items(
    score: Scorer,
    store: SequenceStore,
    histories: Sequence[npt.NDArray[np.int32]],
    users: npt.NDArray[np.int64],
    *,
    k: int,
    exclude_seen: bool = True,
    memory_budget: int = 1 << 28,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the best items (n, k) of each history and their scores (n, k), best first, equal scores in item order.

    Ranks as the evaluation does: in batches, scores that are no numbers refused.

    Args:
        score: scorer of a trained model.
        store: names the items and users.
        histories: item ids of each, oldest first, at least one; no history gives empty arrays.
        users: (n,) user ids of the histories.
        k: items each; where fewer are left, the list ends with 0 and -inf.
        exclude_seen: leave out what the history holds.
        memory_budget: bytes of scores held at one time.
    """
    if not len(histories):
        return np.empty((0, k), dtype=np.int32), np.empty((0, k), dtype=np.float32)
    lengths = np.array([len(history) for history in histories])
    # a case points at the item after its history: an item that stands there and is never looked at
    items = np.concatenate([np.append(history, 1) for history in histories])
    offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
    asked = SequenceStore(
        offsets, items.astype(np.int32), np.arange(len(items), dtype=float), users, store.user_tokens, store.item_tokens
    )
    cases = Cases.build(asked, np.arange(len(histories)), lengths)
    size = max(1, memory_budget // (8 * store.n_items))  # the scores and the copy that the ranking writes into
    lists, values = [], []
    with torch.no_grad():
        for start in range(0, len(cases), size):
            part = cases[slice(start, start + size)]
            scores = score(part)

            def copied(rows: Cases, scores: Tensor = scores) -> Tensor:
                return scores.clone()

            ranks = rank_cases(
                copied, part, n_items=store.n_items, k=k, exclude_seen=exclude_seen, memory_budget=8 * memory_budget
            )
            top = ranks.top_items
            found = scores.cpu().gather(1, torch.from_numpy(top.astype(np.int64))).float().numpy()
            lists.append(top)
            values.append(np.where(top == 0, np.float32(-np.inf), found))
    return np.concatenate(lists), np.concatenate(values)
