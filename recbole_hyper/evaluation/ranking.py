"""Rank the target of every case among its candidates: the same for every model, within a memory budget."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from recbole_hyper.batches.histories import history_items
from recbole_hyper.devices import CPU
from recbole_hyper.errors import NonFiniteScoreError
from recbole_hyper.evaluation.scorers import Scorer, rows_of_a_block, scores_of
from recbole_hyper.types import Cases, Prefixes, Ranks

KERNEL_FROM = 1 << 25  # with fewer scores in all, torch ranks them before the kernel is compiled or loaded

# per case: rank, number of candidates, best items, their scores; and the number of targets with a tie
_Ranked = tuple[npt.NDArray, npt.NDArray, npt.NDArray, npt.NDArray, int]


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
    """Rank every target among all items, or among the candidates of its case.

    Ties count against the target: it ranks behind every candidate with the same score, so that a constant scorer gets
    the last rank. The lists of best items order equal scores by item id.

    Args:
        score: returns (n, n_items) scores for a slice of the cases; column 0 (padding) is ignored.
        n_items: number of item ids, padding included.
        k: length of the lists of best items; they end earlier, or with zeros, if there are fewer.
        exclude_seen: leave out the items of each case's history. A target that is in its own history, or not in
            the catalogue, then gets the last rank, below the lists of best items: a miss at every cut-off up to k.
        catalogue: (n_items,) True for items that may be recommended; None allows all.
        memory_budget: bytes used at once, five per score; a slice has at least one case.
        progress: label of a progress bar, or None.

    ValueError if k, catalogue, histories or candidates do not fit ``n_items``. ScoresError for anything but (n,
    n_items) floating-point scores. NonFiniteScoreError for NaN and infinite scores.
    """
    _check_cases(cases, n_items, k, catalogue)
    hidden = np.flatnonzero(~catalogue) if catalogue is not None else np.empty(0, dtype=np.int64)
    large, parts = k < n_items and len(cases) * n_items >= KERNEL_FROM, list[_Ranked]()
    start, device = 0, CPU  # where the scores are is known from the first block
    with tqdm(total=len(cases), desc=progress, disable=progress is None, unit="case", leave=False) as bar:
        while start < len(cases):
            part = cases[slice(start, start + rows_of_a_block(n_items, memory_budget, device))]
            scores = scores_of(score, part, n_items)
            start, device = start + len(part), scores.device
            if large and part.candidates is None and device.type == "cpu" and scores.dtype == torch.float32:
                parts.append(_rank_here(score, scores, part, k, hidden, exclude_seen))
            else:
                parts.append(_rank_with_torch(scores, part, k, hidden, exclude_seen))
            del scores  # else two blocks take memory while the next one is computed
            bar.update(len(part))
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Ranks(empty, empty, np.empty((0, k), dtype=np.int32), 0.0, np.empty((0, k), dtype=np.float32))
    *columns, ties = zip(*parts, strict=True)
    ranks, counts, lists, values = map(np.concatenate, columns)
    return Ranks(ranks, counts, lists, sum(ties) / len(cases), np.where(lists == 0, np.float32(-np.inf), values))


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
    from recbole_hyper.kernels.ranks import rank_rows  # imports numba, so only when it is needed

    at_least, equal, removed, top, bad = rank_rows(values, part.targets.astype(np.int64), offsets, seen, hidden, k)
    if bad.any():
        # the kernel has overwritten the scores: compute them again to find the bad one
        _require_finite(scores_of(score, part, values.shape[1]), part)
        raise NonFiniteScoreError(
            "some scores were not finite, but are finite when computed again; is the model random?"
        )
    counts = values.shape[1] - 1 - int((hidden > 0).sum()) - removed
    # an excluded score is below every finite one, so only an excluded target has all columns at or above it
    ranks, counts = _behind_all(at_least, counts, at_least == values.shape[1], k)
    best = np.take_along_axis(values, top.astype(np.int64), axis=1)  # overwritten only for excluded items
    return ranks, counts, top, best, int(((equal > 1) & (at_least < values.shape[1])).sum())


def _rank_with_torch(scores: Tensor, part: Cases, k: int, hidden: npt.NDArray[np.int64], exclude_seen: bool) -> _Ranked:
    """Rank on any device, among all items or among the cases' candidates."""
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
        counts = number_true(scores > -torch.inf).cpu().numpy()
    excluded = target_scores == -torch.inf
    at_least = number_true(ranked >= target_scores).cpu().numpy()
    ties = int((number_true((ranked == target_scores) & ~excluded) > 1).sum())
    ranks, counts = _behind_all(at_least, counts, excluded[:, 0].cpu().numpy(), k)
    return ranks, counts, *_best(ranked, pool, min(k, ranked.shape[1])), ties


def number_true(mask: Tensor) -> Tensor:
    """Return the number (n,) of true values in each row of a ``mask`` (n, k).

    On a CPU, torch's sums of bool take twice as long, and those as 64-bit integers ten times.
    """
    return mask.view(torch.uint8).sum(1, dtype=torch.int32).long()


def _behind_all(
    ranks: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], excluded: npt.NDArray[np.bool_], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ranks and numbers of candidates; an excluded target is one more candidate, behind all and in no list."""
    last = np.maximum(counts + 1, k + 1)
    return np.where(excluded, last, ranks), np.where(excluded, last, counts)


def _check_cases(cases: Cases, n_items: int, k: int, catalogue: npt.NDArray[np.bool_] | None) -> None:
    """Raise ValueError for an id that would point past the scores: the compiled ranking does not check bounds."""
    if k < 1:
        raise ValueError(f"topk={k}: a list has 1 item or more")
    if catalogue is not None and (catalogue.shape != (n_items,) or catalogue.dtype != np.bool_):
        raise ValueError(f"catalogue is {catalogue.dtype} {catalogue.shape}; it must be bool ({n_items},)")
    _require_items("the sequences", cases.store.items, n_items)
    if cases.candidates is not None:
        if cases.candidates.ndim != 2 or len(cases.candidates) != len(cases):
            raise ValueError(
                f"candidates are {cases.candidates.shape}; they need one row for each of {len(cases)} cases"
            )
        _require_items("the candidates", cases.candidates, n_items)


def _require_items(name: str, items: npt.NDArray[np.int32], n_items: int) -> None:
    if items.size and not 1 <= items.min() <= items.max() < n_items:
        wrong = items[(items < 1) | (items >= n_items)]
        raise ValueError(f"{name} contain {wrong.size} item ids outside 1 to {n_items - 1}, such as {wrong[0]}")


def _require_finite(scores: Tensor, cases: Prefixes) -> None:
    # a sum is not finite if an element is not: one cheap pass, and a search only if it fails, or the sum is too large
    if bool(torch.isfinite(scores[:, 1:].sum())):
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
    """Return the (n, k) item ids with the largest scores, ties in item order, and their scores.

    ``pool`` maps columns to items. The id is 0 where only excluded items are left.
    """
    if pool is not None:
        order = pool.argsort(dim=1)
        pool, scores = pool.gather(1, order), scores.gather(1, order)
    wanted = min(k + 1, scores.shape[1])
    values, columns = scores.topk(wanted, dim=1)
    # topk picks any of several equal scores: if the cut falls among equal ones, sort the row stably
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
