"""Are the items of a data set hyperbolic, and which curvature fits them? The study of HSASRec, with a verdict.

    python -m examples.delta_study --dataset=ml-100k
    python -m examples.delta_figures saved/delta-ml-100k

It measures the Gromov delta of random samples over sample sizes and SVD ranks, with repeats, and writes delta.csv and
delta.json into ``--output_dir``. A run with ``curvature: auto`` estimates one number from the same item vectors
(:func:`recbole_hyper.curvature.estimate.estimate_curvature`).

Samples of one repeat are nested: one permutation of the points, cut at each size, with the first point as the base. So
growth with the size shows within each repeat. The paper draws a new sample for each size; single samples have the same
distribution in both cases.

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

import argparse
import functools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.stats
from numpy.typing import NDArray
from tqdm import tqdm

from recbole_hyper.config import Config
from recbole_hyper.curvature.disk import EPS_DEFAULT, curvature_of, disk_delta_rel
from recbole_hyper.curvature.estimate import item_vectors, trained_items, upper_ranks
from recbole_hyper.curvature.gromov import (
    EUCLIDEAN_BOUND,
    METRIC_BOUND,
    Workspace,
    euclidean_distances,
    search_base,
)
from recbole_hyper.data.sequences import matrix_fingerprint
from recbole_hyper.files import write_json, write_text
from recbole_hyper.protocols.boundaries import boundary
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.threads import default_threads

PAPER_SIZES = (500, 1000, 1500, 2000, 2500, 3000, 4000)
PAPER_RANKS = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)
_WHOLE_BYTES = 2 << 30  # distances of all points are kept at once up to this size

EPS_SHOWN = (1e-12, 1e-5)
LEVEL_LIMIT, GROWTH_LIMIT, RANK_LIMIT = 0.35, 0.05, 0.10

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """One sample at one rank, and its exact delta (:class:`~recbole_hyper.curvature.gromov.DeltaResult`)."""

    rank: int  # number of columns of the item vectors; 0 for a distance matrix
    sample_size: int
    repeat: int  # number of the permutation, from 0
    base: int  # index of the base point; -1 for all bases
    delta: float
    diameter: float
    delta_rel: float
    seconds: float  # of the search, without the distances


def four_point_delta(distances: Floats, diameter: float, share: float) -> float:
    """Return the delta of all quadruples of points; ``share`` of its diameter bounds the delta of any subset.

    Every quadruple is seen from its first point in a fixed order, so base t needs only the points after it. Points are
    sorted by falling mean distance, so the diameter of the remaining points shrinks. The search ends when no quadruple
    among them can win (the far-apart-pair argument of Cohen, Coudert and Lancin 2015; Borassi et al. 2015).
    """
    n, space = len(distances), Workspace()
    order = np.argsort(-distances.mean(axis=1), kind="stable")
    matrix = np.ascontiguousarray(distances[np.ix_(order, order)])
    # rest[t]: diameter of the points t, t + 1, ...
    rest = np.maximum.accumulate([matrix[t, t:].max() for t in range(n - 1, -1, -1)])[::-1]
    best = 0.0
    for t in range(n - 3):
        # some slack for rounded distances
        if share * rest[t] + 1e-6 * diameter <= best:
            break
        others = np.arange(t + 1, n)
        best = search_base(matrix, t, others, diameter, at_least=best, threads=1, workspace=space)
    return best


def cut_list(values: Sequence[int] | None, default: Sequence[int], limit: int, what: str) -> list[int]:
    """Return ``values`` sorted; if None, the ``default`` values, with ``limit`` instead of those that exceed it.

    ValueError for a value of ``values`` outside 1..limit.
    """
    if values is None:
        chosen = [value for value in default if value <= limit]
        return chosen if len(chosen) == len(default) else sorted({*chosen, limit})
    if not values or not all(1 <= value <= limit for value in values):
        raise ValueError(f"{what} {list(values)}: choose at least one value, each from 1 to {limit}")
    return sorted(set(values))


def measure_samples(
    vectors: Any = None,
    *,
    distances: Any = None,
    ranks: Sequence[int] | None = None,
    sample_sizes: Sequence[int] | None = None,
    repeats: int = 48,
    seed: int = 0,
    every_base: bool = False,
    progress: Callable[[int, int], object] | None = None,
    threads: int | None = None,
) -> list[Measurement]:
    """Measure delta of nested random samples, ``threads`` repeats at once.

    Pass item vectors ``vectors`` (N, d) whose first k columns are the vectors of rank k, or ``distances`` (N, N).
    ``ranks`` are at most d, ``sample_sizes`` from 4 to N; None takes the paper's values within these limits. ``seed``
    and the number of a repeat determine its permutation. ``every_base`` takes the four-point delta instead of the
    paper's fixed base. ``progress`` is called with (finished, total). ValueError for fewer than 4 points, sizes or
    ranks out of range, NaN, or points that all coincide.
    """
    if (vectors is None) == (distances is None):
        raise ValueError("pass either vectors or distances=..., not both")
    points = np.asarray(distances if vectors is None else vectors, dtype=np.float64)
    total = len(points)
    if total < 4:
        raise ValueError(f"delta needs at least 4 points, got {total}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    sizes = cut_list(sample_sizes, PAPER_SIZES, total, "sample sizes")
    if sizes[0] < 4:
        raise ValueError(f"sample sizes {sizes}: a sample needs at least 4 points")
    widths = [0] if vectors is None else cut_list(ranks, PAPER_RANKS, points.shape[1], "ranks")
    orders = [np.random.default_rng([seed, r]).permutation(total) for r in range(repeats)]
    # compute the distances of all points once if that costs no more than once per repeat, and if they fit
    whole = total * total <= repeats * sizes[-1] ** 2 and 8 * total * total <= _WHOLE_BYTES
    measurements: list[Measurement] = []
    with ThreadPoolExecutor(default_threads() if threads is None else max(1, threads)) as pool:
        space = Workspace()
        for width in widths:
            matrix = None if width else points
            if width and whole:
                matrix = euclidean_distances(points[:, :width])
            measure = functools.partial(_measure, points, matrix, width, sizes, every_base, space)
            for of_repeat in pool.map(measure, range(repeats), orders):
                measurements += of_repeat
                if progress:
                    progress(len(measurements), len(widths) * len(sizes) * repeats)
    return sorted(measurements, key=lambda measurement: (measurement.rank, measurement.sample_size, measurement.repeat))


def _measure(
    points: Floats,
    matrix: Floats | None,
    width: int,
    sizes: list[int],
    every_base: bool,
    space: Workspace,
    repeat: int,
    order: NDArray[np.intp],
) -> list[Measurement]:
    """Measure all sizes of one repeat."""
    base, share = -1 if every_base else int(order[0]), EUCLIDEAN_BOUND if width else METRIC_BOUND
    if matrix is None:
        matrix = euclidean_distances(points[order[: sizes[-1]], :width])
        order = np.arange(sizes[-1])
    measurements = []
    diameter, before, attained = 0.0, 0, 0.0
    for size in sizes:
        started = time.perf_counter()
        chosen = order[:size]
        diameter = max(diameter, float(matrix[np.ix_(chosen[before:], chosen)].max()))
        before = size
        if diameter == 0:
            raise ValueError(f"all {size} points of a sample coincide (diameter 0): delta_rel is undefined")
        if every_base:
            inner = np.ascontiguousarray(matrix[np.ix_(chosen, chosen)])
            attained = four_point_delta(inner, diameter, share)
        else:
            # a smaller sample with the same base is a subset of this one, so its delta is attained here too
            rest = (int(chosen[0]), chosen[1:], diameter)
            attained = search_base(matrix, *rest, at_least=attained, threads=1, workspace=space)
        delta = min(attained, share * diameter)
        seconds = time.perf_counter() - started
        measurements.append(Measurement(width, size, repeat, base, delta, diameter, 2.0 * delta / diameter, seconds))
    return measurements


def table_of(measurements: Sequence[Measurement]) -> tuple[list[int], list[int], Floats]:
    """Return ranks, sample sizes and delta_rel (ranks, sizes, repeats); ValueError where a combination is missing."""
    cells = {(t.rank, t.sample_size, t.repeat): t.delta_rel for t in measurements}
    ranks, sizes, repeats = (sorted(set(values)) for values in zip(*cells, strict=True))
    if len(cells) != len(ranks) * len(sizes) * len(repeats):
        raise ValueError("some combinations of rank, sample size and repeat were not measured")
    return ranks, sizes, np.array([[[cells[k, m, r] for r in repeats] for m in sizes] for k in ranks])


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


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Apply the rule above; ValueError without measurements, or if a combination was not measured."""
    if not measurements:
        raise ValueError("there are no measurements to judge")
    ranks, sizes, table = table_of(measurements)
    repeats = table.shape[2]
    chosen = upper_ranks(ranks, max(ranks))
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


