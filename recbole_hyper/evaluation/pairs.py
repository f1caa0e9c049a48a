"""Which models differ: every pair is tested, and the p-values are adjusted for the number of pairs.

The best model of a table is chosen on the same test cases. Testing only against it would find differences that do not
exist. With p-values adjusted for all m (m - 1) / 2 pairs, the chance that any pair of equal models has p < .05 is at
most .05.

One seed: the result covers other users of these trained models. A permutation flips the signs of a user's summed
differences, for all pairs at once. Each pair is compared with the largest studentized difference of all pairs (maximum
statistic; Westfall and Young, 1993; Romano and Wolf, 2005). The interval of a difference has all values that this test
keeps. With 30 users it covers .95, or .93 if users have several cases.

Several seeds: the result covers other users and other seeds. It uses a mixed model with seeds nested in models and
crossed with users, as for readers and cases (Obuchowski and Rockette, 1995; Hillis, 2014). The variance of a difference
is

    v_a / S_a + v_b / S_b + max(0, var(d) / U - e_a^2 / (S_a U) - e_b^2 / (S_b U)).

Here d is the mean difference of each of U users over the S seeds, and e^2 is the variance of a user's value over seeds.
v is the variance of a model's mean between seeds: half of it from the model's own seeds, half the mean over all models,
and at least e^2 / U, its value if seeds change single users only. Degrees of freedom are Satterthwaite's, but at most
S - 1 where only one model of a pair has randomness (Pop and EASER have none). P-values are adjusted by Holm.

Sign flips assume that the differences of two equal models are symmetric around 0. If a model gains much for a few users
and loses a little for the others, twenty models that are equal in the mean differ "significantly" in 23 % of the
families with 30 users and in 10 % with 300.

Why half and half? Three seeds say little about a variance: with the model's seeds alone, a difference would have to be
twice as large to be found. With the mean over all models alone, the test would trust a model whose seeds vary more than
those of the others. Permuting the seeds is no way out: three against three have 20 orders, so no p-value is below .1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from recbole_hyper.evaluation.statistics import Float64, StatisticsError, case_values, user_sums

USERS = "sign flips of users' summed differences, largest statistic of all pairs"
SEEDS = "mixed model of seeds and users, Holm over all pairs"
FLIPS, CONFIDENCE = 10_000, 0.95
# below this number of users, skewed differences make sign flips find too much
FEW_USERS = 500
_CHUNK = 1 << 23  # signs drawn at once
_KEYS = ["user_id", "item_id", "position", "timestamp"]


@dataclass(frozen=True)
class Pair:
    """The mean of ``first`` minus that of ``second``, with bounds and a two-sided p-value adjusted for all pairs.

    ``seeds`` is the smaller number of seeds of the two models.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p_value: float
    seeds: int

    @property
    def over(self) -> str:
        """What the p-value covers: "users, one seed" or "users and 3 seeds"."""
        return "users, one seed" if self.seeds == 1 else f"users and {self.seeds} seeds"

    def turned(self) -> "Pair":
        """Return the pair with the models swapped."""
        return Pair(self.second, self.first, -self.difference, -self.high, -self.low, self.p_value, self.seeds)


class _Model(NamedTuple):
    """What the runs of one model say about users and seeds."""

    n_seeds: int
    mean: float  # over cases and seeds
    values: Float64  # (U,) each user's share of the mean, minus the mean, scaled to average over users
    between: float  # variance of the mean between seeds; 0 for one seed
    noise: float  # e^2 / U: what the variance of users over seeds adds to that of a mean; 0 for one seed

    @classmethod
    def of(cls, sums: Float64, counts: Float64) -> "_Model":
        """Return the model for (seeds, U) sums of a metric over each user's (U,) ``counts`` of cases."""
        means = sums.sum(axis=1) / counts.sum()
        values = (sums - means[:, None] * counts) * (len(counts) / counts.sum())
        between = noise = 0.0
        if len(sums) > 1:
            between, noise = float(means.var(ddof=1)), float(values.var(axis=0, ddof=1).mean() / len(counts))
        return cls(len(sums), float(means.mean()), values.mean(axis=0), between, noise)


