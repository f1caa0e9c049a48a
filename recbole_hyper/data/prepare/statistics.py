"""What a prepared data set contains, and how that compares with the counts that papers print."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Column, Table

from recbole_hyper.data.prepare.interactions import Interactions
from recbole_hyper.data.prepare.recipe import repeated


@dataclass(frozen=True)
class Published:
    """Counts that a paper prints; None where it prints none. ``density`` is a fraction."""

    paper: str
    users: int | None = None
    items: int | None = None
    interactions: int | None = None
    density: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Statistics:
    """Counts of interactions that stand in order (grouped by user, by time within each)."""

    users: int
    items: int
    interactions: int
    density: float  # interactions / (users * items)
    mean_length: float
    min_length: int
    max_length: int
    tied: float  # share of neighbouring interactions of one user that have the same time
    repeated: int  # interactions whose (user, item) pair came before
    first_time: float  # Unix seconds, or positions
    last_time: float


def describe(data: Interactions) -> Statistics:
    """Count; ``data`` must hold at least one row and stand in order."""
    lengths = np.bincount(data.users)
    lengths = lengths[lengths > 0]
    items = int(np.count_nonzero(np.bincount(data.items)))
    neighbours = data.users[1:] == data.users[:-1]
    ties = np.count_nonzero(neighbours & (data.times[1:] == data.times[:-1]))
    return Statistics(
        users=len(lengths),
        items=items,
        interactions=len(data),
        density=len(data) / (len(lengths) * items),
        mean_length=float(lengths.mean()),
        min_length=int(lengths.min()),
        max_length=int(lengths.max()),
        tied=ties / max(1, int(np.count_nonzero(neighbours))),
        repeated=int(np.count_nonzero(repeated(data.users, data.items, "first"))),
        first_time=float(data.times.min()),
        last_time=float(data.times.max()),
    )


def table(name: str, statistics: Statistics, published: Sequence[Published], *, positions: bool = False) -> Table:
    """Return our counts as a table for a terminal, a column per paper beside them.

    ``positions``: the times are positions in a sequence, not dates.
    """
    result = Table("", Column("this file", justify="right"), title=name, title_justify="left")
    for paper in published:
        result.add_column(paper.paper, justify="right")
    for label, form in (("users", ","), ("items", ","), ("interactions", ","), ("density", ".3%")):
        theirs = [getattr(paper, label) for paper in published]
        # densities are printed rounded, so only counts are marked
        marks = [" *" if label in _differing(statistics, paper) else "" for paper in published]
        cells = ["" if v is None else format(v, form) + mark for v, mark in zip(theirs, marks, strict=True)]
        result.add_row(label, format(getattr(statistics, label), form), *cells)
    result.add_row("mean length", f"{statistics.mean_length:.2f}")
    result.add_row("min - max", f"{statistics.min_length} - {statistics.max_length:,}")
    result.add_row("repeated pairs", f"{statistics.repeated:,}")
    result.add_row("ties in time", f"{statistics.tied:.1%}")
    times = {"first": _date(statistics.first_time), "last": _date(statistics.last_time)}
    for label, text in ({"times": "positions"} if positions else times).items():
        result.add_row(label, text)
    return result


def notes(statistics: Statistics, published: Sequence[Published]) -> list[str]:
    """Return the lines to print below the table."""
    differs = any(_differing(statistics, paper) for paper in published)
    return ["* differs from this file"] * differs + [
        f"{paper.paper}: {paper.note}" for paper in published if paper.note
    ]


def _differing(statistics: Statistics, paper: Published) -> list[str]:
    counts = ("users", "items", "interactions")
    return [name for name in counts if getattr(paper, name) not in (None, getattr(statistics, name))]


def _date(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"
