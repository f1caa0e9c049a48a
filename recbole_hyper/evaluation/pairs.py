"""Which models of a family differ: every pair is tested, and the p-values are adjusted for all pairs.

The best model of a table is chosen by the test itself, so a test against it alone would find differences that are not
there. A p-value here is adjusted for all m (m - 1) / 2 pairs: among equal models the chance that any pair has p < .05
is at most .05, whichever pair a reader looks at.

One seed: the result covers other users with these trained models. The signs of a user's summed differences are
flipped, for all pairs at once, and each pair is compared with the largest studentized difference of all pairs (maximum
statistic; Westfall and Young, 1993; Romano and Wolf, 2005).

Several seeds: the result covers other users and other seeds. A mixed model with seeds nested in models and crossed
with users, as for readers and cases (Obuchowski and Rockette, 1995; Hillis, 2014), gives the variance of a difference,

    v_a / S_a + v_b / S_b + max(0, var(d) / U - e_a^2 / (S_a U) - e_b^2 / (S_b U)),

with d the mean difference of each of U users over the S seeds, e^2 the variance of a user's value over seeds, and v the
variance of a model's mean between seeds: half that of the model's seeds, half the mean over all models, and no less
than e^2 / U, of which it is made where seeds change single users only. Degrees of freedom are Satterthwaite's, and
p-values are adjusted by Holm. Three seeds alone say little of a variance: without the other models' half the test
would need twice the difference, and with the mean of all models alone it would trust a model whose seeds vary more
than the others'. A permutation of seeds was not taken: of three seeds against three it has 20 orders, so no p-value
below .1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from recbole_hyper.evaluation.statistics import Float64, StatisticsError, case_values, user_sums

USERS = "sign flips of users' summed differences, largest statistic of all pairs"
SEEDS = "mixed model of seeds and users, Holm over all pairs"
FLIPS = 10_000
_CHUNK = 1 << 23  # signs drawn at one time
_KEYS = ["user_id", "item_id", "position", "timestamp"]


@dataclass(frozen=True)
class Pair:
    """The difference of two models of a family by a metric.

    Attributes:
        difference: mean of ``first`` less mean of ``second``.
        low, high: simultaneous bounds for all pairs of the family.
        p_value: two-sided, adjusted for all pairs of the family.
        seeds: number of seeds of the model with fewer of them.
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
        """Return the same as ``second`` less ``first``."""
        return Pair(self.second, self.first, -self.difference, -self.high, -self.low, self.p_value, self.seeds)


@dataclass(frozen=True)
class _Model:
    """The sums of each user (seeds, U) and the number of cases of each (U,), in one order for all models."""

    sums: Float64
    counts: Float64

    @property
    def values(self) -> Float64:
        """(seeds, U) what each user adds to the mean over cases, less the mean; scaled so that U users average to it"""
        means = self.sums.sum(axis=1, keepdims=True) / self.counts.sum()
        return (self.sums - means * self.counts) * (len(self.counts) / self.counts.sum())

    @property
    def means(self) -> Float64:
        """(seeds,) mean over cases of each seed."""
        return self.sums.sum(axis=1) / self.counts.sum()


def read_cases(folder: Path, part: str = "test") -> pd.DataFrame:
    """Return the saved cases of a run; StatisticsError where it saved none."""
    path = Path(folder) / f"cases_{part}.parquet"
    if not path.is_file():
        raise StatisticsError(f"{path} does not exist; run with save_cases=True")
    return pd.read_parquet(path)


def compare_models(
    cases: Mapping[str, Mapping[Any, pd.DataFrame]],
    metric: str,
    *,
    confidence: float = 0.95,
    flips: int = FLIPS,
    seed: int = 0,
) -> list[Pair]:
    """Compare every pair of models by ``metric`` on the same cases.

    Args:
        cases: table of cases (cases_test.parquet) by model and seed; the keys of the seeds are not read.
        confidence: of the bounds, for all pairs at once.
        flips, seed: drawn sign flips where every model has one seed, and the seed that draws them.

    Raises:
        StatisticsError: fewer than two models, other cases or numbers of candidates, or a metric that is no mean over
            cases.
    """
    if len(cases) < 2:
        raise StatisticsError(f"two models are needed for a comparison, got {len(cases)}")
    sums, counts = _user_sums(cases, metric)
    return compare_sums(sums, counts, confidence=confidence, flips=flips, seed=seed)


