"""RecBole's metrics, those beyond accuracy, and whether everyone gets the same items, computed from ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from recbole.evaluator.collector import DataStruct
from recbole.evaluator.register import metrics_dict

from recbole_hyper.config.checks import DIVERSITY, NOVELTY, OWN_METRICS
from recbole_hyper.evaluation.beyond_accuracy import intra_list_diversity, novelty, popularity_miscalibration
from recbole_hyper.evaluation.results import counted
from recbole_hyper.types import Cases, Ranks

# counted over the lists of all cases together, placeholders among them
_OF_ALL_LISTS = {"itemcoverage", "giniindex", "shannonentropy"}


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
    """Return ``{"ndcg@10": ...}`` of ``ranks``, as means over cases, by RecBole's own metric classes where it has one.

    Args:
        metrics: names of RecBole, or of :mod:`recbole_hyper.evaluation.beyond_accuracy`.
        topk, decimals: cut-offs, and metric_decimal_place.
        n_items: items that can be recommended, the denominator of coverage (RecBole's own run counts padding).
        item_counts, user_counts: training interactions by id, for popularity metrics.
        tail_ratio: of TailPercentage: share of the items, or largest count above 1; None is RecBole's .1.
        cases: the ranked cases, for Novelty and PopularityMiscalibration.
        item_tokens: (n_items + 1, T) binary matrix of what IntraListDiversity compares.
    """
    if not len(ranks.ranks):
        raise ValueError("no case was ranked, so no metric exists")
    largest = max(topk)
    hits = np.zeros((len(ranks.ranks), largest + 1), dtype=np.int64)
    inside = np.flatnonzero(ranks.ranks <= largest)
    hits[inside, ranks.ranks[inside] - 1] = 1
    hits[:, -1] = 1  # every case has one target
    struct = DataStruct()
    struct.set("rec.topk", torch.from_numpy(hits))
    items = ranks.top_items
    if items.shape[1] < largest:
        items = np.pad(items, ((0, 0), (0, largest - items.shape[1])))
    struct.set("rec.items", torch.from_numpy(items[:, :largest].astype(np.int64)))
    ones = np.ones_like(ranks.ranks)
    struct.set("rec.meanrank", torch.from_numpy(np.stack([ranks.ranks, ranks.n_candidates, ones], axis=1)).double())
    struct.set("data.num_items", n_items)
    struct.set("data.num_users", n_users)
    struct.set("data.count_items", item_counts or Counter())
    struct.set("data.count_users", user_counts or Counter())
    settings = {"topk": list(topk), "metric_decimal_place": decimals, "tail_ratio": tail_ratio}
    short = bool((items[:, :largest] == 0).any())
    result: dict[str, float] = {}
    for name in metrics:
        key = name.lower()
        if key in OWN_METRICS:
            values = _own_metric(key, items[:, :largest].astype(np.int64), topk, item_counts, cases, item_tokens)
            result.update({f"{key}@{k}": round(value, decimals) for k, value in values.items()})
            continue
        if short and key in _OF_ALL_LISTS:
            result.update(_without_placeholders(key, struct, settings))
            continue
        values = metrics_dict[key](settings).calculate_metric(struct)
        result.update({metric: float(value) for metric, value in values.items()})
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


def _without_placeholders(key: str, struct: DataStruct, settings: dict[str, Any]) -> dict[str, float]:
    """Return a metric of all lists together, where 0 fills lists that are shorter than the cut-off."""
    items = struct.get("rec.items")
    result = {}
    for k in settings["topk"]:
        # one list of what was recommended at all: these metrics do not ask whose list an item is in
        listed = items[:, :k][items[:, :k] > 0][None]
        struct.set("rec.items", listed)
        metric = metrics_dict[key]({**settings, "topk": [listed.shape[1]]})
        result[f"{key}@{k}"] = float(next(iter(metric.calculate_metric(struct).values())))
    struct.set("rec.items", items)
    return result


# (share) .12 and less after two epochs of training on ml-100k, .38 to .98 before a model learns, and for popularity
SAME = 0.3
# of fewer cases, or fewer candidates for a place of the lists, the share is chance
CASES, CANDIDATES = 100, 20


def list_overlap(ranks: Ranks) -> float | None:
    """Return which share of the best items of one case another case has among its best too, 0 to 1.

    The mean over all pairs of different cases, sum_i c_i (c_i - 1) / (n (n - 1) k) with c_i lists that hold item i.
    None where it would be chance: under 100 cases or 20 k candidates.
    """
    n, k = ranks.top_items.shape
    if n < CASES or ranks.n_candidates.mean() < CANDIDATES * k:
        return None
    counts = np.bincount(ranks.top_items.ravel()).astype(float)
    counts[0] = 0.0  # padding of short lists
    return float((counts * (counts - 1.0)).sum() / (n * (n - 1.0) * k))
