"""Several runs that differ in the seed alone: their mean and deviation, and the comparison of models over them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.evaluation.compare import add_tests, failed_rows, require_one_split, row_of
from recbole_hyper.evaluation.results import headline
from recbole_hyper.evaluation.statistics import compare_cases, pooled_cases

# the columns of the short table of one model; a mean is followed by its deviation
COLUMNS = ["metric", "valid", "test"]


def mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers; what all share as it is; None where a value is missing."""
    if any(value is None for value in values):
        return None
    return values[0] if len(set(values)) == 1 else statistics.fmean(values)


def deviation(values: Sequence[Any]) -> float | None:
    """Return the standard deviation with n - 1; None for one value, and where one is missing."""
    if len(values) < 2 or any(value is None for value in values):
        return None
    return statistics.stdev(values)


def metric_rows(results: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per metric: metric, mean and deviation (``valid``, ``valid std``, ...), and the value of each seed.

    ``results`` are result.json by seed; StatisticsError for runs on other data, splits or candidates.
    """
    require_one_split({f"seed {seed}": result for seed, result in results.items()})
    first = next(iter(results.values()))
    rows = []
    for name in dict.fromkeys([*first["valid"], *first["test"]]):
        row: dict[str, Any] = {"metric": name}
        for part in ("valid", "test"):
            values = [result[part].get(name) for result in results.values()]
            row |= {part: mean(values), f"{part} std": deviation(values)}
        for part in ("valid", "test"):
            row |= {f"{part} seed {seed}": result[part].get(name) for seed, result in results.items()}
        rows.append(row)
    return rows


def metric_caption(results: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what a reader must know to read the table of one model's seeds."""
    return (
        f"{headline(next(iter(results.values())))}, seeds {', '.join(map(str, results))}. Mean and standard deviation "
        "(n - 1) over the seeds; split and candidates are the same in all of them."
    )


def comparison_over_seeds(
    results: Mapping[str, Mapping[int, Mapping[str, Any]]],
    folders: Mapping[str, Mapping[int, Path]],
    metric: str,
    *,
    part: str = "test",
    failed: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a row per model as :func:`~recbole_hyper.evaluation.compare.comparison` does, over several seeds.

    Every number is the mean over the seeds; each metric has a column ``<metric> std`` beside it. The best is the model
    with the best mean. Tests are over the pooled cases, see ``compare_cases``; difference is that of the means.
    ``results`` and ``folders`` are by model and seed, and all models have the same seeds.
    """
    require_one_split({f"{name}, seed {seed}": one for name, found in results.items() for seed, one in found.items()})
    rows: dict[str, dict[str, Any]] = {}
    for name, found in results.items():
        runs = [row_of(name, result, part) for result in found.values()]
        row = rows[name] = {"model": name, "seeds": len(runs)}
        for column in list(runs[0])[1:]:
            values = [run.get(column) for run in runs]
            row[column] = mean(values)
            if column in next(iter(found.values()))[part]:
                row[f"{column} std"] = deviation(values)
    cases: dict[str, Any] = {}

    def pooled(name: str) -> Any:
        if name not in cases:
            cases[name] = pooled_cases(folders[name], part)
        return cases[name]

    add_tests(rows, metric, lambda name, best: compare_cases(pooled(name), pooled(best), metric))
    return [*rows.values(), *failed_rows(failed or {})]
