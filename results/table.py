"""Read runs.csv, the table of all runs; every page takes its figures from here.

python results/table.py RUN...      # print the command that repeats a run: a name in the first column
"""

from __future__ import annotations

import csv
import functools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILE = HERE / "runs.csv"
METRICS = ("ndcg@10", "hit@10", "ndcg@5", "hit@5", "mrr@100", "itemcoverage@10", "hit@20", "mrr@20")
SHOWN = {"ndcg@5": "NDCG@5", "hit@5": "HR@5", "ndcg@10": "NDCG@10", "hit@10": "HR@10"}
SHOWN |= {"mrr@100": "MRR", "itemcoverage@10": "coverage@10", "hit@20": "P@20", "mrr@20": "MRR@20"}
FACTS = ("run", "model", "dataset", "fingerprint", "protocol", "cases", "seed", "commit", "device", "threads")
COSTS = ("epochs", "best_epoch", "minutes", "mib")
SETTINGS = ("width", "windows", "refit", "exclude_seen", "keys")
# interval: 95 %, over users
FIGURES = tuple(f"{part} {metric}{end}" for metric in METRICS for part, end in
                (("valid", ""), ("test", ""), ("test", " low"), ("test", " high")))  # fmt: skip
COLUMNS = (*FACTS, *COSTS, *SETTINGS, *FIGURES)
Run = dict[str, Any]


@functools.cache
def runs() -> dict[str, Run]:
    """Return the rows of runs.csv by name; ``keys`` is a mapping, and what a run did not measure is None."""
    return read_runs(FILE)


def read_runs(file: Path) -> dict[str, Run]:
    """Return the rows of a table of runs by name."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        row |= {name: float(row[name]) if row[name] else None for name in (*FIGURES, "minutes", "mib")}
        row |= {name: int(row[name]) for name in ("cases", "seed", "epochs", "best_epoch")}
        row |= {name: row[name] == "True" for name in ("refit", "exclude_seen")}
        row["keys"] = json.loads(row["keys"])
    return {row["run"]: row for row in rows}


def seeds_of(name: str) -> list[str]:
    """Return the names of a run and of its further seeds, as far as they are there."""
    return [one for one in runs() if one == name or one.startswith(f"{name}_seed")]


def mean(group: list[Run], metric: str, part: str = "test") -> float:
    """Return the mean of a metric over runs."""
    return statistics.fmean(run[f"{part} {metric}"] for run in group)


def short(value: float) -> str:
    """Return a metric with four digits and no leading 0."""
    return f"{value:.4f}".replace("0.", ".", 1)


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{value:+.4f}".replace("0.", ".", 1)


def figure_text(group: list[Run], metric: str, part: str = "test") -> str:
    """Return the mean of a metric, with its interval over users (one seed) or its deviation over seeds (several)."""
    values = [run[f"{part} {metric}"] for run in group if run[f"{part} {metric}"] is not None]
    if not values:
        return "-"
    if len(values) > 1:
        return f"{short(statistics.fmean(values))} ± {short(statistics.stdev(values))}"
    bounds = interval(group[0], metric) if part == "test" else None
    return short(values[0]) + (f" ({short(bounds[0])}-{short(bounds[1])})" if bounds else "")


def interval(run: Run, metric: str) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval over users of a test figure, None if the run has none."""
    low, high = (run[f"test {metric} {end}"] for end in ("low", "high"))
    return None if low is None else (low, high)


def command(run: Run) -> str:
    """Return what trains such a run."""
    named = {"model": run["model"], "dataset": run["dataset"], **run["keys"]}
    words = (f"--{key}={text}" for key, text in named.items())
    return " ".join(["recbole-hyper run", *(f'"{word}"' if " " in word else word for word in words)])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(command(runs()[name]))