def read_cases(folder: Path, part: str = "test") -> pd.DataFrame:
    """Return the saved cases of a run; StatisticsError if there are none."""
    path = Path(folder) / f"cases_{part}.parquet"
    if not path.is_file():
        raise StatisticsError(f"{path} does not exist; run with save_cases=True")
    return pd.read_parquet(path)


def count_users(folder: Path, part: str = "test") -> int | None:
    """Return the number of users with saved cases; None if no cases were saved."""
    path = Path(folder) / f"cases_{part}.parquet"
    return int(pd.read_parquet(path, columns=["user_id"])["user_id"].nunique()) if path.is_file() else None


def compare_models(
    cases: Mapping[str, Mapping[Any, pd.DataFrame]], metric: str, *, flips: int = FLIPS, seed: int = 0
) -> list[Pair]:
    """Compare every pair of models by ``metric``. ``cases`` are tables (cases_test.parquet) by model and seed.

    If every model has one seed, the test draws ``flips`` sign flips with ``seed``. StatisticsError for fewer than two
    models, different cases or numbers of candidates, or a metric that is not a mean over cases.
    """
    if len(cases) < 2:
        raise StatisticsError(f"a comparison needs at least two models, got {len(cases)}")
    return compare_sums(*_user_sums(cases, metric), flips=flips, seed=seed)


def compare_sums(sums: Mapping[str, Float64], counts: Float64, *, flips: int = FLIPS, seed: int = 0) -> list[Pair]:
    """Compare as :func:`compare_models`, given each model's (seeds, U) sums of a metric over the cases of each user.

    ``counts`` (U,) are the users' numbers of cases.
    """
    models = {name: _Model.of(own, counts) for name, own in sums.items()}
    if all(model.n_seeds == 1 for model in models.values()):
        rows = np.stack([own[0] for own in sums.values()], axis=1)
        p_values, bounds = _by_users(rows, counts, flips, np.random.default_rng(seed))
    else:
        p_values, bounds = _by_users_and_seeds(list(models.values()))
    pairs: list[Pair] = []
    for (first, one), (second, other) in combinations(models.items(), 2):
        below, above = bounds[len(pairs)]
        mean, p_value = one.mean - other.mean, float(p_values[len(pairs)])
        seeds = min(one.n_seeds, other.n_seeds)
        pairs.append(Pair(first, second, mean, float(mean - below), float(mean + above), p_value, seeds))
    return pairs


def mean_interval(cases: Sequence[pd.DataFrame], metric: str) -> tuple[float, float] | None:
    """Return the 95 % interval, over users and seeds, of one model's mean over several seeds.

    None for a metric that is not a mean over cases.
    """
    if case_values(metric, np.ones(1, dtype=np.int64)) is None:
        return None
    sums, counts = _user_sums({"": dict(enumerate(cases))}, metric)
    return interval_of_sums(sums[""], counts)


def interval_of_sums(sums: Float64, counts: Float64) -> tuple[float, float]:
    """Return the interval of :func:`mean_interval` for (seeds, U) sums over the (U,) ``counts`` of cases of each user.

    A variance of few seeds is too sure of itself where it is small: the degrees of freedom are at most twice its own.
    """
    n, mean, values, between, noise = _Model.of(sums, counts)
    variance = max(between, noise) / n + max(0.0, _error(values) ** 2 - noise / n)
    freedom = min(variance**2 * (n - 1) / (between / n) ** 2, 2 * (n - 1)) if between > 0 else np.inf
    margin = float(stats.t.isf((1 - CONFIDENCE) / 2, freedom) * np.sqrt(variance))
    return mean - margin, mean + margin


