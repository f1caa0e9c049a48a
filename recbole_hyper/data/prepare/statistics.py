"""What a prepared data set contains, and how that compares with the counts that papers print."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from recbole_hyper.data.prepare.filters import repeated
from recbole_hyper.data.prepare.interactions import Interactions


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
    """Counts of interactions that stand in order (grouped by user, by time within each).

    Attributes:
        density: interactions / (users * items).
        tied: share of neighbouring interactions of one user that have the same time.
        repeated: number of interactions whose (user, item) pair came before.
        first_time, last_time: Unix seconds, or positions.
    """

    users: int
    items: int
    interactions: int
    density: float
    mean_length: float
    min_length: int
    max_length: int
    tied: float
    repeated: int
    first_time: float
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
    result = Table(title=name, title_justify="left")
    result.add_column("")
    result.add_column("this file", justify="right")
    for paper in published:
        result.add_column(paper.paper, justify="right")

    for label, form in (("users", ","), ("items", ","), ("interactions", ","), ("density", ".3%")):
        ours, cells = getattr(statistics, label), []
        for paper in published:
            value = getattr(paper, label)
            text = "" if value is None else format(value, form)
            # densities are printed rounded, so only counts are marked
            cells.append(text + (" *" if isinstance(value, int) and value != ours else ""))
        result.add_row(label, format(ours, form), *cells)
    result.add_row("mean length", f"{statistics.mean_length:.2f}")
    result.add_row("min - max", f"{statistics.min_length} - {statistics.max_length:,}")
    result.add_row("repeated pairs", f"{statistics.repeated:,}")
    result.add_row("ties in time", f"{statistics.tied:.1%}")
    if positions:
        result.add_row("times", "positions")
    else:
        result.add_row("first", _date(statistics.first_time))
        result.add_row("last", _date(statistics.last_time))
    return result


def notes(statistics: Statistics, published: Sequence[Published]) -> list[str]:
    """Return the lines to print below the table."""
    differs = any(_differs(statistics, paper) for paper in published)
    return ["* differs from this file"] * differs + [
        f"{paper.paper}: {paper.note}" for paper in published if paper.note
    ]


def _differs(statistics: Statistics, paper: Published) -> bool:
    fields = ("users", "items", "interactions")
    return any(getattr(paper, field) not in (None, getattr(statistics, field)) for field in fields)


def _date(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"
