"""Confidence intervals of metrics: a BCa bootstrap (Efron, 1987) over users, because the cases of a user depend.

A user is drawn with all cases, and the metric of a draw is the mean over its cases. With one case per user
(leave-one-out) this is the ordinary bootstrap, with several (successive evaluation) a cluster bootstrap.
:mod:`recbole_hyper.evaluation.pairs` tests whether models differ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

Float64 = npt.NDArray[np.float64]

METHOD = "BCa bootstrap over users"
RESAMPLES = 5000
_CHUNK = 1 << 22  # most numbers drawn at once


class StatisticsError(ValueError):
    """The results cannot be compared."""


def case_values(metric: str, ranks: npt.NDArray[np.int64]) -> Float64 | None:
    """Return the (n,) values of a metric such as "ndcg@10" by case, None if the metric is not a mean over cases.

    A case has one target. If its rank is at most k: hit and recall are 1, precision is 1 / k, mrr and map are 1 / rank,
    ndcg is 1 / log2(rank + 1). Otherwise all are 0.
    """
    name, _, cut = metric.lower().partition("@")
    if not cut.isdigit():
        return None
    k, safe = int(cut), np.maximum(ranks, 1).astype(np.float64)
    gains: dict[str, Any] = {"hit": 1.0, "recall": 1.0, "precision": 1.0 / max(k, 1)}
    gains |= {"mrr": 1.0 / safe, "map": 1.0 / safe, "ndcg": 1.0 / np.log2(safe + 1.0)}
    return np.where(ranks <= k, gains[name], 0.0) if name in gains else None


def intervals(
    ranks: npt.NDArray[np.int64],
    users: npt.ArrayLike,
    metrics: Sequence[str],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Return {metric: [low, high]} at level ``confidence`` for the metrics that are means over cases.

    ``ranks`` (n,) start from 1, ``users`` (n,) is the user of each case. Users are drawn ``resamples`` times with
    ``seed``. Coverage and similar metrics have no interval: a resample has about 63 % of the distinct lists.

    Where all users have the same value, such as 0 if nobody is hit, all resamples have it too. Then the interval is
    exact: of U equal users, at most a share q = 1 - ((1 - confidence) / 2)^(1 / U) of all users differs (Clopper and
    Pearson, 1934), and those have 0 or the largest gain.
    """
    values = {metric: per_case for metric in metrics if (per_case := case_values(metric, ranks)) is not None}
    if not values or not len(ranks):
        return {}
    _, user = np.unique(np.asarray(users), return_inverse=True)
    sums = np.stack([user_sums(user, column) for column in values.values()], axis=1)
    bounds = _bca(sums, np.bincount(user).astype(np.float64), confidence, resamples, np.random.default_rng(seed))
    share = 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / len(sums))
    for number, (metric, (low, high)) in enumerate(zip(values, bounds, strict=True)):
        if low == high:
            gains = case_values(metric, np.ones(1, dtype=np.int64))
            assert gains is not None  # a metric with values has a largest one
            bounds[number] = low * (1.0 - share), high + (float(gains[0]) - high) * share
    return {metric: [float(low), float(high)] for metric, (low, high) in zip(values, bounds, strict=True)}


def user_sums(user: npt.NDArray[np.int64], values: Float64) -> Float64:
    """Return the (U,) sum of the values of each user."""
    return np.bincount(user, weights=values).astype(np.float64)


def _bca(
    sums: Float64, counts: Float64, confidence: float, resamples: int, generator: np.random.Generator
) -> list[tuple[float, float]]:
    """Return the BCa intervals of ``sums.sum(0) / counts.sum()`` when the rows of (U, m) and (U,) are resampled."""
    estimate = sums.sum(axis=0) / counts.sum()
    drawn = _resample(sums, counts, resamples, generator)
    below = (drawn < estimate).mean(axis=0) + 0.5 * (drawn == estimate).mean(axis=0)
    tail = (1.0 - confidence) / 2.0
    result = []
    for column in range(sums.shape[1]):
        values = drawn[:, column]
        if values.min() == values.max():
            result.append((float(estimate[column]), float(estimate[column])))
            continue
        bias = norm.ppf(np.clip(below[column], 1.0 / (2 * resamples), 1.0 - 1.0 / (2 * resamples)))
        rest = counts.sum() - counts
        left_out = (sums[:, column].sum() - sums[:, column])[rest > 0] / rest[rest > 0]
        spread = left_out.mean() - left_out
        scale = (spread**2).sum() ** 1.5
        acceleration = float((spread**3).sum() / (6.0 * scale)) if scale > 0 else 0.0
        shifted = bias + norm.ppf([tail, 1.0 - tail])
        low, high = np.quantile(values, norm.cdf(bias + shifted / (1.0 - acceleration * shifted)))
        result.append((float(low), float(high)))
    return result


def _resample(sums: Float64, counts: Float64, resamples: int, generator: np.random.Generator) -> Float64:
    """Return the (resamples, m) means of draws of U users each."""
    # users with equal results are one category of the multinomial: ten categories instead of a million users
    rows, kind = np.unique(np.column_stack([sums, counts]), axis=0, return_counts=True)
    shares = kind / kind.sum()
    result = np.empty((resamples, sums.shape[1]))
    for start in range(0, resamples, step := max(1, _CHUNK // len(rows))):
        drawn = generator.multinomial(len(sums), shares, size=min(step, resamples - start)) @ rows
        result[start : start + len(drawn)] = drawn[:, :-1] / drawn[:, -1:]
    return result