def compare_sums(
    sums: Mapping[str, Float64], counts: Float64, *, confidence: float = 0.95, flips: int = FLIPS, seed: int = 0
) -> list[Pair]:
    """Compare every pair of models by the (seeds, U) sums of a metric over the cases of each user, by model.

    ``counts`` (U,) are the numbers of cases of the users; all else is as for :func:`compare_models`.
    """
    models = {name: _Model(own, counts) for name, own in sums.items()}
    if all(len(model.sums) == 1 for model in models.values()):
        return _by_users(models, confidence, flips, np.random.default_rng(seed))
    return _by_users_and_seeds(models, confidence)


def mean_interval(
    cases: Sequence[pd.DataFrame], metric: str, *, confidence: float = 0.95
) -> tuple[float, float] | None:
    """Return the interval of a mean over the cases of several seeds of one model, over users and seeds by the mixed
    model; None for a metric that is no mean over cases."""
    if case_values(metric, np.ones(1, dtype=np.int64)) is None:
        return None
    sums, counts = _user_sums({"": dict(enumerate(cases))}, metric)
    model = _Model(sums[""], counts)
    n_seeds, own, noise = len(cases), _seed_variance(model), _noise(model)
    users = _error(model.values.mean(axis=0)) ** 2 - noise / n_seeds
    variance = max(own, noise) / n_seeds + max(0.0, users)
    freedom = variance**2 / ((own / n_seeds) ** 2 / (n_seeds - 1)) if own > 0 else np.inf
    margin = float(stats.t.isf((1 - confidence) / 2, freedom) * np.sqrt(variance))
    return float(model.means.mean()) - margin, float(model.means.mean()) + margin


