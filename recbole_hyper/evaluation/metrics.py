"""RecBole's metrics, computed from ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from recbole.evaluator.collector import DataStruct
from recbole.evaluator.register import metrics_dict

from recbole_hyper.types import Ranks

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
) -> dict[str, float]:
    """Return ``{"ndcg@10": ...}`` from RecBole's own metric classes, as means over cases, of ``ranks``.

    Args:
        metrics: RecBole's names, such as NDCG, Hit, MRR, ItemCoverage; all as
            :func:`recbole_hyper.config.checks.check_metrics` allows.
        topk, decimals: cut-offs, and metric_decimal_place.
        n_items: number of items that can be recommended, the denominator of coverage (RecBole's own run counts
            padding as an item).
        n_users: number of users.
        item_counts, user_counts: training interactions by id, for popularity metrics.
        tail_ratio: of TailPercentage: share of the items, or largest count above 1; None is RecBole's .1.
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
        if short and key in _OF_ALL_LISTS:
            result.update(_without_placeholders(key, struct, settings))
            continue
        values = metrics_dict[key](settings).calculate_metric(struct)
        result.update({metric: float(value) for metric, value in values.items()})
    return result


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
