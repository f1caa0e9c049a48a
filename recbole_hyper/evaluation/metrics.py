"""Metrics from ranks: RecBole's, and those beyond accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

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
        found = metric_of_recbole(key, replace(lists, items=listed), keys) if listed.size else {key: 0.0}
        result[f"{key}@{k}"] = next(iter(found.values()))
    return result