def holm(p_values: npt.ArrayLike) -> Float64:
    """Return p-values adjusted for testing all of them (Holm, 1979)."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, values[order] * np.arange(len(values), 0, -1)))
    return adjusted


def _user_sums(cases: Mapping[str, Mapping[Any, pd.DataFrame]], metric: str) -> tuple[dict[str, Float64], Float64]:
    """Return what :func:`compare_sums` takes, after a check that all runs have the same cases."""
    if case_values(metric, np.ones(1, dtype=np.int64)) is None:
        raise StatisticsError(
            f"metric {metric!r} is not a mean over cases at a cut-off; hit, ndcg, mrr, map, recall and precision are"
        )
    first: pd.DataFrame | None = None
    user = np.empty(0, dtype=np.int64)
    sums: dict[str, list[Float64]] = {}
    for name, runs in cases.items():
        sums[name] = []
        for frame in runs.values():
            ordered = _ordered(frame)
            if first is None:
                first = ordered
                user = np.unique(ordered["user_id"].to_numpy(dtype=str), return_inverse=True)[1]
            _require_same_cases(first, ordered, name)
            values = case_values(metric, ordered["rank"].to_numpy(dtype=np.int64))
            assert values is not None  # the metric was checked
            sums[name].append(user_sums(user, values))
    return {name: np.stack(own) for name, own in sums.items()}, np.bincount(user).astype(np.float64)


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values([key for key in _KEYS if key in frame], kind="stable", ignore_index=True)


def _require_same_cases(first: pd.DataFrame, other: pd.DataFrame, name: str) -> None:
    if len(first) != len(other):
        raise StatisticsError(f"{name}: {len(other)} cases, {len(first)} in the first run: another split")
    for key in [key for key in _KEYS if key in first and key in other]:
        different = int((first[key].to_numpy() != other[key].to_numpy()).sum())
        if different:
            raise StatisticsError(
                f"{name}: {different} of {len(first)} cases differ in {key}: they are not of one split"
            )
    ranked = [np.sort(frame["n_candidates"].to_numpy()) for frame in (first, other) if "n_candidates" in frame]
    if len(ranked) == 2 and not np.array_equal(ranked[0], ranked[1]):
        raise StatisticsError(f"{name} ranked among other numbers of candidates (mode, exclude_seen or catalogue)")


def _by_users(
    models: Mapping[str, _Model], confidence: float, flips: int, generator: np.random.Generator
) -> list[Pair]:
    """Test all pairs of models with one seed each by joint sign flips of users."""
    sums = np.stack([model.sums[0] for model in models.values()], axis=1)  # (U, m)
    first, second = np.array(list(combinations(range(len(models)), 2))).T
    moving = sums[(sums != sums[:, :1]).any(axis=1)]  # a user on whom all models agree moves nothing
    named = list(zip(first, second, strict=True))
    lengths = np.array([np.linalg.norm(moving[:, a] - moving[:, b]) for a, b in named])
    lengths = np.where(lengths > 0, lengths, np.inf)  # equal results: the statistic is 0
    total = moving.sum(axis=0)
    observed = np.abs(total[first] - total[second]) / lengths
    largest = np.concatenate(
        [
            (np.abs(flipped[:, first] - flipped[:, second]) / lengths).max(axis=1)
            for flipped in _flipped(moving, flips, generator)
        ]
    )
    largest.sort()
    # sums that are equal on paper may differ in the last bits
    beyond = len(largest) - np.searchsorted(largest, observed * (1 - 1e-9))
    every = 2 ** len(moving) <= flips
    p_values = beyond / len(largest) if every else (beyond + 1) / (len(largest) + 1)
    critical = float(np.quantile(largest, confidence))
    values, names = [model.values[0] for model in models.values()], list(models)
    pairs = []
    for (a, b), p_value in zip(named, p_values, strict=True):
        difference = float(models[names[a]].means[0] - models[names[b]].means[0])
        margin = critical * _error(values[a] - values[b])
        pairs.append(
            Pair(names[a], names[b], difference, difference - margin, difference + margin, float(p_value), seeds=1)
        )
    return pairs


def _flipped(rows: Float64, flips: int, generator: np.random.Generator) -> Any:
    """Yield (F, m) sums of ``rows`` (U, m) under sign flips: all of them where there are no more than ``flips``."""
    if 2 ** len(rows) <= flips:
        bits = (np.arange(2 ** len(rows))[:, None] >> np.arange(len(rows))) & 1
        yield (1.0 - 2.0 * bits) @ rows
        return
    step = max(1, _CHUNK // len(rows))
    for start in range(0, flips, step):
        signs = generator.integers(0, 2, size=(min(step, flips - start), len(rows)), dtype=np.int8)
        # sum of +-1 times a row = twice the rows with a 1, less all rows
        yield 2.0 * (signs.astype(np.float64) @ rows) - rows.sum(axis=0)


def _by_users_and_seeds(models: Mapping[str, _Model], confidence: float) -> list[Pair]:
    """Test all pairs by the mixed model; a model with one seed adds no variance of its seeds."""
    names = list(models)
    n_seeds = np.array([len(model.sums) for model in models.values()])
    own = np.array([_seed_variance(model) for model in models.values()])
    noise = np.array([_noise(model) for model in models.values()])
    vary = own > 0  # neither one seed nor a model that has no chance in it
    shared = np.where(vary, 1 / max(1, int(vary.sum())), 0.0)
    values = [model.values.mean(axis=0) for model in models.values()]
    means = np.array([model.means.mean() for model in models.values()])
    pairs = list(combinations(range(len(names)), 2))
    errors, freedoms = np.empty(len(pairs)), np.empty(len(pairs))
    for number, pair in enumerate(pairs):
        weights = np.zeros(len(names))  # of the models' own variances in the variance of this difference
        for one in pair:
            weights += vary[one] * ((np.arange(len(names)) == one) + shared) / (2 * n_seeds[one])
        users = _error(values[pair[0]] - values[pair[1]]) ** 2 - sum(noise[one] / n_seeds[one] for one in pair)
        between = sum(vary[one] * max((own[one] + own @ shared) / 2, noise[one]) / n_seeds[one] for one in pair)
        variance, spread = between + max(0.0, users), np.sum((weights * own) ** 2 / np.maximum(1, n_seeds - 1))
        errors[number], freedoms[number] = np.sqrt(variance), variance**2 / spread if spread > 0 else np.inf
    first, second = np.array(pairs).T
    differences = means[first] - means[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(differences == 0, 0.0, np.abs(differences) / errors)
    p_values = holm(2 * stats.t.sf(scores, freedoms))
    margins = stats.t.isf((1 - confidence) / (2 * len(pairs)), freedoms) * errors
    return [
        Pair(names[a], names[b], float(mean), float(mean - margin), float(mean + margin), float(p_value), int(fewer))
        for a, b, mean, margin, p_value, fewer in zip(
            first, second, differences, margins, p_values, np.minimum(n_seeds[first], n_seeds[second]), strict=True
        )
    ]


def _error(values: Float64) -> float:
    """Return the standard error of the mean of (U,) ``values`` over users."""
    return float(np.std(values) / np.sqrt(max(1, len(values) - 1)))


def _noise(model: _Model) -> float:
    """Return e^2 / U: what the values of users over seeds add to the variance of a mean; 0 for one seed."""
    n_seeds, n_users = model.sums.shape
    return 0.0 if n_seeds == 1 else float(model.values.var(axis=0, ddof=1).mean() / n_users)


def _seed_variance(model: _Model) -> float:
    """Return the variance of the means of the seeds; 0 for one seed."""
    return 0.0 if len(model.sums) == 1 else float(model.means.var(ddof=1))
