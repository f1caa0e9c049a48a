"""How sure a metric is, and whether two models differ: resampling by user, because cases of one user depend.

Intervals: BCa bootstrap (Efron, 1987) over users. A user is drawn with all of its cases, and the metric of a draw is
the mean over the cases in it, so leave-one-out (one case a user) is the ordinary bootstrap and successive evaluation
is a cluster bootstrap. Tests: sign flips of each user's summed difference, which is exact under the hypothesis that
the two models' results of a user could be exchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

Float64 = npt.NDArray[np.float64]

METHOD = "BCa bootstrap over users"
TEST = "sign-flip permutation of users' summed differences, two-sided"
RESAMPLES = 5000
FLIPS = 20000
_CHUNK = 1 << 22  # drawn numbers at one time
_KEYS = ["seed", "user_id", "item_id", "position", "timestamp"]


class StatisticsError(ValueError):
    """Results that cannot be compared; the message says why."""


def case_values(metric: str, ranks: npt.NDArray[np.int64]) -> Float64 | None:
    """Return the (n,) value of a metric such as "ndcg@10" for each case, None if it is not a mean over cases.

    With one target a case: hit is 1, ndcg is 1 / log2(rank + 1), mrr is 1 / rank, recall is hit and precision hit / k,
    where the rank is at most k; else 0.
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
    """Return {metric: [low, high]} at the level ``confidence`` for the metrics that are means over cases.

    Others, such as coverage, have no interval here: a resample holds about 63% of the distinct lists, so its coverage
    says little about the coverage of other users' lists. ``ranks`` (n,) are from 1; ``users`` (n,), the user of each
    case, are what is drawn ``resamples`` times by ``seed``.
    """
    values = {metric: per_case for metric in metrics if (per_case := case_values(metric, ranks)) is not None}
    if not values or not len(ranks):
        return {}
    _, user = np.unique(np.asarray(users), return_inverse=True)
    sums = np.stack([_sums(user, column) for column in values.values()], axis=1)
    bounds = _bca(sums, np.bincount(user).astype(np.float64), confidence, resamples, np.random.default_rng(seed))
    return {metric: [float(low), float(high)] for metric, (low, high) in zip(values, bounds, strict=True)}


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two results by ``metric`` on the same ``n_cases`` of ``n_users``.

    Attributes:
        difference: mean of the first less mean of the second.
        low, high: BCa interval of the difference.
        p_value: of the sign-flip test; never 0, as the observed assignment counts as one of the flips.
    """

    metric: str
    difference: float
    low: float
    high: float
    p_value: float
    n_cases: int
    n_users: int


def compare_cases(
    first: pd.DataFrame,
    second: pd.DataFrame,
    metric: str,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    flips: int = FLIPS,
    seed: int = 0,
) -> Comparison:
    """Compare two runs by their tables of cases (cases_test.parquet), or two models by those of several seeds.

    With a column ``seed`` (:func:`pooled_cases`) a case is paired with the same case of the same seed, and a user is
    drawn, or flipped, with all cases of all seeds: the seeds are those there are, users are what is resampled.
    StatisticsError for other cases or other numbers of candidates, or a metric that is no mean over cases.
    """
    left, right = _paired(first, second)
    values = [case_values(metric, frame["rank"].to_numpy(dtype=np.int64)) for frame in (left, right)]
    if values[0] is None or values[1] is None:
        raise StatisticsError(
            f"metric {metric!r} is not a mean over cases at a cut-off; hit, ndcg, mrr, map, recall and precision are"
        )
    _, user = np.unique(left["user_id"].to_numpy(dtype=str), return_inverse=True)
    sums = _sums(user, values[0] - values[1])
    counts = np.bincount(user).astype(np.float64)
    generator = np.random.default_rng(seed)
    ((low, high),) = _bca(sums[:, None], counts, confidence, resamples, generator)
    p_value = sign_flip_p_value(sums, flips, generator)
    return Comparison(metric, float(sums.sum() / counts.sum()), float(low), float(high), p_value, len(left), len(sums))


def pooled_cases(folders: Mapping[Any, Path], part: str = "test") -> pd.DataFrame:
    """Return the cases of the runs in ``folders``, below each other, with a column ``seed`` for their seeds.

    A run whose seed is None has no such column. StatisticsError for a folder without saved cases.
    """
    found = []
    for seed, folder in folders.items():
        path = Path(folder) / f"cases_{part}.parquet"
        if not path.is_file():
            raise StatisticsError(f"{path} does not exist; run with save_cases=True")
        cases = pd.read_parquet(path)
        found.append(cases if seed is None else cases.assign(seed=seed))
    return pd.concat(found, ignore_index=True)


def sign_flip_p_value(differences: Float64, flips: int, generator: np.random.Generator) -> float:
    """Return the two-sided p-value of sum(differences) under independent sign flips.

    All 2^m assignments of the m differences that are not 0 are counted when there are no more than ``flips``; else
    ``flips`` random ones, the observed one added.
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    observed = abs(float(moving.sum()))
    # sums that are equal on paper may differ in the last bits
    threshold = observed - 1e-9 * float(np.abs(moving).sum())
    if len(moving) < 63 and 2 ** len(moving) <= flips:
        bits = (np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving))) & 1
        sums = (1 - 2 * bits) @ moving
        return float((np.abs(sums) >= threshold).mean())
    # users with the same size of difference are drawn together: how many of them are positive is binomial
    sizes, counts = np.unique(np.round(np.abs(moving), 12), return_counts=True)
    beyond = 0
    for start in range(0, flips, step := max(1, _CHUNK // len(sizes))):
        positive = generator.binomial(counts, 0.5, size=(min(step, flips - start), len(sizes)))
        beyond += int((np.abs((2 * positive - counts) @ sizes) >= threshold).sum())
    return (beyond + 1) / (flips + 1)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted for testing all of them (Holm, 1979)."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for index, name in enumerate(ordered):
        largest = max(largest, min(1.0, p_values[name] * (len(ordered) - index)))
        adjusted[name] = largest
    return adjusted


def _sums(user: npt.NDArray[np.int64], values: Float64) -> Float64:
    """Return the (U,) sum of the values of each user."""
    return np.bincount(user, weights=values).astype(np.float64)


def _bca(
    sums: Float64, counts: Float64, confidence: float, resamples: int, generator: np.random.Generator
) -> list[tuple[float, float]]:
    """BCa intervals of ``sums.sum(0) / counts.sum()`` under resampling of the rows of sums (U, m) and counts (U,)."""
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
    """Return (resamples, m) means of draws of as many users as there are."""
    # users with equal results are one category of the multinomial: ten kinds of users instead of a million users
    rows, kind = np.unique(np.column_stack([sums, counts]), axis=0, return_counts=True)
    shares = kind / kind.sum()
    result = np.empty((resamples, sums.shape[1]))
    for start in range(0, resamples, step := max(1, _CHUNK // len(rows))):
        drawn = generator.multinomial(len(sums), shares, size=min(step, resamples - start)) @ rows
        result[start : start + len(drawn)] = drawn[:, :-1] / drawn[:, -1:]
    return result


def _paired(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables with their cases in one order; StatisticsError for other cases."""
    keys = [key for key in _KEYS if key in first and key in second]
    if len(first) != len(second):
        raise StatisticsError(f"the runs have {len(first)} and {len(second)} cases: they were not tested on one split")
    # a case that occurs twice pairs with its own occurrence
    left, right = (
        frame.assign(_again=frame.groupby(keys).cumcount()).sort_values([*keys, "_again"]) for frame in (first, second)
    )
    for key in keys:
        different = int((left[key].to_numpy() != right[key].to_numpy()).sum())
        if different:
            raise StatisticsError(f"{different} of {len(first)} cases differ in {key}: these are not of one split")
    sampled = [sorted(frame.get("n_candidates", pd.Series()).tolist()) for frame in (first, second)]
    if sampled[0] != sampled[1]:
        raise StatisticsError("the runs ranked among other numbers of candidates (mode, exclude_seen or catalogue)")
    return left, right
