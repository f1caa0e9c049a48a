"""Rank the target of every case among its candidates, within a memory budget, the same way for every model."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from recbole_hyper.data.loader import history_items
from recbole_hyper.errors import NonFiniteScoreError
from recbole_hyper.types import Cases, Prefixes, Ranks

# scores in float32 and one comparison of them
_BYTES_PER_SCORE = 5
# scores computed at once, unless 256 rows are more
SCORES_PER_BLOCK = 6 << 20

Scorer = Callable[[Prefixes], Tensor]
# of some cases: ranks, numbers of candidates, best items and their scores, and how many targets tied
_Ranked = tuple[npt.NDArray, npt.NDArray, npt.NDArray, npt.NDArray, int]


class ScoresError(ValueError):
    """A scorer returned something else than the scores of its cases."""


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
        score: gives (n, n_items) scores of consecutive slices of cases; column 0, padding, is ignored.
        n_items: number of item ids, padding included.
        k: length of the lists of best items.
        exclude_seen: leave out the items of each case's history. A target that is in its own history, or not in
            the catalogue, then gets the last rank, below the lists of best items: a miss at every cut-off up to k.
        catalogue: (n_items,) True where an item may be recommended; None is every item.
        memory_budget: bytes held at once, five for each score; a slice has at least one case.
        progress: label of a progress bar, or None.

    ValueError for a k, a catalogue, histories or candidates that do not fit ``n_items``; ScoresError for anything but
    (n, n_items) floating scores; NonFiniteScoreError for NaN or infinite ones.
    """
    _check_cases(cases, n_items, k, catalogue)
    hidden = np.flatnonzero(~catalogue) if catalogue is not None else np.empty(0, dtype=np.int64)
    size = rows_of_a_block(n_items, memory_budget)
    parts: list[_Ranked] = []
    with tqdm(total=len(cases), desc=progress, disable=progress is None, unit="case", leave=False) as bar:
        for start in range(0, len(cases), size):
            part = cases[start : start + size]
            scores = scores_of(score, part, n_items)
            if part.candidates is None and scores.device.type == "cpu" and scores.dtype == torch.float32:
                parts.append(_rank_here(score, scores, part, k, hidden, exclude_seen))
            else:
                parts.append(_rank_with_torch(scores, part, k, hidden, exclude_seen))
            del scores  # or two blocks would be held while the next one is computed
            bar.update(len(part))
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Ranks(empty, empty, np.empty((0, k), dtype=np.int32), 0.0, np.empty((0, k), dtype=np.float32))
    *columns, ties = zip(*parts, strict=True)
    ranks, counts, lists, values = map(np.concatenate, columns)
    return Ranks(ranks, counts, lists, sum(ties) / len(cases), np.where(lists == 0, np.float32(-np.inf), values))


