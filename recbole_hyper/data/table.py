"""An .inter file as columns: ids as codes in order of first appearance, numbers as float64, a piece of the file at a
time."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.atomic import PAD, Text, header, nothing_in, without_time
from recbole_hyper.data.ids import Tokens
from recbole_hyper.errors import DataError
from recbole_hyper.threads import Pool

_PIECE = 48 << 20
# from this many bytes on, a table of the different texts is worth the loading of its kernel
_LARGE = 128 << 20


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

    def __len__(self) -> int:
        columns = [column.codes for column in self.tokens.values()]
        return len(columns[0] if columns else next(iter(self.numbers.values())))


# what one piece of the file gives: a column per name, and the line of each row
_Piece = tuple[dict[str, pa.Array], range | npt.NDArray[np.int64]]


def read_table(
    paths: Sequence[Path],
    columns: Mapping[str, str],
    *,
    ids: Collection[str],
    finite: str | None,
    separator: str = "\t",
    encoding: str | None = None,
) -> tuple[Table, list[int]]:
    """Read token and float ``columns`` of files, one below the other, and return also the number of rows of each.

    Values are those of :func:`atomic.read_atomic`; a missing token that is no id is one like others. DataError as
    there, and for a file without rows, a row whose column ``finite`` (None: no such column) is not finite, or a file
    that another process changed meanwhile.
    """
    before = [_signature(path) for path in paths]
    types = {name: pa.float64() if kind == "float" else pa.string() for name, kind in columns.items()}
    growing = {name: _Growing(kind, sum(size for size, _ in before)) for name, kind in types.items()}
    lines: list[list[range | npt.NDArray[np.int64]]] = [[] for _ in paths]
    with Pool() as readers, ThreadPoolExecutor(len(types)) as numberers:
        for path, lines_of_file in zip(paths, lines, strict=True):
            texts = Text.pieces(path, header(path, separator, encoding), separator, encoding, _PIECE)
            for piece, lines_of_piece in readers.stream(lambda text: _read_piece(text, types, ids), texts):
                # ids are numbered in the order of the file, a column in each thread, while the next pieces are read
                list(numberers.map(lambda name, piece=piece: growing[name].add(piece.pop(name)), types))
                lines_of_file.append(lines_of_piece)
    joined = {name: column.joined() for name, column in growing.items()}
    pa.default_memory_pool().release_unused()
    tokens = {name: column for name, column in joined.items() if isinstance(column, Codes)}
    table = Table(tokens, {name: column for name, column in joined.items() if not isinstance(column, Codes)})
    sizes, first = [sum(map(len, lines_of_file)) for lines_of_file in lines], 0
    for path, signature, size, lines_of_file in zip(paths, before, sizes, lines, strict=True):
        if _signature(path) != signature:
            raise DataError(f"{path} was written to while it was read; wait until the other program is done")
        if not size:
            raise nothing_in(path)
        rows = slice(first, first + size)
        if finite is not None and len(bad := np.flatnonzero(~np.isfinite(table.numbers[finite][rows]))):
            raise without_time(path, finite, len(bad), size, np.concatenate(lines_of_file)[bad[:5]].tolist())
        first += size
    return table, sizes


class _Growing:
    """A column that grows piece by piece; of text in a large file only numbers and different texts are kept."""

    def __init__(self, kind: pa.DataType, file_size: int) -> None:
        self._kind = kind
        self._table = Tokens() if kind == pa.string() and file_size >= _LARGE else None
        self._parts: list[Any] = []

    def add(self, values: pa.Array) -> None:
        self._parts.append(values if self._table is None else self._table.codes(values))

    def joined(self) -> Codes | npt.NDArray[np.float64]:
        if self._table is not None:
            return Codes(np.concatenate(self._parts), self._table.names())
        if self._kind == pa.string():
            return encoded(pa.chunked_array(self._parts, type=pa.string()))
        return np.concatenate([np.empty(0), *(part.to_numpy(zero_copy_only=False) for part in self._parts)])


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
        if pc.min(pc.binary_length(columns[name])).as_py() == 0 or pc.any(pc.equal(columns[name], PAD)).as_py():
            return _read_carefully(text, types, ids)
    return columns, range(text.first, text.first + len(table))


def _read_carefully(text: Text, types: Mapping[str, pa.DataType], ids: Collection[str]) -> _Piece:
    read, lines = text.columns(list(types))
    columns = {}
    for name, kind in types.items():
        if kind == pa.float64():
            columns[name] = pa.array(read[name].numbers())
        else:
            tokens = read[name].ids() if name in ids else read[name].values
            columns[name] = tokens.combine_chunks()
    return columns, lines


def encoded(column: pa.ChunkedArray) -> Codes:
    """Return a column of text as codes."""
    found = column.dictionary_encode().combine_chunks()
    found = found if isinstance(found, pa.DictionaryArray) else found.chunk(0)
    # a copy: Arrow's own memory cannot be written to
    return Codes(found.indices.to_numpy(zero_copy_only=False).astype(np.int32), found.dictionary)
