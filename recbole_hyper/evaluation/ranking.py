"""Rank the target of every case among its candidates, within a memory budget, the same way for every model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from recbole_hyper.data.sequences import ranges
from recbole_hyper.types import Cases, Ranks

# scores in float32 and one comparison of them
_BYTES_PER_SCORE = 5

Scorer = Callable[[Cases], Tensor]


class NonFiniteScoreError(ValueError):
    """A model gave NaN or infinite scores; ranking them would put NaN first."""


def rank_cases(
    score: Scorer,
    cases: Cases,
    *,
    n_items: int,
    k: int,
    exclude_seen: bool = True,
    catalogue: npt.NDArray[np.bool_] | None = None,
    memory_budget: int = 256 << 20,
    progress: str | None = None,
) -> Ranks:
    """Rank every target among all items, or among its case's candidates.

    Equal scores count against the target: it ranks behind every candidate with the same score, so that a constant
    scorer gets the last rank. The lists of best items order equal scores by item id.

    Args:
        score: gives (n, n_items) scores of a slice of cases; column 0 is padding and ignored. Called with
            consecutive slices of at most ``memory_budget`` bytes of scores (at least one case).
        cases: what is asked.
        n_items: number of item ids, padding included.
        k: length of the lists of best items.
        exclude_seen: leave out the items of each case's history. A target that is in its own history then gets the
            last rank.
        catalogue: (n_items,) True where an item may be recommended; None is every item.
        memory_budget: bytes of scores held at one time.
        progress: label of a progress bar, or None.

    Raises:
        NonFiniteScoreError: NaN or infinite scores.
    """
    if k > n_items - 1:
        raise ValueError(f"topk={k} asks for more items than the {n_items - 1} there are")
    hidden = None if catalogue is None else torch.from_numpy(np.flatnonzero(~catalogue))
    size = max(1, int(memory_budget) // (n_items * _BYTES_PER_SCORE))
    ranks, counts, lists, ties = [], [], [], 0
    with tqdm(total=len(cases), desc=progress, disable=progress is None, unit="case", leave=False) as bar:
        for part in _slices(cases, size):
            scores = score(part)
            _require_finite(scores, part)
            scores[:, 0] = -torch.inf
            if hidden is not None:
                scores[:, hidden.to(scores.device)] = -torch.inf
            targets = torch.from_numpy(part.targets.astype(np.int64)).to(scores.device)[:, None]
            if part.candidates is not None:
                candidates = torch.from_numpy(part.candidates.astype(np.int64)).to(scores.device)
                target_scores = scores.gather(1, targets)
                ranked = torch.cat([target_scores, scores.gather(1, candidates)], dim=1)
                pool = torch.cat([targets, candidates], dim=1)
            else:
                if exclude_seen:
                    rows, items = _history(part)
                    scores[
                        torch.from_numpy(rows).to(scores.device), torch.from_numpy(items).to(scores.device)
                    ] = -torch.inf
                target_scores = scores.gather(1, targets)
                ranked, pool = scores, None
            at_least = (ranked >= target_scores).sum(dim=1)
            ties += int(((ranked == target_scores).sum(dim=1) > 1).sum())
            ranks.append(at_least.cpu().numpy())
            counts.append(_n_candidates(part, n_items, catalogue, exclude_seen))
            lists.append(_best(ranked, pool, min(k, ranked.shape[1])))
            bar.update(len(part))
    if not ranks:
        empty = np.empty(0, dtype=np.int64)
        return Ranks(empty, empty, np.empty((0, k), dtype=np.int32), 0.0)
    return Ranks(
        np.concatenate(ranks).astype(np.int64), np.concatenate(counts), np.concatenate(lists), ties / max(1, len(cases))
    )


def _slices(cases: Cases, size: int) -> Iterator[Cases]:
    for start in range(0, len(cases), size):
        yield cases[slice(start, start + size)]


def _require_finite(scores: Tensor, cases: Cases) -> None:
    # a sum is NaN or infinite if an element is: one cheap pass, the exact place only when it fails
    if bool(torch.isfinite(scores[:, 1:].sum(dtype=torch.float64 if scores.device.type == "cpu" else None))):
        return
    bad = ~torch.isfinite(scores[:, 1:])
    if not bool(bad.any()):
        return
    row, column = (int(index) for index in bad.nonzero()[0])
    user, item = (
        str(cases.store.user_tokens[cases.store.users[cases.rows[row]]]),
        str(cases.store.item_tokens[column + 1]),
    )
    raise NonFiniteScoreError(
        f"{int(bad.sum())} of {bad.numel()} scores are not finite (first: user {user!r}, "
        f"item {item!r}); the model has diverged: lower learning_rate or set clip_grad_norm"
    )


def _history(cases: Cases) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (row in ``cases``, item id) of every interaction in the histories."""
    store, lengths = cases.store, cases.ends - cases.starts
    index = ranges(store.offsets[cases.rows] + cases.starts, lengths)
    return np.repeat(np.arange(len(cases)), lengths), store.items[index].astype(np.int64)


def _n_candidates(
    cases: Cases, n_items: int, catalogue: npt.NDArray[np.bool_] | None, exclude_seen: bool
) -> npt.NDArray[np.int64]:
    if cases.candidates is not None:
        return np.full(len(cases), cases.candidates.shape[1] + 1, dtype=np.int64)
    allowed = np.ones(n_items, dtype=bool) if catalogue is None else catalogue.copy()
    allowed[0] = False
    total = np.full(len(cases), int(allowed.sum()), dtype=np.int64)
    if exclude_seen:
        rows, items = _history(cases)
        pairs = np.unique(rows * n_items + items)
        pairs = pairs[allowed[pairs % n_items]]
        total -= np.bincount(pairs // n_items, minlength=len(cases))
    return total


def _best(scores: Tensor, pool: Tensor | None, k: int) -> npt.NDArray[np.int32]:
    """Return the (n, k) item ids with the largest scores, equal scores in item order; ``pool`` maps columns to items.

    Places that only excluded items could fill hold 0.
    """
    if pool is not None:
        order = pool.argsort(dim=1)
        pool, scores = pool.gather(1, order), scores.gather(1, order)
    wanted = min(k + 1, scores.shape[1])
    values, columns = scores.topk(wanted, dim=1)
    # topk picks any of several equal scores: where the cut falls among equals, sort the row stably
    if wanted > k:
        split = ((values[:, k - 1] == values[:, k]) & (values[:, k] > -torch.inf)).nonzero()[:, 0]
        for row in split.tolist():
            ordered = scores[row].sort(descending=True, stable=True)
            values[row, :k], columns[row, :k] = ordered.values[:k], ordered.indices[:k]
        values, columns = values[:, :k], columns[:, :k]
    by_item = columns.argsort(dim=1)
    columns, values = columns.gather(1, by_item), values.gather(1, by_item)
    by_score = values.sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, by_score.indices)
    items = columns if pool is None else pool.gather(1, columns)
    return items.masked_fill(by_score.values == -torch.inf, 0).cpu().numpy().astype(np.int32)