def holm(p_values: npt.ArrayLike) -> Float64:
    """Return p-values adjusted for testing all of them (Holm, 1979)."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, values[order] * np.arange(len(values), 0, -1)))
    return adjusted


def _user_sums(cases: Mapping[str, Mapping[Any, pd.DataFrame]], metric: str) -> tuple[dict[str, Float64], Float64]:
    """Return the arguments of :func:`compare_sums`, after a check that all runs have the same cases."""
    first: pd.DataFrame | None = None
    user = np.empty(0, dtype=np.int64)
    sums: dict[str, list[Float64]] = {name: [] for name in cases}
    for name, frame in ((name, frame) for name, runs in cases.items() for frame in runs.values()):
        ordered = frame.sort_values([key for key in _KEYS if key in frame], kind="stable", ignore_index=True)
        if first is None:
            first, user = ordered, np.unique(ordered["user_id"].to_numpy(dtype=str), return_inverse=True)[1]
        _require_same_cases(first, ordered, name)
        values = case_values(metric, ordered["rank"].to_numpy(dtype=np.int64))
        if values is None:
            known = "hit, ndcg, mrr, map, recall and precision at a cut-off"
            raise StatisticsError(f"{metric} is not a mean over cases, as the test needs; {known} are")
        sums[name].append(user_sums(user, values))
    return {name: np.stack(own) for name, own in sums.items()}, np.bincount(user).astype(np.float64)


def _require_same_cases(first: pd.DataFrame, other: pd.DataFrame, name: str) -> None:
    if len(first) != len(other):
        raise StatisticsError(f"{name} has {len(other)} cases, the first run {len(first)}: the splits differ")
    for key in [key for key in _KEYS if key in first and key in other]:
        different = int((first[key].to_numpy() != other[key].to_numpy()).sum())
        if different:
            raise StatisticsError(f"{name}: {different} of {len(first)} cases differ in {key}: the splits differ")
    ranked = [np.sort(frame["n_candidates"].to_numpy()) for frame in (first, other) if "n_candidates" in frame]
    if len(ranked) == 2 and not np.array_equal(ranked[0], ranked[1]):
        raise StatisticsError(f"{name} used a different number of candidates: mode, exclude_seen or catalogue differ")


def _by_users(
    sums: Float64, counts: Float64, flips: int, generator: np.random.Generator
) -> tuple[Float64, list[tuple[float, float]]]:
    """Test all pairs of models with one seed each, by joint sign flips of the users' (U, m) ``sums``.

    Return the p-value of each pair, and how far its interval reaches below and above the difference.
    """
    named = list(combinations(range(sums.shape[1]), 2))
    first, second = np.array(named).T
    moving = sums[(sums != sums[:, :1]).any(axis=1)]  # a user on whom all models agree changes nothing
    lengths = np.array([np.linalg.norm(moving[:, a] - moving[:, b]) for a, b in named])
    lengths = np.where(lengths > 0, lengths, np.inf)  # models with equal results: the statistic is 0

    def statistic(totals: Float64) -> Float64:
        return np.abs(totals[..., first] - totals[..., second]) / lengths

    largest = np.sort(np.concatenate([statistic(part).max(axis=1) for part in _flipped(moving, flips, generator)]))
    # sums that are mathematically equal may differ in the last bits
    beyond = len(largest) - np.searchsorted(largest, statistic(moving.sum(axis=0)) * (1 - 1e-9))
    every = 2 ** len(moving) <= flips
    critical = float(np.quantile(largest, CONFIDENCE))
    bounds = [_accepted(sums[:, a] - sums[:, b], counts, critical) for a, b in named]
    return beyond / len(largest) if every else (beyond + 1) / (len(largest) + 1), bounds


def _accepted(sums: Float64, counts: Float64, critical: float) -> tuple[float, float]:
    """Return how far true differences reach below and above the observed one before the test rejects them.

    With ``sums`` d and ``counts`` n of users, a difference t is kept while |sum(d - t n)| / norm(d - t n) is at most
    ``critical``. Both are infinite if that excludes nothing, as with very few users.
    """
    rest = sums - sums.sum() / counts.sum() * counts
    # a e^2 - 2 b e - c <= 0, where e is the observed difference minus the true one
    square = critical**2
    a, b = counts.sum() ** 2 - square * (counts @ counts), square * (rest @ counts)
    c = square * (rest @ rest)
    if a <= 0:
        return np.inf, np.inf
    root = np.sqrt(b**2 + a * c)
    return (b + root) / a, (root - b) / a


def _flipped(rows: Float64, flips: int, generator: np.random.Generator) -> Any:
    """Yield (F, m) sums of ``rows`` (U, m) under random sign flips, or under all of them if at most ``flips`` exist."""
    if 2 ** len(rows) <= flips:
        bits = (np.arange(2 ** len(rows))[:, None] >> np.arange(len(rows))) & 1
        yield (1.0 - 2.0 * bits) @ rows
        return
    step = max(1, _CHUNK // len(rows))
    for start in range(0, flips, step):
        signs = generator.integers(0, 2, size=(min(step, flips - start), len(rows)), dtype=np.int8)
        # the sum of rows times +-1 is twice the sum of the rows with a 1, minus the sum of all rows
        yield 2.0 * (signs.astype(np.float64) @ rows) - rows.sum(axis=0)


def _by_users_and_seeds(models: Sequence[_Model]) -> tuple[Float64, list[tuple[float, float]]]:
    """Test all pairs by the mixed model, as :func:`_by_users`. A model with one seed adds no variance of seeds."""
    n_seeds, between, noise = (np.array([getattr(m, name) for m in models]) for name in ("n_seeds", "between", "noise"))
    vary = between > 0  # False for one seed, and for a model without randomness
    shared = np.where(vary, 1 / max(1, int(vary.sum())), 0.0)
    pairs = list(combinations(range(len(models)), 2))
    errors, freedoms = np.empty(len(pairs)), np.empty(len(pairs))
    for number, pair in enumerate(pairs):
        weights = np.zeros(len(models))  # of each model's variance in the variance of this difference
        for one in pair:
            weights += vary[one] * ((np.arange(len(models)) == one) + shared) / (2 * n_seeds[one])
        users = _error(models[pair[0]].values - models[pair[1]].values) ** 2
        users -= sum(noise[one] / n_seeds[one] for one in pair)
        seeds = sum(vary[one] * max((between[one] + between @ shared) / 2, noise[one]) / n_seeds[one] for one in pair)
        variance, spread = seeds + max(0.0, users), np.sum((weights * between) ** 2 / np.maximum(1, n_seeds - 1))
        spread += max(0.0, users) ** 2 / max(1, len(models[0].values) - 1)
        errors[number], freedoms[number] = np.sqrt(variance), variance**2 / spread if spread > 0 else np.inf
        varying = [one for one in pair if vary[one]]
        if len(varying) == 1:  # nothing but the seeds of one model can balance an unlucky one
            freedoms[number] = min(freedoms[number], n_seeds[varying[0]] - 1)
        elif varying and n_seeds[varying].min() == 2:  # see interval_of_sums
            freedoms[number] = min(freedoms[number], 2 * np.sum((n_seeds - 1)[vary]))
    differences = np.array([models[a].mean - models[b].mean for a, b in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(differences == 0, 0.0, np.abs(differences) / errors)
    margins = stats.t.isf((1 - CONFIDENCE) / (2 * len(pairs)), freedoms) * errors
    return holm(2 * stats.t.sf(scores, freedoms)), [(margin, margin) for margin in margins.tolist()]


def _error(values: Float64) -> float:
    """Return the standard error of the mean of (U,) ``values`` over users."""
    return float(np.std(values) / np.sqrt(max(1, len(values) - 1)))
