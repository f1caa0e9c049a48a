"""Statistics of a prepared data set, and their comparison with published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_hyper.data.tables.filters import repeated
from recbole_hyper.data.tables.interactions import Interactions
from recbole_hyper.data.tables.times import day


@dataclass(frozen=True)
class Published:
    """Counts that a paper prints, None if it does not; ``density`` is a fraction."""

    paper: str
    users: int | None = None
    items: int | None = None
    interactions: int | None = None
    density: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Statistics:
    """Statistics of interactions."""

    users: int
    items: int
    interactions: int
    density: float  # interactions / (users * items)
    mean_length: float
    min_length: int
    max_length: int
    tied: float  # share of consecutive interactions of a user with equal times
    repeated: int  # interactions whose (user, item) pair occurred before
    first_time: float  # Unix seconds, or positions
    last_time: float


def describe(data: Interactions) -> Statistics:
    """Return the statistics of ``data``, which must be sorted and have at least one row."""
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


def rows(statistics: Statistics, published: Sequence[Published], *, clock: str = "dates") -> list[dict[str, Any]]:
    """Return the rows of a table of our counts, with a column per paper; only a ``clock`` of dates is shown as dates.

    ``clock`` is ``dates``, ``steps`` or ``positions``.
    """
    table: list[dict[str, Any]] = []
    for label, form in (("users", ","), ("items", ","), ("interactions", ","), ("density", ".3%")):
        table.append({"": label, "this file": format(getattr(statistics, label), form)})
        for paper in published:
            value, mark = getattr(paper, label), " *" if label in _differing(statistics, paper) else ""
            table[-1][paper.paper] = None if value is None else format(value, form) + mark
    own = {
        "mean length": f"{statistics.mean_length:.2f}",
        "min - max": f"{statistics.min_length} - {statistics.max_length:,}",
        "repeated pairs": f"{statistics.repeated:,}",
        "ties in time": f"{statistics.tied:.1%}",
    }
    shown = day if clock == "dates" else "step {:,.12g}".format
    times = {"first": shown(statistics.first_time), "last": shown(statistics.last_time)}
    own |= {"times": "positions"} if clock == "positions" else times
    return [*table, *({"": label, "this file": text} for label, text in own.items())]


def notes(statistics: Statistics, published: Sequence[Published]) -> list[str]:
    """Return the lines below the table."""
    differs = any(_differing(statistics, paper) for paper in published)
    texts = [f"{paper.paper}: {paper.note}" for paper in published if paper.note]
    return ["* differs from this file"] * differs + texts


def _differing(statistics: Statistics, paper: Published) -> list[str]:
    """Return the counts that differ (papers round densities)."""
    counts = ("users", "items", "interactions")
    return [name for name in counts if getattr(paper, name) not in (None, getattr(statistics, name))]
