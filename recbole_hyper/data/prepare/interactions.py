"""The interactions of a data set in columns, and the builder that fills them chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.values import to_numbers, to_seconds, to_strings

Codes = npt.NDArray[np.int32]


@dataclass
class Interactions:
    """Columns of equal length; users and items are codes into their token arrays.

    Attributes:
        users: (n,) int32 codes, numbered by first appearance in the source.
        items: (n,) int32 codes, likewise.
        times: (n,) float64, Unix seconds (or positions, where the source has no times).
        ratings: (n,) float32, or None where the source has none.
        user_tokens: the source's names of the users, by code; may name users that no row has any more.
        item_tokens: the source's names of the items, by code.
    """

    users: Codes
    items: Codes
    times: npt.NDArray[np.float64]
    ratings: npt.NDArray[np.float32] | None
    user_tokens: pa.Array
    item_tokens: pa.Array

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Interactions:
        """Return the rows that a mask or an index names, in that order."""
        ratings = None if self.ratings is None else self.ratings[rows]
        return Interactions(
            self.users[rows], self.items[rows], self.times[rows], ratings, self.user_tokens, self.item_tokens
        )

    def in_order(self) -> Interactions:
        """Return the rows grouped by user, in time order within each; ties keep the source's order."""
        same_user = self.users[1:] == self.users[:-1]
        if np.all((self.users[1:] > self.users[:-1]) | (same_user & (self.times[1:] >= self.times[:-1]))):
            return self
        return self.take(np.lexsort((self.times, self.users)))


@dataclass
class RawChunk:
    """Some lines of a source as a reader gives them, unchecked.

    Attributes:
        users: strings (or bytes); empty or null means unreadable. Items likewise.
        times: strings (or bytes) in the format's notation of time, or numbers.
        ratings: strings (or bytes) or numbers, or None where the source has none.
        lines: (n,) int64, the number of each row's line in the file, from 1.
        time_format: how to read ``times``, see ``values.to_seconds``.
    """

    users: pa.Array
    items: pa.Array
    times: pa.Array
    ratings: pa.Array | None
    lines: npt.NDArray[np.int64]
    time_format: str = "unix"

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], lines: npt.NDArray[np.int64], time_format: str) -> RawChunk:
        """Make a chunk of columns by field: user_id, item_id, timestamp and, where there is one, rating."""
        rating = columns.get("rating")
        return cls(columns["user_id"], columns["item_id"], columns["timestamp"], rating, lines, time_format)


@dataclass
class InteractionBuilder:
    """Collects raw chunks: checks every value, numbers the tokens, keeps 20 bytes a row.

    Tokens are numbered chunk by chunk in Arrow's hash tables, and the chunks' tables are joined at the end.
    """

    malformed: Malformed
    _users: list[pa.DictionaryArray] = field(default_factory=list)
    _items: list[pa.DictionaryArray] = field(default_factory=list)
    _times: list[npt.NDArray[np.float64]] = field(default_factory=list)
    _ratings: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def add(self, chunk: RawChunk) -> None:
        """Check the chunk's values and keep the good rows; the others are counted as malformed.

        Raises:
            PrepareError: most of a long file cannot be read, so that there is no sense in going on.
        """
        users, users_good = to_strings(chunk.users)
        items, items_good = to_strings(chunk.items)
        times, times_good = to_seconds(chunk.times, chunk.time_format)
        good = users_good & items_good & times_good
        reasons = [("no user", users_good), ("no item", items_good), ("no time", times_good)]
        ratings = None
        if chunk.ratings is not None:
            ratings, ratings_good = to_numbers(chunk.ratings)
            good &= ratings_good
            reasons.append(("no rating", ratings_good))
        if not good.all():
            self._report(chunk, reasons, good)
            if self.malformed.hopeless:
                self.malformed.check()
            kept = pa.array(good)
            users, items = users.filter(kept), items.filter(kept)
            times = times[good]
            ratings = None if ratings is None else ratings[good]
        self.malformed.good += len(times)
        self._users.append(pc.dictionary_encode(users))
        self._items.append(pc.dictionary_encode(items))
        self._times.append(times)
        if ratings is not None:
            self._ratings.append(ratings.astype(np.float32))

    def _report(
        self, chunk: RawChunk, reasons: list[tuple[str, npt.NDArray[np.bool_]]], good: npt.NDArray[np.bool_]
    ) -> None:
        columns = [chunk.users, chunk.items, *([] if chunk.ratings is None else [chunk.ratings]), chunk.times]
        for row in np.flatnonzero(~good):
            reason = next(text for text, fine in reasons if not fine[row])
            shown = [column[int(row)].as_py() for column in columns]
            text = "\t".join(v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else str(v) for v in shown)
            self.malformed.add(int(chunk.lines[row]), reason, text)

    def finish(self) -> Interactions:
        """Join the chunks; raises PrepareError where too many lines were malformed or none was read."""
        self.malformed.check()
        users, user_tokens = _joined(self._users)
        items, item_tokens = _joined(self._items)
        times = np.concatenate(self._times)
        ratings = np.concatenate(self._ratings) if self._ratings else None
        self._times, self._ratings = [], []
        return Interactions(users, items, times, ratings, user_tokens, item_tokens)


def _joined(chunks: list[pa.DictionaryArray]) -> tuple[Codes, pa.Array]:
    column = pa.chunked_array(chunks, type=pa.dictionary(pa.int32(), pa.string())).unify_dictionaries()
    chunks.clear()
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return codes.astype(np.int32, copy=False), column.chunk(0).dictionary
