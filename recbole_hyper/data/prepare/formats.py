"""The raw formats by name: how to read each, and how its files are usually called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.atomic import read_atomic
from recbole_hyper.data.prepare.readers.delimited import read_delimited

Reader = Callable[[BinaryIO, Malformed], Iterator[RawChunk]]


@dataclass(frozen=True)
class Format:
    """A published way of writing interactions down.

    Attributes:
        about: one line for people.
        read: the reader, called with a stream and the counter of malformed lines.
        files: patterns of the usual file names, without .gz; empty where the format says nothing about names.
        options: which of Layout's fields the reader takes.
        positions: the times are positions in the user's sequence, since the format has none.
    """

    about: str
    read: Callable[..., Iterator[RawChunk]]
    files: Sequence[str] = ()
    options: frozenset[str] = frozenset()
    positions: bool = False


@dataclass(frozen=True)
class Layout:
    """What the user says about a generic file; None leaves the format's own.

    Attributes:
        columns: field (user_id, item_id, timestamp, rating) to column name, or number from 1 without a header.
        separator: between values.
        header: whether the first line names the columns.
        time_format: unix, unix_ms, iso or a pattern of strptime.
    """

    columns: Mapping[str, str] | None = None
    separator: str | None = None
    header: bool | None = None
    time_format: str | None = None

    def over(self, other: Layout) -> Layout:
        """Return ``other`` with this layout's own values in place of its."""
        own: dict[str, Any] = {key: value for key, value in vars(self).items() if value is not None}
        return replace(other, **own)


_FOUR = {"user_id": "user", "item_id": "item", "rating": "rating", "timestamp": "time"}
_MOVIELENS = ("user", "item", "rating", "time")

FORMATS: dict[str, Format] = {
    "movielens-tab": Format(
        "MovieLens-100K u.data: user, item, rating, time, tab between",
        partial(read_delimited, columns=_FOUR, names=_MOVIELENS, separator="\t"),
        ("u.data",),
    ),
    "movielens-dat": Format(
        "MovieLens-1M and 10M ratings.dat: user::item::rating::time",
        partial(read_delimited, columns=_FOUR, names=_MOVIELENS, separator="::"),
        ("ratings.dat",),
    ),
    "movielens-csv": Format(
        "MovieLens-20M and later ratings.csv: header userId,movieId,rating,timestamp",
        partial(
            read_delimited,
            columns={"user_id": "userId", "item_id": "movieId", "rating": "rating", "timestamp": "timestamp"},
            separator=",",
        ),
        ("ratings.csv",),
    ),
    "atomic": Format(
        "RecBole atomic file: header user_id:token item_id:token timestamp:float",
        read_atomic,
        ("*.inter",),
        frozenset({"columns", "separator"}),
    ),
}


def reader(name: str, layout: Layout) -> Reader:
    """Return the reader of format ``name`` bound to what the user says about the file.

    Raises:
        PrepareError: the format is unknown, or fixes what the user wants to set.
    """
    if name not in FORMATS:
        raise PrepareError(f"format {name!r} is unknown; known: {', '.join(sorted(FORMATS))}")
    chosen = FORMATS[name]
    given = {key: value for key, value in vars(layout).items() if value is not None}
    refused = sorted(set(given) - chosen.options)
    if refused:
        raise PrepareError(
            f"format {name!r} has its own layout and takes no --{', --'.join(refused)}; "
            "use --format=csv for a file with other columns"
        )
    return partial(chosen.read, **given)
