"""Metrics from ranks: RecBole's, those beyond accuracy, and whether everyone gets the same items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.optimize import brentq

from recbole_hyper.evaluation.beyond_accuracy import intra_list_diversity, novelty, popularity_miscalibration
from recbole_hyper.evaluation.results import counted
from recbole_hyper.host.metrics import DIVERSITY, NOVELTY, OWN_METRICS, Lists, metric_of_recbole
from recbole_hyper.types import Cases, Ranks

# metrics over all lists together, in which RecBole would count the zeros that fill short lists
_OVER_ALL_LISTS = {"itemcoverage", "giniindex", "shannonentropy"}


def compute_metrics(
    ranks: Ranks,
    metrics: Sequence[str],
    topk: Sequence[int],
    decimals: int,
    *,
    n_items: int,
    n_users: int,
    item_counts: Counter | None = None,
    user_counts: Counter | None = None,
    tail_ratio: float | None = None,
    cases: Cases | None = None,
    item_tokens: scipy.sparse.csr_matrix | None = None,
) -> dict[str, float]:
    """Return ``{"ndcg@10": ...}``; RecBole's metric classes compute the metrics that RecBole has.

    Args:
        metrics: names of RecBole, or of :mod:`recbole_hyper.evaluation.beyond_accuracy`.
        topk, decimals: cut-offs, and metric_decimal_place.
        n_items: number of items that can be recommended, the denominator of coverage (RecBole also counts padding).
        item_counts, user_counts: training interactions by id, for popularity metrics.
        tail_ratio: tail of TailPercentage, a share of the items or, above 1, the largest count; None is RecBole's 0.1.
        cases: the ranked cases, for Novelty and PopularityMiscalibration.
        item_tokens: (n_items + 1, T) binary matrix of the features that IntraListDiversity compares.
    """
    if not len(ranks.ranks):
        raise ValueError("no case was ranked, so there are no metrics")
    largest = max(topk)
    hits = np.zeros((len(ranks.ranks), largest + 1), dtype=np.int64)
    inside = np.flatnonzero(ranks.ranks <= largest)
    hits[inside, ranks.ranks[inside] - 1] = 1
    hits[:, -1] = 1  # every case has one target
    items = ranks.top_items[:, :largest].astype(np.int64)
    items = np.pad(items, ((0, 0), (0, largest - items.shape[1])))
    counts = item_counts or Counter(), user_counts or Counter()
    lists = Lists(hits, items, ranks.ranks, ranks.n_candidates, n_items, n_users, *counts)
    settings = {"topk": list(topk), "metric_decimal_place": decimals, "tail_ratio": tail_ratio}
    short = bool((items == 0).any())
    result: dict[str, float] = {}
    for key in map(str.lower, metrics):
        if key in OWN_METRICS:
            values = _own_metric(key, items, topk, item_counts, cases, item_tokens)
            result |= {f"{key}@{k}": round(value, decimals) for k, value in values.items()}
        elif short and key in _OVER_ALL_LISTS:
            result |= _without_zeros(key, lists, settings)
        else:
            result |= metric_of_recbole(key, lists, settings)
    return result


def _own_metric(
    key: str,
    items: npt.NDArray[np.int64],
    topk: Sequence[int],
    item_counts: Counter | None,
    cases: Cases | None,
    item_tokens: scipy.sparse.csr_matrix | None,
) -> dict[int, float]:
    """Return a metric that RecBole lacks, by cut-off."""
    if key == DIVERSITY:
        assert item_tokens is not None
        return intra_list_diversity(items, item_tokens, topk)
    assert cases is not None
    counts = counted(item_counts or Counter(), len(cases.store.item_tokens))
    return novelty(items, counts, topk) if key == NOVELTY else popularity_miscalibration(items, cases, counts, topk)


def _without_zeros(key: str, lists: Lists, settings: dict[str, Any]) -> dict[str, float]:
    """Return a metric over all lists, without the zeros that fill short lists."""
    result = {}
    for k in settings["topk"]:
        # one long list: these metrics do not depend on whose list an item is in
        listed = lists.items[:, :k][lists.items[:, :k] > 0][None]
        keys = {**settings, "topk": [listed.shape[1]]}
        result[f"{key}@{k}"] = next(iter(metric_of_recbole(key, replace(lists, items=listed), keys).values()))
    return result


# overlap, as a share of the way from chance to equal lists, above which a run warns: the overlap is at most 0.12 after
# two epochs on ml-100k, and 0.38 to 0.98 for untrained models and Pop
SAME = 0.3
# with fewer cases, or fewer candidates per position of a list, the overlap would be chance
CASES, CANDIDATES = 100, 20


def list_overlap(ranks: Ranks) -> float | None:
    """Return which share of their best items two cases have in common, from 0 to 1.

    It is the mean over all pairs of cases, sum_i c_i (c_i - 1) / (n (n - 1) k), where item i is in c_i lists. None if
    it would be chance: with fewer than 100 cases or 20 k candidates.
    """
    n, k = ranks.top_items.shape
    if n < CASES or ranks.n_candidates.mean() < CANDIDATES * k:
        return None
    counts = np.bincount(ranks.top_items.ravel()).astype(float)
    counts[0] = 0.0  # zeros fill short lists
    return float((counts * (counts - 1.0)).sum() / (n * (n - 1.0) * k))


def chance_overlap(counts: npt.NDArray[np.float64], k: int) -> float:
    """Return the overlap of two lists of k items that are drawn by popularity; ``counts`` (n_items,) of interactions.

    Item i is in a list with probability q_i = 1 - exp(-m counts_i), with m such that the q_i sum to k; two lists share
    sum_i q_i^2 of k items. The result is 1 if there are at most k items.
    """
    counts = counts[counts > 0] / counts.sum()
    if len(counts) <= k:
        return 1.0
    m = brentq(lambda m: float(-np.expm1(-m * counts).sum()) - k, 0.0, 1e6 / counts.min())
    return float((np.expm1(-m * counts) ** 2).sum() / k)
