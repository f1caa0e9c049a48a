"""The interactions of all users in compressed (CSR) arrays; every part after the reader uses this form."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from recbole_hyper.data.tables.filters import by_user_and_time
from recbole_hyper.data.tables.ids import text_list
from recbole_hyper.files import read_json, replaced, write_json

Int64 = npt.NDArray[np.int64]
_STRETCH = 4 << 20  # interactions
_ARRAYS = ("offsets", "items", "times")
_TOKENS = ("user_tokens", "item_tokens")


@dataclass(frozen=True)
class SequenceStore:
    """Interactions of all users, each user's in stable time order.

    Attributes:
        offsets: (U + 1,) row ``u`` is ``items[offsets[u]:offsets[u + 1]]``.
        items: (nnz,) item ids from 1; 0 is padding and never occurs.
        times: (nnz,) float64 times in the unit of the data (usually Unix seconds).
        users: (U,) RecBole's user id of each row.
        user_tokens: (n_users,) original user ids by RecBole's id; entry 0 is padding.
        item_tokens: (n_items,) original item ids by RecBole's id; entry 0 is padding.
        parts: (U, 4) number of known, training, validation and test interactions of each row, in this order and each
            in time order, if the data came in parts; then a user may have several rows. If None, the whole row is in
            time order.
        columns: names of the columns in the source of the data, by field (user_id, item_id, timestamp), if known.
    """

    offsets: Int64
    items: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]
    users: Int64
    user_tokens: npt.NDArray[Any]
    item_tokens: npt.NDArray[Any]
    parts: Int64 | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_interactions(
        cls,
        users: npt.ArrayLike, items: npt.ArrayLike, times: npt.ArrayLike, user_tokens: npt.ArrayLike,
        item_tokens: npt.ArrayLike, parts: npt.NDArray[np.integer] | None = None,
    ) -> SequenceStore:  # fmt: skip
        """Group interactions by user and sort each user's stably by float64 time.

        Users and items (nnz,) are ids from 1; entry 0 of the tokens is padding. Times (nnz,) are finite. ``parts``
        (nnz,) are 0 for training, 1 for validation and 2 for test; each row has them in this order.
        """
        users, times = np.asarray(users), np.asarray(times, dtype=np.float64)
        users = users.astype(np.int64) if users.dtype.kind != "i" else users  # an empty list is float
        items = np.asarray(items, dtype=np.int32)
        if len(items) and items.min() < 1:
            raise ValueError("item ids start at 1; 0 is padding")
        if not np.isfinite(times).all():
            raise ValueError(f"{int((~np.isfinite(times)).sum())} interactions have no finite time; drop them")
        counts = np.bincount(users)
        present, sizes = np.flatnonzero(counts), None
        if parts is not None:
            order = np.lexsort((times, parts, users))
            items, times = items[order], times[order]
            sizes = np.bincount(users.astype(np.int64) * 4 + 1 + parts, minlength=4 * len(counts)).reshape(-1, 4)
            sizes = sizes[present]
        elif not np.all((users[1:] > users[:-1]) | ((users[1:] == users[:-1]) & (times[1:] >= times[:-1]))):
            order = by_user_and_time(users, times)
            items, times = items[order], times[order]
        offsets = np.concatenate([[0], np.cumsum(counts[present])]).astype(np.int64)
        return cls(offsets, items, times, present, _tokens(user_tokens), _tokens(item_tokens), sizes)

    @property
    def n_rows(self) -> int:
        """Number of users with at least one interaction."""
        return len(self.offsets) - 1

    @property
    def n_items(self) -> int:
        """Number of item ids, padding included."""
        return len(self.item_tokens)

    @property
    def lengths(self) -> Int64:
        """(U,) number of interactions of each row."""
        return np.diff(self.offsets)

    def row(self, row: int) -> npt.NDArray[np.int32]:
        """Return the item ids of one row."""
        return self.items[self.offsets[row] : self.offsets[row + 1]]

    def prefix_index(self, lengths: Int64) -> Int64:
        """Return the indices into ``items`` of the first ``lengths[u]`` interactions of every row."""
        return ranges(self.offsets[:-1], lengths)

    def select(self, keep: npt.NDArray[np.bool_]) -> SequenceStore:
        """Return a store of the interactions where ``keep`` (nnz,) is True; rows keep their numbers."""
        lengths = np.add.reduceat(np.append(keep, False).astype(np.int64), self.offsets[:-1])
        lengths[self.lengths == 0] = 0
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return replace(self, offsets=offsets, items=self.items[keep], times=self.times[keep], parts=None)

    @property
    def row_of(self) -> Int64:
        """(nnz,) row of each interaction."""
        return np.repeat(np.arange(self.n_rows), self.lengths)

    @property
    def positions(self) -> Int64:
        """(nnz,) position of each interaction in its row."""
        return ranges(np.zeros(self.n_rows, dtype=np.int64), self.lengths)

    def matrix(self, lengths: Int64 | None = None) -> scipy.sparse.csr_matrix:
        """Return the binary (U, n_items) matrix of the first ``lengths[u]`` interactions (None: all) of every row."""
        lengths = self.lengths if lengths is None else lengths
        return binary_matrix(self.items[self.prefix_index(lengths)], lengths, self.n_items)

    def fingerprint(self) -> str:
        """Return a digest of users, items, times, tokens and their order."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for array in (self.offsets, self.items, self.times, self.users, self.parts):
            if array is None:
                continue
            digest.update(np.ascontiguousarray(array).data.cast("B"))  # no copy
        for tokens in (self.user_tokens, self.item_tokens):
            for start in range(0, len(tokens), 1 << 16):  # as Python strings, all would take ten times their bytes
                text = "\n".join(tokens[start : start + (1 << 16)].tolist())
                digest.update(f"\n{text}".encode() if start else text.encode())
        return digest.hexdigest()[:32]

    def save(self, folder: Path) -> None:
        """Write the arrays as .npy files that :meth:`load` maps into memory, and ``meta.json`` last."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*_ARRAYS, "users", *_TOKENS):
            write_texts(folder, name, getattr(self, name))
        if self.parts is not None:
            write_array(folder / "parts.npy", self.parts)
        meta: dict[str, Any] = {"fingerprint": self.fingerprint()}
        meta |= {"parts": True} if self.parts is not None else {}
        meta |= {"columns": dict(self.columns)} if self.columns else {}
        write_json(folder / "meta.json", meta)

    @classmethod
    def load(cls, folder: Path) -> SequenceStore:
        """Map a saved store into memory."""
        meta = read_json(folder / "meta.json")
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS}
        for name in ("users", "parts") if meta.get("parts") else ("users",):
            arrays[name] = np.load(folder / f"{name}.npy", allow_pickle=False)
        arrays |= {name: read_texts(folder, name) for name in _TOKENS}
        store = cls(**arrays, columns=meta.get("columns") or {})
        store.__dict__["_fingerprint"] = meta["fingerprint"]
        return store

    def counts(self, lengths: Int64 | None = None) -> Int64:
        """Return (n_items,) how often each item occurs in the first ``lengths[u]`` interactions of the rows."""
        total = np.zeros(self.n_items, dtype=np.int64)
        lengths = self.lengths if lengths is None else lengths
        for rows in self.stretches():
            index = ranges(self.offsets[:-1][rows], lengths[rows])
            total += np.bincount(self.items[index], minlength=self.n_items)
        return total

    def newest_counts(self, lengths: Int64, share: float) -> Int64:
        """Return the :meth:`counts` of the newest ``share`` of those interactions by time, equal times together."""
        blocks = [(self.offsets[:-1][rows], lengths[rows]) for rows in self.stretches()]
        times, items = (np.concatenate([part[ranges(*block)] for block in blocks]) for part in (self.times, self.items))
        newest = times >= np.quantile(times, 1 - share) if len(times) else slice(None)
        return np.bincount(items[newest], minlength=self.n_items)

    def stretches(self) -> Iterator[slice]:
        """Yield slices of rows with a few million interactions each: an index of all takes twice their memory."""
        edges = np.searchsorted(self.offsets, np.arange(0, len(self.items), _STRETCH)[1:]).tolist()
        for start, stop in itertools.pairwise([0, *edges, self.n_rows]):
            yield slice(start, stop)


def _tokens(texts: npt.ArrayLike) -> npt.NDArray[Any]:
    plain = isinstance(texts, np.ndarray) and texts.dtype.kind in "UO"
    return texts if plain else text_list(texts)  # type: ignore[arg-type, return-value]


def write_texts(folder: Path, name: str, array: npt.NDArray[Any]) -> None:
    """Write an array under a name; texts of very different lengths as their bytes and the end of each."""
    if array.dtype != object:
        write_array(folder / f"{name}.npy", array)
        return
    texts = [text.encode("utf-8") for text in array.tolist()]
    write_array(folder / f"{name}.bytes.npy", np.frombuffer(b"".join(texts), np.uint8))
    write_array(folder / f"{name}.ends.npy", np.cumsum([len(text) for text in texts]))


def read_texts(folder: Path, name: str) -> npt.NDArray[Any]:
    """Read what :func:`write_texts` wrote."""
    if (folder / f"{name}.npy").is_file():
        return np.load(folder / f"{name}.npy", allow_pickle=False)
    data = np.load(folder / f"{name}.bytes.npy", allow_pickle=False).tobytes()
    ends = np.load(folder / f"{name}.ends.npy", allow_pickle=False).tolist()
    return np.array([data[start:stop].decode("utf-8") for start, stop in itertools.pairwise([0, *ends])], dtype=object)


def write_array(path: Path, array: npt.NDArray) -> None:
    """Write ``array`` as an .npy file that can be mapped into memory; NoSpaceError if the disk is full."""
    with replaced(path) as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def binary_matrix(items: npt.NDArray[np.integer], lengths: Int64, n_items: int) -> scipy.sparse.csr_matrix:
    """Return the (rows, n_items) matrix with ones at ``items``; each row has the next ``lengths[row]`` of them."""
    entries = np.ones(len(items), dtype=np.float32), items.astype(np.int64), np.concatenate([[0], np.cumsum(lengths)])
    matrix = scipy.sparse.csr_matrix(entries, shape=(len(lengths), n_items))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def matrix_fingerprint(matrix: scipy.sparse.csr_matrix) -> str:
    """Return a digest of the shape and the nonzero positions: equal for equal training data."""
    matrix = scipy.sparse.csr_matrix(matrix, copy=True)
    matrix.sum_duplicates()
    digest = hashlib.sha256(repr(matrix.shape).encode())
    digest.update(matrix.indptr.astype(np.int64).tobytes())
    digest.update(matrix.indices.astype(np.int64).tobytes())
    return digest.hexdigest()[:32]


def ranges(starts: Int64, lengths: Int64) -> Int64:
    """Concatenate ``arange(start, start + length)`` of every pair, without a loop."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - lengths - starts, lengths)
