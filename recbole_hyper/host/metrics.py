"""RecBole's metrics, computed from arrays instead of by its collector."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from recbole.evaluator.collector import DataStruct
from recbole.evaluator.register import metric_information, metrics_dict, smaller_metrics

__all__ = ["Lists", "is_smaller_better", "metric_needs", "metric_of_recbole", "metrics_dict"]
# metrics of recbole_hyper.evaluation.beyond_accuracy
NOVELTY, DIVERSITY, MISCALIBRATION = "novelty", "intralistdiversity", "popularitymiscalibration"
OWN_METRICS = (NOVELTY, DIVERSITY, MISCALIBRATION)


def metric_needs(name: str) -> tuple[str, ...]:
    """Return what RecBole's metric reads from its collector, () for a name that is not RecBole's."""
    return tuple(metric_information.get(name, ()))


def is_smaller_better(metric: str) -> bool:
    """Return whether a smaller value of a metric, such as "averagepopularity@10", is better."""
    return metric.lower().partition("@")[0] in (*smaller_metrics, MISCALIBRATION)


@dataclass(frozen=True)
class Lists:
    """What RecBole's metrics read about n ranked cases; ``k`` is the length of a list.

    ``hits`` (n, k + 1) is 1 where the target is, and in the last column the number of targets; ``items`` (n, k) are
    ids, 0 after the end of a short list; ``ranks`` (n,) count from 1 among ``n_candidates`` (n,).
    """

    hits: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    n_candidates: npt.NDArray[np.int64]
    n_items: int
    n_users: int
    item_counts: Counter
    user_counts: Counter


def metric_of_recbole(name: str, lists: Lists, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return one of RecBole's metrics, by its lower-case name, as {"ndcg@10": value} for each cut-off."""
    struct = DataStruct()
    struct.set("rec.topk", torch.from_numpy(lists.hits))
    struct.set("rec.items", torch.from_numpy(lists.items))
    ones = np.ones_like(lists.ranks)
    struct.set("rec.meanrank", torch.from_numpy(np.stack([lists.ranks, lists.n_candidates, ones], axis=1)).double())
    struct.set("data.num_items", lists.n_items)
    struct.set("data.num_users", lists.n_users)
    struct.set("data.count_items", lists.item_counts)
    struct.set("data.count_users", lists.user_counts)
    values = metrics_dict[name](settings).calculate_metric(struct)
    return {metric: float(value) for metric, value in values.items()}