def rows_of_a_block(n_items: int, memory_budget: int) -> int:
    """Return how many rows of scores of ``n_items`` are computed at once within ``memory_budget`` bytes."""
    size = max(1, int(memory_budget) // (n_items * _BYTES_PER_SCORE))
    # small blocks stay in the cache and in memory that the allocator keeps; 256 rows are enough for a good product
    return min(size, max(256, SCORES_PER_BLOCK // n_items))


def _rank_here(
    score: Scorer, scores: Tensor, part: Cases, k: int, hidden: npt.NDArray[np.int64], exclude_seen: bool
) -> _Ranked:
    """Rank among all items on the CPU, in one pass over the scores."""
    offsets = np.zeros(len(part) + 1, dtype=np.int64)
    seen = np.empty(0, dtype=np.int32)
    if exclude_seen:
        lengths, seen = history_items(part)
        np.cumsum(lengths, out=offsets[1:])
    values = scores.contiguous().numpy()
    from recbole_hyper.kernels.ranks import rank_rows  # numba is imported when scores are ranked

    at_least, equal, removed, top, bad = rank_rows(values, part.targets.astype(np.int64), offsets, seen, hidden, k)
    if bad.any():
        _require_finite(scores_of(score, part, values.shape[1]), part)  # the first scores have been overwritten
        raise NonFiniteScoreError("scores are not finite, and not the same when they are computed again")
    counts = values.shape[1] - 1 - int((hidden > 0).sum()) - removed
    # an excluded score is below every finite one: only such a target has no column below it
    ranks, counts = _behind_all(at_least, counts, at_least == values.shape[1], k)
    best = np.take_along_axis(values, top.astype(np.int64), axis=1)  # of excluded items alone it is overwritten
    return ranks, counts, top, best, int(((equal > 1) & (at_least < values.shape[1])).sum())


def _rank_with_torch(scores: Tensor, part: Cases, k: int, hidden: npt.NDArray[np.int64], exclude_seen: bool) -> _Ranked:
    """Rank on any device, among all items or among given candidates."""
    _require_finite(scores, part)
    scores[:, 0] = -torch.inf
    if len(hidden):
        scores[:, torch.from_numpy(hidden).to(scores.device)] = -torch.inf
    targets = torch.from_numpy(part.targets.astype(np.int64)).to(scores.device)[:, None]
    if part.candidates is not None:
        candidates = torch.from_numpy(part.candidates.astype(np.int64)).to(scores.device)
        target_scores = scores.gather(1, targets)
        ranked = torch.cat([target_scores, scores.gather(1, candidates)], dim=1)
        pool = torch.cat([targets, candidates], dim=1)
        counts = np.full(len(part), ranked.shape[1])
    else:
        if exclude_seen:
            lengths, seen = history_items(part)
            rows = torch.from_numpy(np.repeat(np.arange(len(part)), lengths)).to(scores.device)
            scores[rows, torch.from_numpy(seen.astype(np.int64)).to(scores.device)] = -torch.inf
        target_scores = scores.gather(1, targets)
        ranked, pool = scores, None
        counts = (scores > -torch.inf).sum(dim=1).cpu().numpy()
    excluded = target_scores == -torch.inf
    at_least = (ranked >= target_scores).sum(dim=1).cpu().numpy().astype(np.int64)
    ties = int((((ranked == target_scores) & ~excluded).sum(dim=1) > 1).sum())
    ranks, counts = _behind_all(at_least, counts, excluded[:, 0].cpu().numpy(), k)
    return ranks, counts, *_best(ranked, pool, min(k, ranked.shape[1])), ties


def _behind_all(
    ranks: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], excluded: npt.NDArray[np.bool_], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ranks and numbers of candidates, an excluded target as one candidate more, behind all and in no list."""
    last = np.maximum(counts + 1, k + 1)
    return np.where(excluded, last, ranks), np.where(excluded, last, counts)


def _check_cases(cases: Cases, n_items: int, k: int, catalogue: npt.NDArray[np.bool_] | None) -> None:
    """Raise ValueError where a number would point past the scores: the compiled ranking does not look again."""
    if k > n_items - 1:
        raise ValueError(f"topk={k} asks for more items than the {n_items - 1} there are")
    if k < 1:
        raise ValueError(f"topk={k}: a list holds at least one item")
    if catalogue is not None and (catalogue.shape != (n_items,) or catalogue.dtype != np.bool_):
        raise ValueError(f"catalogue is {catalogue.dtype} {catalogue.shape}; {n_items} truth values are needed")
    _require_items("the sequences hold", cases.store.items, n_items)
    if cases.candidates is not None:
        if cases.candidates.ndim != 2 or len(cases.candidates) != len(cases):
            raise ValueError(f"candidates are {cases.candidates.shape}; a row for each of {len(cases)} cases is needed")
        _require_items("the candidates hold", cases.candidates, n_items)


def _require_items(who: str, items: npt.NDArray[np.int32], n_items: int) -> None:
    if items.size and not 1 <= items.min() <= items.max() < n_items:
        wrong = items[(items < 1) | (items >= n_items)]
        raise ValueError(f"{who} item id {wrong[0]} ({wrong.size} such); ids go from 1 to {n_items - 1}")


def scores_of(score: Scorer, cases: Prefixes, n_items: int) -> Tensor:
    """Return the scores (n, n_items) of ``cases``; ScoresError where the scorer gives anything else."""
    scores = score(cases)
    wanted = f"floating scores of shape ({len(cases)}, {n_items}), a row per case and a column per item id"
    if not isinstance(scores, Tensor):
        raise ScoresError(f"the scorer gave a {type(scores).__name__}; a tensor is needed: {wanted}")
    if scores.shape != (len(cases), n_items) or not scores.is_floating_point():
        raise ScoresError(f"the scorer gave {scores.dtype} of shape {tuple(scores.shape)}; needed are {wanted}")
    return scores.detach()


def _require_finite(scores: Tensor, cases: Prefixes) -> None:
    # a sum is NaN or infinite if an element is: one cheap pass, the exact place only when it fails
    if bool(torch.isfinite(scores[:, 1:].sum(dtype=torch.float64 if scores.device.type == "cpu" else None))):
        return
    bad = ~torch.isfinite(scores[:, 1:])
    if not bool(bad.any()):
        return
    row, column = bad.nonzero()[0].tolist()
    user = str(cases.store.user_tokens[cases.store.users[cases.rows[row]]])
    item = str(cases.store.item_tokens[column + 1])
    raise NonFiniteScoreError(
        f"{int(bad.sum())} of {bad.numel()} scores are not finite (first: user {user!r}, "
        f"item {item!r}); the model has diverged: lower learning_rate or set clip_grad_norm"
    )


def _best(scores: Tensor, pool: Tensor | None, k: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the (n, k) item ids with the largest scores, equal scores in item order, and these scores.

    ``pool`` maps columns to items. Places that only excluded items could fill hold 0.
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
    items = items.masked_fill(by_score.values == -torch.inf, 0)
    return items.cpu().numpy().astype(np.int32), by_score.values.float().cpu().numpy()
