"""Histories as a recommender reads them: numbers of known items, and their users."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import ranges

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Query:
    """Histories of items that a model knows: history ``i`` is ``items[offsets[i]:offsets[i + 1]]``, oldest first.

    Attributes:
        names, owners: (n,) names and numbers of their users, number 0 for nobody.
        warm: (n,) True where the model can answer; the others get popular items.
        times: of the items, for a model that reads times; None makes all equal.
        unknown_items, unknown_users: numbers of skipped ids.
    """

    names: npt.NDArray[Any]
    owners: Int64
    offsets: Int64
    items: npt.NDArray[np.int32]
    warm: npt.NDArray[np.bool_]
    times: npt.NDArray[np.float64] | None = None
    unknown_items: int = 0
    unknown_users: int = 0

    def __len__(self) -> int:
        return len(self.owners)

    def __getitem__(self, rows: slice | Int64) -> Query:
        """Return the histories at ``rows``, without counts of skipped ids."""
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        lengths = np.diff(self.offsets)[rows]
        places = ranges(self.offsets[rows], lengths)
        times = None if self.times is None else self.times[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Query(self.names[rows], self.owners[rows], offsets, self.items[places], self.warm[rows], times)

    def require_warm(self) -> None:
        """Raise ValueError if the model cannot answer all histories."""
        require_all(self.warm, self.names, "histories hold no item that the model knows")


def plain_query(histories: Sequence[list[int]], times: Sequence[list[float]] | None = None) -> Query:
    """Return the query of histories of item numbers, of nobody; their names are the numbers from 0."""
    n = len(histories)
    items = np.array([item for history in histories for item in history], dtype=np.int32)
    moments = None if times is None else np.array([time for row in times for time in row], dtype=np.float64)
    offsets = np.cumsum([0, *map(len, histories)]).astype(np.int64)
    return Query(np.arange(n), np.zeros(n, dtype=np.int64), offsets, items, np.diff(offsets) > 0, moments)


def joined(queries: Sequence[Query]) -> Query:
    """Return the histories of several queries as one; their names are the numbers from 0."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in queries]) for name in ("owners", "items", "warm")
    }
    lengths = np.concatenate([np.diff(one.offsets) for one in queries])
    times = None if any(one.times is None for one in queries) else np.concatenate([one.times for one in queries])
    return Query(np.arange(len(lengths)), offsets=np.concatenate([[0], np.cumsum(lengths)]), times=times, **columns)


def array_digest(value: Any) -> str:
    """Return a digest of a dataclass of arrays and plain values."""
    state = hashlib.sha256()
    for entry in fields(value):
        part = getattr(value, entry.name)
        if isinstance(part, np.ndarray):
            part = part.tolist() if part.dtype == object else part.tobytes()
        state.update(f"\n{entry.name} ".encode() + (part if isinstance(part, bytes) else repr(part).encode()))
    return state.hexdigest()[:32]


def require_all(good: npt.NDArray[np.bool_], values: npt.NDArray[Any], fault: str) -> None:
    """Raise ValueError with the number of ``values`` that are not ``good``, their fault, and the first of them."""
    if not good.all():
        raise ValueError(f"{int((~good).sum())} {fault} (first: {first_of(values[~good])})")


def first_of(values: npt.NDArray[Any]) -> str:
    """Return the first of some values as Python writes it."""
    return repr(values[0].item() if isinstance(values[0], np.generic) else values[0])
