"""Are these data hyperbolic? A verdict from the measurements of a study.

The paper calls data compatible if delta_rel agrees over SVD ranks, levels off with the sample size and spreads little,
but gives no thresholds. Our rule asks three questions, each about a number with a 95 % t-interval over the repeats:

1. *level*: is the mean delta_rel at the largest sample over the plateau ranks (the upper half of the ranks) below 0.35?
   Points without a tree, spread evenly over a flat square or drawn from a plane Gaussian, have 0.47 and 0.41 at the
   same settings; the published data sets have 0.05 to 0.28.
2. *growth with the sample*: does delta_rel change by at most 5 % per doubling of the sample size, between the size
   nearest half the largest and the largest? In a space of bounded delta_rel it stops growing (trees, disks: 0).
3. *change over ranks*: does delta_rel change by at most 10 % per doubling of the rank, over the plateau ranks? Once the
   structure of the item vectors is reached it stays, while isotropic noise loses about 20 % per doubling, because its
   distances concentrate. This needs two ranks; a distance matrix has no ranks and skips the question.

``compatible``: all intervals are within their limits. ``not compatible``: one is entirely outside. ``undecided``:
neither, or fewer than 3 repeats, or no second size between a quarter and three quarters of the largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from recbole_hyper.curvature.study import Measurement, table_of

LEVEL_LIMIT, GROWTH_LIMIT, RANK_LIMIT = 0.35, 0.05, 0.10


@dataclass(frozen=True)
class Question:
    """One number of the rule with its 95 % interval and its limit."""

    name: str
    value: float
    lower: float
    upper: float
    limit: float

    @property
    def answer(self) -> Literal["yes", "no", "open"]:
        """Return "yes" if the absolute value of the whole interval is within the limit, "no" if it is outside."""
        if max(abs(self.lower), abs(self.upper)) <= self.limit:
            return "yes"
        return "no" if self.lower > self.limit or self.upper < -self.limit else "open"

    def __str__(self) -> str:
        interval = f"{self.value:.4g} [{self.lower:.4g}, {self.upper:.4g}]"
        return f"{self.name}: {interval}, limit {self.limit:g}: {self.answer}"


@dataclass(frozen=True)
class Verdict:
    """The verdict, the questions behind it, and the ranks and sample size of the level."""

    verdict: Literal["compatible", "not compatible", "undecided"]
    questions: tuple[Question, ...]
    missing: tuple[str, ...]
    plateau_ranks: tuple[int, ...]
    largest_sample: int

    def explain(self) -> list[str]:
        """Return a line for each question that was asked, and for each that could not be."""
        return [str(question) for question in self.questions] + [f"not asked: {reason}" for reason in self.missing]


def plateau_ranks(ranks: Sequence[int]) -> list[int]:
    """Return the upper half of the ranks, with the middle one."""
    ordered = sorted(set(ranks))
    return ordered[len(ordered) // 2 :] if len(ordered) > 2 else ordered


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Apply the rule of this module; ValueError without measurements, or if a combination was not measured."""
    if not measurements:
        raise ValueError("there are no measurements to judge")
    ranks, sizes, table = table_of(measurements)
    repeats = table.shape[2]
    chosen = plateau_ranks(ranks)
    plateau = table[[ranks.index(k) for k in chosen]]
    after = plateau[:, -1].mean(axis=0)
    questions, missing = [_question("level of delta_rel", after, LEVEL_LIMIT)], []
    half = min(range(len(sizes)), key=lambda i: abs(sizes[i] - sizes[-1] / 2))
    if sizes[-1] / 4 <= sizes[half] <= 0.75 * sizes[-1]:
        before = plateau[:, half].mean(axis=0)
        # relative to the mean over repeats: a single sample may be 0
        scale = (before.mean() + after.mean()) / 2
        doublings = np.log2(sizes[-1] / sizes[half])
        growth = (after - before) / doublings / scale if scale > 0 else np.zeros_like(after)
        questions.append(_question("growth per doubling of the sample", growth, GROWTH_LIMIT))
    else:
        missing.append(f"growth with the sample (sizes {sizes}: add one near {sizes[-1] // 2})")
    if len(chosen) > 1:
        steps = np.log2(chosen) - np.log2(chosen).mean()
        level = plateau[:, -1].mean()
        slopes = (steps @ plateau[:, -1]) / (steps @ steps)
        change = slopes / level if level > 0 else np.zeros_like(slopes)
        questions.append(_question("change per doubling of the rank", change, RANK_LIMIT))
    elif ranks != [0]:
        missing.append(f"change over ranks (ranks {ranks}: at least two are needed)")
    if repeats < 3:
        missing.append(f"spread ({repeats} repeats: at least 3 are needed)")
    answers = {question.answer for question in questions}
    verdict: Literal["compatible", "not compatible", "undecided"] = "undecided"
    if "no" in answers and repeats >= 3:
        verdict = "not compatible"
    elif not missing and answers == {"yes"}:
        verdict = "compatible"
    return Verdict(verdict, tuple(questions), tuple(missing), tuple(chosen), sizes[-1])


def _question(name: str, values: NDArray[np.float64], limit: float) -> Question:
    mean, half = float(values.mean()), 0.0
    if len(values) > 1:
        half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Question(name, mean, mean - half, mean + half, limit)
