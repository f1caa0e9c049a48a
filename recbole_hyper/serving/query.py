"""Histories as a recommender reads them, and the interface of a model to it, in numpy. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.data.sequences import ranges
from recbole_hyper.errors import ConfigError, NonFiniteScoreError

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
    owners, items, warm = (np.concatenate([getattr(q, name) for q in queries]) for name in ("owners", "items", "warm"))
    offsets = np.cumsum([0, *np.concatenate([np.diff(one.offsets) for one in queries])])
    times = None if any(one.times is None for one in queries) else np.concatenate([one.times for one in queries])
    return Query(np.arange(len(owners)), owners, offsets, items, warm, times)


def array_digest(value: Any) -> str:
    """Return a digest of a dataclass of arrays, mappings to arrays, and plain values."""
    state = hashlib.sha256()
    for entry in fields(value):
        part = getattr(value, entry.name)
        if isinstance(part, dict):
            part = {name: values.tolist() for name, values in sorted(part.items())}
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


Scores = npt.NDArray[np.float32]


class Scorer:
    """Scores of histories, similarity of items, states and vectors of a model.

    ``model`` is the torch model, None in a process that serves a graph; ``features`` names the item features that it
    reads. ``reads_times``: scores depend on when items were chosen. ``learns_users``: it answers for its users only.
    """

    model: Any = None
    features: tuple[str, ...] = ()
    reads_times = False
    learns_users = False

    @property
    def block(self) -> int:
        """Number of histories that are scored at once."""
        return 256

    def scores(self, query: Query) -> Scores:
        """Return the scores (n, n_items) after the histories of ``query``, an array that may be written over."""
        raise NotImplementedError

    def vectors(self) -> Scores | None:
        """Return the vectors (n_items, d) of all items, padding included; None for a model without."""
        return None

    def similarity(self, numbers: npt.NDArray[np.int64]) -> tuple[str, Scores] | None:
        """Return (what is measured, similarity (q, n_items) of the items ``numbers`` (q,)); None without vectors."""
        return None

    def add_items(self, tokens: npt.NDArray[np.str_], table: pa.Table) -> None:
        """Append items with the ids ``tokens`` (m,), by their features in ``table``.

        ConfigError for a model that does not score items by features; DataError for features that cannot be used.
        """
        raise ConfigError("this model reads no features of items, so it takes no new ones")

    def states(self, query: Query) -> Scores:
        """Return the states (n, d) behind histories; ConfigError for a model without."""
        raise ConfigError("this model has no states: it scores histories as a whole")


def best_items(
    scores: Scores,
    k: int,
    *,
    offsets: Int64 | None = None,
    excluded: Int64 | None = None,
    hidden: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int32], Scores]:
    """Return the k best items (n, k) of each row and their scores (n, k), best first, equal scores in item order.

    A row that has fewer items ends with item 0 and score -inf. ``scores`` (n, n_items) are overwritten; column 0 is
    padding. Row i leaves out the items ``excluded[offsets[i]:offsets[i + 1]]``, and every row those that are True in
    ``hidden`` (n_items,). NonFiniteScoreError for NaN or an infinite score of an item that is not left out.
    """
    from recbole_hyper.kernels.ranks import LOWEST, rank_rows  # numba is imported when something is searched

    if hidden is not None:
        scores[:, hidden] = LOWEST
    if offsets is not None and excluded is not None:
        scores[np.repeat(np.arange(len(scores)), np.diff(offsets)), excluded] = LOWEST
    nothing = np.zeros(len(scores) + 1, np.int64)
    *_, top, bad = rank_rows(scores, nothing[1:], nothing, np.empty(0, np.int32), nothing[:0], k)
    if bad.any():
        raise NonFiniteScoreError(
            f"{int(bad.sum())} of {len(bad)} rows have scores that are not finite (first: row {int(bad.argmax())}); "
            "the model has diverged: lower learning_rate or set clip_grad_norm"
        )
    return top, np.where(top == 0, np.float32(-np.inf), np.take_along_axis(scores, top.astype(np.int64), axis=1))
