"""What a recommender passes to a model and gets back: histories, scores, best items. Imports no torch."""

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
from recbole_hyper.kernels import LOWEST

Int64 = npt.NDArray[np.int64]
# numpy sorts fewer scores, of fewer items, before a kernel is compiled or loaded
KERNEL_FROM, LARGE_CATALOGUE = 1 << 22, 1 << 14


@dataclass(frozen=True)
class Query:
    """Histories of known items: history ``i`` is ``items[offsets[i]:offsets[i + 1]]``, oldest first.

    Attributes:
        names, owners: (n,) names and numbers of their users; number 0 is an unknown user.
        warm: (n,) True if the model can score the history; the others get popular items.
        times: times of the items, for a model that reads times; None means all equal.
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
        """Return the histories at ``rows``, without the counts of skipped ids."""
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        lengths = np.diff(self.offsets)[rows]
        index = ranges(self.offsets[rows], lengths)
        times = None if self.times is None else self.times[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Query(self.names[rows], self.owners[rows], offsets, self.items[index], self.warm[rows], times)

    def require_warm(self) -> None:
        """Raise ValueError unless the model can score all histories."""
        require_all(self.warm, self.names, "histories have no item that the model knows")


def plain_query(histories: Sequence[list[int]], times: Sequence[list[float]] | None = None) -> Query:
    """Return the query of histories of item numbers without users; their names are the numbers from 0."""
    n = len(histories)
    items = np.array([item for history in histories for item in history], dtype=np.int32)
    flat_times = None if times is None else np.array([time for row in times for time in row], dtype=np.float64)
    offsets = np.cumsum([0, *map(len, histories)]).astype(np.int64)
    return Query(np.arange(n), np.zeros(n, dtype=np.int64), offsets, items, np.diff(offsets) > 0, flat_times)


def joined(queries: Sequence[Query]) -> Query:
    """Concatenate queries; the names are the numbers from 0."""
    owners, items, warm = (np.concatenate([getattr(q, name) for q in queries]) for name in ("owners", "items", "warm"))
    offsets = np.cumsum([0, *np.concatenate([np.diff(one.offsets) for one in queries])])
    # a history without times has equal ones
    given = [np.zeros(len(one.items)) if one.times is None else one.times for one in queries]
    times = None if all(one.times is None for one in queries) else np.concatenate(given)
    return Query(np.arange(len(owners)), owners, offsets, items, warm, times)


def array_digest(value: Any) -> str:
    """Return a digest of a dataclass of arrays, mappings to arrays, and plain values."""
    sha256 = hashlib.sha256()
    for entry in fields(value):
        part = getattr(value, entry.name)
        if isinstance(part, dict):
            part = {name: values.tolist() for name, values in sorted(part.items())}
        if isinstance(part, np.ndarray):
            part = part.tolist() if part.dtype == object else part.tobytes()
        sha256.update(f"\n{entry.name} ".encode() + (part if isinstance(part, bytes) else repr(part).encode()))
    return sha256.hexdigest()[:32]


def require_all(good: npt.NDArray[np.bool_], values: npt.NDArray[Any], fault: str) -> None:
    """Raise ValueError with the number of ``values`` that are not ``good``, their fault, and the first of them."""
    if not good.all():
        raise ValueError(f"{int((~good).sum())} {fault} (first: {first_of(values[~good])})")


def first_of(values: npt.NDArray[Any]) -> str:
    """Return the first value as Python prints it."""
    return repr(values[0].item() if isinstance(values[0], np.generic) else values[0])


Scores = npt.NDArray[np.float32]


class Scorer:
    """A model as a recommender uses it: scores, states, vectors and similarity of items.

    ``model`` is the torch model, None in a process that serves a graph. ``features`` names the item features that it
    reads. If ``reads_times``, scores depend on the times of the items. If ``learns_users``, it has a vector for each
    user and can score no others.
    """

    model: Any = None
    features: tuple[str, ...] = ()
    reads_times = False
    learns_users = False

    @property
    def block(self) -> int:
        """Number of histories to score at once."""
        return 256

    def scores(self, query: Query) -> Scores:
        """Return the scores (n, n_items) after the histories of ``query``; the caller may overwrite them."""
        raise NotImplementedError

    def vectors(self) -> Scores | None:
        """Return the vectors (n_items, d) of all items, padding included, or None."""
        return None

    def similarity(self, numbers: npt.NDArray[np.int64]) -> tuple[str, Scores] | None:
        """Return (name of the measure, similarity (q, n_items) of the items ``numbers`` (q,)); None without vectors."""
        return None

    def add_items(self, tokens: npt.NDArray[np.str_], table: pa.Table) -> None:
        """Append items with the ids ``tokens`` (m,) and their features in ``table``.

        ConfigError if the model does not score items by features; DataError for unusable features.
        """
        raise ConfigError("this model reads no features of items, so it cannot score new ones")

    def states(self, query: Query) -> Scores:
        """Return the states (n, d) after histories; ConfigError for a model without states."""
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

    A row with fewer items ends with item 0 and score -inf. ``scores`` (n, n_items) are overwritten; column 0 is
    padding. Row i leaves out the items ``excluded[offsets[i]:offsets[i + 1]]``; all rows leave out the items that are
    True in ``hidden`` (n_items,). NonFiniteScoreError if the score of another item is NaN or infinite.
    """
    scores[:, 0] = LOWEST
    if hidden is not None:
        scores[:, hidden] = LOWEST
    if offsets is not None and excluded is not None:
        scores[np.repeat(np.arange(len(scores)), np.diff(offsets)), excluded] = LOWEST
    if scores.size < KERNEL_FROM and scores.shape[1] < LARGE_CATALOGUE:
        bad, top = ~np.isfinite(scores).all(axis=1), _best_of_few(scores, k)
    else:
        from recbole_hyper.kernels.ranks import rank_rows  # imports numba only for a search of many scores

        nothing = np.zeros(len(scores) + 1, np.int64)
        *_, top, bad = rank_rows(scores, nothing[1:], nothing, np.empty(0, np.int32), nothing[:0], k)
    if bad.any():
        raise NonFiniteScoreError(
            f"{int(bad.sum())} of {len(scores)} rows have scores that are not finite (first: row {int(bad.argmax())}); "
            "the model has diverged: lower learning_rate or set clip_grad_norm"
        )
    return top, np.where(top == 0, np.float32(-np.inf), np.take_along_axis(scores, top.astype(np.int64), axis=1))


def _best_of_few(scores: Scores, k: int) -> npt.NDArray[np.int32]:
    """Return the k best items (n, k) of each row, equal scores in item order; 0 where only excluded items are left."""
    place = scores.shape[1] - min(k, scores.shape[1])
    least = np.partition(scores, place, axis=1)[:, place, None]
    rows, items = np.nonzero((scores >= least) & (scores > LOWEST))
    order = np.lexsort((-scores[rows, items], rows))  # stable, so equal scores stay in item order
    places = np.arange(len(rows)) - np.searchsorted(rows, rows)
    top, listed = np.zeros((len(scores), k), np.int32), places < k
    top[rows[listed], places[listed]] = items[order][listed]
    return top
