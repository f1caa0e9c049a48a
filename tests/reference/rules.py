"""A list under rules, place by place, over Python lists."""

from __future__ import annotations

import math

import numpy as np

from recbole_hyper.data.tables.where import parse_where
from recbole_hyper.serving.catalogue import Catalogue
from recbole_hyper.serving.rules import Rules


def best_list(
    catalogue: Catalogue, scores: np.ndarray, k: int, left_out: list[int], rules: Rules, pool_size: int = 100
) -> tuple[list[int], list[float]]:
    """Return the items and the scores of one list; scores (n_items,), left_out item numbers."""
    columns = {name: values.to_pylist() for name, values in catalogue.columns.items()}
    boost = {int(catalogue.ids.find(np.array([str(item)]))[0]): number for item, number in rules.boost.items()}
    value = {item: float(np.float32(scores[item]) + np.float32(boost.get(item, 0))) for item in range(1, len(scores))}
    where = parse_where(rules.where).mask(catalogue.columns) if rules.where else np.ones(len(scores), dtype=bool)
    allowed = [item for item in value if item not in left_out and where[item]]
    order = sorted(allowed, key=lambda item: (-value[item], item))
    pool = order[: max(pool_size, 10 * k)] if rules.diversity else order
    low, high = (value[pool[-1]], value[pool[0]]) if pool else (0.0, 0.0)
    special = {text: parse_where(text).mask(catalogue.columns) for text in rules.at_least}

    def forbidden(item: int, chosen: list[int]) -> bool:
        for name, most in rules.at_most.items():
            own = columns[name][item]
            if own is not None and sum(columns[name][other] == own for other in chosen) >= most:
                return True
        return any(
            not mask[item] and sum(not mask[other] for other in chosen) >= k - rules.at_least[text]
            for text, mask in special.items()
        )

    def likeness(one: int, other: int) -> float:
        if rules.diversity_by:
            own = columns[rules.diversity_by][one]
            return float(own is not None and own == columns[rules.diversity_by][other])
        total = 0.0
        for a, b in zip(catalogue.vectors[one].tolist(), catalogue.vectors[other].tolist(), strict=True):
            total += a * b
        return total

    def worth(item: int, chosen: list[int]) -> float:
        if not rules.diversity:
            return value[item]
        relevance = (value[item] - low) / (high - low) if high > low else 0.0
        most = max((likeness(item, other) for other in chosen), default=0.0)
        return math.floor(((1 - rules.diversity) * relevance - rules.diversity * most) * 2.0**32 + 0.5)

    chosen: list[int] = []
    for candidates in (pool, order):
        while len(chosen) < k:
            free = [item for item in candidates if item not in chosen and not forbidden(item, chosen)]
            if not free:
                break
            chosen.append(max(free, key=lambda item: (worth(item, chosen), -item)))
    return chosen, [value[item] for item in chosen]
