"""An .inter file as columns: ids as codes in order of first appearance, numbers as float64, a piece of the file at a
time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.data.atomic import PAD, DataError, Text, header
from recbole_hyper.threads import Pool

_PIECE = 48 << 20
_CODES = pa.dictionary(pa.int32(), pa.string())


@dataclass
class Codes:
    """A column of tokens: ``codes`` (n,) int32 into ``tokens``, which stand in order of first appearance."""

    codes: npt.NDArray[np.int32]
    tokens: pa.Array


@dataclass
class Table:
    """Columns of equal length by name: of tokens, and float64 numbers, NaN where missing."""

    tokens: dict[str, Codes]
    numbers: dict[str, npt.NDArray[np.float64]]

    def __contains__(self, name: str) -> bool:
        return name in self.tokens or name in self.numbers

    def column(self, name: str) -> Codes | npt.NDArray[np.float64]:
        """Return a column of either kind."""
        return self.tokens[name] if name in self.tokens else self.numbers[name]


@dataclass(frozen=True)
class _Piece:
    """What one piece of the file gives: a column per name, and the (n,) lines where they are not one after another."""

    columns: dict[str, pa.Array]
    first: int
    lines: npt.NDArray[np.int64] | None = None

    def line(self, row: int) -> int:
        return self.first + row if self.lines is None else int(self.lines[row])


def read_table(
    path: Path,
    columns: Mapping[str, str],
    *,
    ids: Collection[str],
    finite: str,
    separator: str = "\t",
    encoding: str | None = None,
) -> Table:
    """Read columns of token and float; blank lines are passed over, as by :func:`atomic.read_atomic`.

    Args:
        path: the file.
        columns: name and type (token or float) of the columns to read.
        ids: token columns in which every row has a value.
        finite: float column in which every row has a finite value.
        separator, encoding: of the text.

    Returns:
        the columns; a missing value in a column of tokens that holds no ids is a token like others.

    Raises:
        DataError: as :func:`atomic.read_atomic`; no rows at all; a row without a finite value; a file that another
            process changed meanwhile.
    """
    before = _signature(path)
    types = {name: pa.float64() if kind == "float" else _CODES for name, kind in columns.items()}
    entries = header(path, separator, encoding)
    with Pool() as pool:

        def read(text: Text) -> _Piece:
            return _read_piece(text, types, ids)

        pieces = pool.stream(read, Text.pieces(path, entries, separator, encoding, _PIECE))
        if _signature(path) != before:
            raise DataError(f"{path} was written to while it was read; wait until the other program is done")
        if not any(len(piece.columns[finite]) for piece in pieces):
            raise DataError(f"{path} holds no interactions, only a header; prepare the data set again")
        _require_finite(path, finite, pieces)

        def join(name: str) -> Codes | npt.NDArray[np.float64]:
            # what is joined is no longer kept in pieces
            return _joined([piece.columns.pop(name) for piece in pieces], types[name])

        joined = dict(zip(columns, pool.map(join, list(columns)), strict=True))
    pa.default_memory_pool().release_unused()
    tokens = {name: column for name, column in joined.items() if isinstance(column, Codes)}
    return Table(tokens, {name: column for name, column in joined.items() if not isinstance(column, Codes)})


def _signature(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _read_piece(text: Text, types: Mapping[str, pa.DataType], ids: Collection[str]) -> _Piece:
    """Read a piece the quick way, or, where it holds anything unusual, value by value with every check."""
    try:
        table = text.parsed(types)
    except pa.ArrowInvalid:
        return _read_carefully(text, types, ids)
    columns = {name: table.column(name).combine_chunks() for name in types}
    for name in ids:
        known = columns[name].dictionary
        if known.index("").as_py() >= 0 or known.index(PAD).as_py() >= 0:
            return _read_carefully(text, types, ids)
    return _Piece(columns, text.first)


def _read_carefully(text: Text, types: Mapping[str, pa.DataType], ids: Collection[str]) -> _Piece:
    read, lines = text.columns(list(types))
    columns = {}
    for name, kind in types.items():
        if kind == pa.float64():
            columns[name] = pa.array(read[name].numbers())
        else:
            tokens = read[name].ids() if name in ids else read[name].values
            columns[name] = tokens.combine_chunks().dictionary_encode()
    return _Piece(columns, text.first, lines)


def _require_finite(path: Path, name: str, pieces: list[_Piece]) -> None:
    wrong, count = 0, 0
    lines: list[int] = []
    for piece in pieces:
        values = _numbers(piece.columns[name])
        count += len(values)
        bad = np.flatnonzero(~np.isfinite(values))
        wrong += len(bad)
        lines += [piece.line(int(row)) for row in bad[: 5 - len(lines)]]
    if wrong:
        raise DataError(
            f"{path}: {wrong} of {count} rows have no finite {name!r} (first at line "
            f"{', '.join(map(str, lines))}); drop these rows or give them a time"
        )


def encoded(column: pa.ChunkedArray) -> Codes:
    """Return a column of text as codes."""
    return _codes([chunk.dictionary_encode() for chunk in column.chunks])


def _joined(parts: list[pa.Array], kind: pa.DataType) -> Codes | npt.NDArray[np.float64]:
    if kind == pa.float64():
        return np.concatenate([_numbers(part) for part in parts])
    return _codes(parts)


def _codes(parts: list[pa.Array]) -> Codes:
    """Join dictionary-encoded pieces, which are no longer kept."""
    column = pa.chunked_array(parts, type=_CODES).unify_dictionaries()
    parts.clear()
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return Codes(codes.astype(np.int32, copy=False), column.chunk(0).dictionary)


def _numbers(values: pa.Array) -> npt.NDArray[np.float64]:
    return values.to_numpy(zero_copy_only=False)
