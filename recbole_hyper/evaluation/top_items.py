"""The best items after whole histories: what a finished model recommends next."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import SCORES_PER_BLOCK, Scorer, rank_cases
from recbole_hyper.types import Cases


def whole_histories(
    store: SequenceStore,
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    users: npt.NDArray[np.int64],
    times: npt.NDArray[np.float64] | None = None,
) -> Cases:
    """Return a case for each history, which asks for what comes after all of it.

    History ``i`` is ``items[offsets[i]:offsets[i + 1]]``, oldest first, and may be empty. It is of ``users`` (n,), 0
    for nobody; ``times`` are of the items, None taking all for equal; ``store`` names items and users.
    """
    lengths = np.diff(offsets)
    # a case points at the item after its history: one that stands there and is never looked at
    asked = np.insert(np.asarray(items, dtype=np.int32), offsets[1:], 1)
    starts = offsets + np.arange(len(offsets))
    then = np.zeros(len(asked)) if times is None else np.insert(times, offsets[1:], 0.0)
    longer = SequenceStore(starts, asked, then, users, store.user_tokens, store.item_tokens)
    return Cases.build(longer, np.arange(len(lengths)), lengths)


def top_items(
    score: Scorer,
    cases: Cases,
    *,
    k: int,
    exclude_seen: bool = True,
    catalogue: npt.NDArray[np.bool_] | None = None,
    memory_budget: int = 1 << 28,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the best items (n, k) of each case and their scores (n, k), best first, equal scores in item order.

    Ranks as the evaluation does, see :func:`rank_cases`: in batches, scores that are no numbers refused. Where fewer
    than k are left, a list ends with 0 and -inf.
    """
    n_items = cases.store.n_items
    # blocks of the ranking, which then asks for one of them whole
    size = max(1, min(memory_budget // (4 * n_items), max(256, SCORES_PER_BLOCK // n_items)))
    lists = np.empty((len(cases), k), dtype=np.int32)
    values = np.empty((len(cases), k), dtype=np.float32)
    for start in range(0, len(cases), size):
        part = cases[start : start + size]
        kept: list[Tensor] = []

        def scored(rows: Cases, kept: list[Tensor] = kept) -> Tensor:
            kept[:] = [score(rows)]
            return kept[0]

        with torch.no_grad():
            ranks = rank_cases(
                scored, part, n_items=n_items, k=k, exclude_seen=exclude_seen, catalogue=catalogue,
                memory_budget=8 * n_items * len(part),
            )  # fmt: skip
        top = ranks.top_items
        # the ranking overwrites scores of excluded items only, and recommends none of these
        found = kept[0].cpu().gather(1, torch.from_numpy(top.astype(np.int64))).float().numpy()
        lists[start : start + len(part)] = top
        values[start : start + len(part)] = np.where(top == 0, np.float32(-np.inf), found)
    return lists, values


def best_columns(scores: Tensor, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return columns (n, k) and values (n, k) of the largest scores, equal ones in column order."""
    order = scores.sort(dim=1, descending=True, stable=True)
    return order.indices[:, :k].cpu().numpy(), order.values[:, :k].float().cpu().numpy()