@dataclass(frozen=True)
class Estimate:
    """The curvature c by the mean delta_rel of a verdict's ranks and sample size, and both at its quantiles."""

    curvature: float
    lower: float
    upper: float
    delta_rel: float
    delta_rel_lower: float
    delta_rel_upper: float
    eps: float
    verdict: str
    reasons: list[str]
    plateau_ranks: list[int]
    sample_size: int
    repeats: int


def estimate_of(measurements: Sequence[Measurement], eps: float = EPS_DEFAULT) -> Estimate:
    """Return curvature, interval and verdict of the measurements of a study."""
    verdict = judge(measurements)
    ranks, size = verdict.plateau_ranks, verdict.largest_sample
    values = np.array([one.delta_rel for one in measurements if one.rank in ranks and one.sample_size == size])
    mean, (low, high) = float(values.mean()), map(float, np.quantile(values, [0.025, 0.975]))
    return Estimate(
        *(curvature_of(mean, eps), curvature_of(high, eps), curvature_of(low, eps), mean, low, high, eps),
        *(verdict.verdict, verdict.explain(), list(ranks), size, len({one.repeat for one in measurements})),
    )


def training_matrix(
    dataset: str, data_path: str | None = None, quantile: float = 0.95
) -> tuple[scipy.sparse.csr_matrix, int]:
    """Return the binary (users, items) matrix of the interactions before a quantile of time, and the number of all."""
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"--train_quantile={quantile}: above 0 and up to 1 is needed; 1 uses all interactions")
    keys = {} if data_path is None else {"data_path": data_path}
    store = SequenceDataset(Config("SASRecCE", dataset, config_dict=keys)).store
    cut = np.inf if quantile == 1.0 else boundary(store.times, quantile)
    lengths = np.bincount(store.row_of[store.times < cut], minlength=store.n_rows).astype(np.int64)
    return store.matrix(lengths)[:, 1:][np.flatnonzero(lengths > 0)], len(store.items)


