"""Metrics beyond accuracy that RecBole lacks: novelty, diversity, and a user's taste for popularity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.special import rel_entr

from recbole_hyper.batches.histories import history_items
from recbole_hyper.types import Cases

Items = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

# share of all training interactions that the most popular items have together, and the least popular ones
HEAD, TAIL = 0.2, 0.2
_CHUNK = 1 << 20  # most pairs of items at once


def novelty(items: Items, counts: Items, topk: Sequence[int]) -> dict[int, float]:
    """Return the mean self-information in bits of the first k of ``items`` (n, K; 0 fills short lists), by k.

    The self-information of an item is -log2 of its share of the training interactions ``counts`` (n_items,), counted
    as at least one (Zhou et al., 2010; Vargas and Castells, 2011). Larger is better: the lists show less popular items.
    The mean is over the items of a list, then over the lists that are not empty.
    """
    seen = np.maximum(counts, 1)
    information = -np.log2(seen / max(1, int(counts.sum())))
    values = np.where(items > 0, np.maximum(information[items], 0.0), 0.0)
    return {k: _mean(values[:, :k].sum(axis=1), (items[:, :k] > 0).sum(axis=1)) for k in topk}


def intra_list_diversity(items: Items, tokens: scipy.sparse.csr_matrix, topk: Sequence[int]) -> dict[int, float]:
    """Return the mean distance of two items among the first k of a list (n, K), by k: 0 to 1, larger is more diverse.

    The distance is 1 minus the Jaccard similarity of the items' rows in ``tokens`` (n_items, T; binary), such as
    genres; an item without tokens has distance 1 to all others (Ziegler et al., 2005; Zhang and Hurley, 2008). The mean
    is over the pairs of a list, then over the lists with at least two items; 0 if there are none.
    """
    first, second = np.triu_indices(items.shape[1], k=1)
    sums, pairs = ({k: np.zeros(len(items)) for k in topk} for _ in range(2))
    sizes = np.diff(tokens.indptr)
    step = max(1, _CHUNK // max(1, len(first)))
    for start in range(0, len(items), step):
        rows = slice(start, start + step)
        one, other = items[rows][:, first].ravel(), items[rows][:, second].ravel()
        different, place = np.unique(one * tokens.shape[0] + other, return_inverse=True)
        left, right = np.divmod(different, tokens.shape[0])
        shared = np.asarray(tokens[left].multiply(tokens[right]).sum(axis=1)).ravel()
        distances = 1.0 - shared / np.maximum(1, sizes[left] + sizes[right] - shared)
        inside = ((one > 0) & (other > 0)).reshape(-1, len(first))
        values = np.where(inside, distances[place].reshape(inside.shape), 0.0)
        for k in topk:
            sums[k][rows], pairs[k][rows] = values[:, second < k].sum(axis=1), inside[:, second < k].sum(axis=1)
    return {k: _mean(sums[k], pairs[k]) for k in topk}


def popularity_miscalibration(items: Items, cases: Cases, counts: Items, topk: Sequence[int]) -> dict[int, float]:
    """Return how far the first k of ``items`` (n, K) are from the user's history in popularity, by k: 0 (best) to 1.

    It is the Jensen-Shannon divergence in bits between the history and the list, as distributions over head, middle and
    tail items; the mean is over the cases that have both (user popularity deviation of Abdollahpouri et al., 2021;
    calibration of Steck, 2018). The head is the most popular items that together have at most 20 % of the training
    interactions ``counts`` (n_items,), the tail is the least popular ones. Of equal counts, the smaller id counts as
    more popular.
    """
    group = popularity_groups(counts)
    lengths, history = history_items(cases)
    case = np.repeat(np.arange(len(cases)), lengths)
    had = np.bincount(case * 3 + group[history], minlength=3 * len(cases)).reshape(-1, 3)
    result = {}
    for k in topk:
        rows, places = np.nonzero(items[:, :k])
        listed = np.bincount(rows * 3 + group[items[rows, places]], minlength=3 * len(items)).reshape(-1, 3)
        both = (had.sum(axis=1) > 0) & (listed.sum(axis=1) > 0)
        values = _divergence(had[both], listed[both])
        result[k] = float(values.mean()) if len(values) else 0.0
    return result


def popularity_groups(counts: Items) -> Items:
    """Return the (n_items,) group of each item: 0 head, 1 middle, 2 tail (and padding)."""
    order = np.lexsort((np.arange(len(counts)), -counts))
    order = order[order > 0]
    cumulated = np.cumsum(counts[order])
    total = max(1, int(counts[1:].sum()))
    group = np.full(len(counts), 2)
    # tail: the item and all less popular ones have at most TAIL; head: it and all more popular ones have at most HEAD
    group[order[cumulated - counts[order] < (1 - TAIL) * total]] = 1
    group[order[cumulated <= HEAD * total]] = 0
    return group


def _divergence(one: Items, other: Items) -> Float64:
    """Return the (n,) Jensen-Shannon divergence in bits of the (n, 3) counts of two distributions."""
    p, q = (counts / counts.sum(axis=1, keepdims=True) for counts in (one, other))
    middle = (p + q) / 2
    return (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=1) / (2 * np.log(2))


def _mean(sums: Float64, counts: npt.NDArray) -> float:
    """Return the mean of sums / counts where counts are not 0; 0 if all are."""
    filled = counts > 0
    return float((sums[filled] / counts[filled]).mean()) if filled.any() else 0.0