def mean_over_ranks(measurements: Sequence[Measurement], shown: Sequence[float]) -> dict[str, Any]:
    """Return the mean of delta_rel over all ranks at the largest sample, and its curvature by eps.

    With the ranks of the paper's code (32 to 4096, as far as the matrix allows) this is the published value of ML-1M.
    """
    size = max(one.sample_size for one in measurements)
    values = [one.delta_rel for one in measurements if one.sample_size == size]
    mean = sum(values) / len(values)
    return {"delta_rel": mean, "curvature_by_eps": {f"{eps:g}": curvature_of(mean, eps) for eps in shown}}


def report(
    measurements: Sequence[Measurement], estimate: Estimate, shown: Sequence[float], mean: dict[str, Any]
) -> str:
    """Return the text of the table, with the curvature at each rank, and of the verdict with its reasons."""
    ranks, sizes, table = table_of(measurements)
    heading = "".join(f"{size:>15,}" for size in sizes) + "".join(f"{f'c, {eps:g}':>11}" for eps in shown)
    samples = f"{estimate.repeats} samples; c from the largest sample"
    lines = ["", f"delta_rel, mean and standard deviation over {samples}", f"{'rank':>6}{heading}"]
    for rank, cells in zip(ranks, table, strict=True):
        implied = "".join(f"{curvature_of(float(np.mean(cells[-1])), eps):>11.4f}" for eps in shown)
        lines.append(f"{rank:>6}" + "".join(f"{np.mean(c):>8.4f} {np.std(c):.4f}" for c in cells) + implied)
    level = ", ".join(map(str, estimate.plateau_ranks))
    by_eps = ", ".join(f"{c:.4g} at eps {eps}" for eps, c in mean["curvature_by_eps"].items())
    lines += ["", *(f"  {reason}" for reason in estimate.reasons)]
    lines += [
        f"verdict: {estimate.verdict} (level at ranks {level}, samples of {estimate.sample_size:,} items)",
        f"delta_rel {estimate.delta_rel:.4f} [{estimate.delta_rel_lower:.4f}, {estimate.delta_rel_upper:.4f}]",
        f"mean over all ranks: delta_rel {mean['delta_rel']:.4f}, c {by_eps}",
    ]
    if math.isfinite(estimate.curvature):
        c, between = f"{estimate.curvature:.4g}", f"[{estimate.lower:.4g}, {estimate.upper:.4g}]"
        lines.append(f"curvature {c} {between} at eps {estimate.eps:g}: --curvature={c}")
    else:
        lines.append("curvature: any value fits, as the items form a tree (delta is exactly 0)")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; print the table and the verdict; write csv and json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data_path", help="folder of the data sets (default: as for run)")
    parser.add_argument("--train_quantile", type=float, default=0.95, help="use interactions before it (0.95)")
    parser.add_argument("--ranks", type=int, nargs="+", help="SVD ranks (default 32 to 1024; the paper: to 4096)")
    parser.add_argument("--sample_sizes", type=int, nargs="+", help="items per sample (default 500 to 4000)")
    parser.add_argument("--repeats", type=int, default=48, help="random samples of each size (default 48)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (default 0)")
    parser.add_argument("--scaling", type=float, default=1.0, help="s of PureSVD-N; 1 is plain SVD (default)")
    parser.add_argument("--base", choices=["first", "all"], default="first", help="fixed base (paper) or four points")
    parser.add_argument("--eps", type=float, default=EPS_DEFAULT, help="of the recommended curvature (1e-12)")
    parser.add_argument("--output_dir", help="default saved/delta-NAME")
    given = parser.parse_args(argv)
    disk_delta_rel(given.eps)  # fails for a wrong eps before the work begins
    started = time.perf_counter()
    matrix, counts = training_matrix(given.dataset, given.data_path, given.train_quantile)
    matrix = trained_items(matrix)
    users, items = matrix.shape
    ranks = cut_list(given.ranks, PAPER_RANKS[:7], min(matrix.shape), "--ranks")
    sizes = cut_list(given.sample_sizes, PAPER_SIZES, items, "--sample_sizes")
    print(
        f"{given.dataset}: {users} users, {items} items, {matrix.nnz} interactions before the "
        f"{given.train_quantile:g} quantile of time ({counts} in all)"
    )
    vectors = item_vectors(matrix, ranks[-1], scaling=given.scaling, seed=given.seed)
    vector_seconds = time.perf_counter() - started
    with tqdm(desc="samples", unit="sample", total=len(ranks) * len(sizes) * given.repeats) as bar:
        measurements = measure_samples(
            vectors,
            ranks=ranks,
            sample_sizes=sizes,
            repeats=given.repeats,
            seed=given.seed,
            every_base=given.base == "all",
            progress=lambda finished, _: bar.update(finished - bar.n),
        )
    shown = sorted({given.eps, *EPS_SHOWN})
    estimate, mean = estimate_of(measurements, given.eps), mean_over_ranks(measurements, shown)
    print(report(measurements, estimate, shown, mean))
    folder = Path(given.output_dir or Path("saved") / f"delta-{given.dataset}")
    write_text(folder / "delta.csv", pd.DataFrame(map(asdict, measurements)).to_csv(index=False))
    by_eps = {f"{eps:g}": curvature_of(estimate.delta_rel, eps) for eps in shown} if estimate.delta_rel > 0 else None
    content = {
        **{key: getattr(given, key) for key in ("dataset", "train_quantile", "base", "scaling", "seed")},
        **{"n_users": users, "n_items": items, "n_train_interactions": int(matrix.nnz)},
        **{"ranks": ranks, "sample_sizes": sizes, "fingerprint": matrix_fingerprint(matrix)},
        **{"estimate": asdict(estimate), "curvature_by_eps": by_eps, "mean_over_all_ranks": mean},
        "seconds": {"vectors": vector_seconds, "this_call": time.perf_counter() - started},
    }
    write_json(folder / "delta.json", content)
    print(f"{content['seconds']['this_call']:.1f} s; wrote {folder}/delta.json and .csv")


if __name__ == "__main__":
    main()
