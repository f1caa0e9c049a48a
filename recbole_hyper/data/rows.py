"""The rows of a source, file or frame, unchecked: blocks of text, batches of parquet, columns of a frame."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recbole_hyper.data import parsers
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.blocks import Block, blocks
from recbole_hyper.data.formats import Format
from recbole_hyper.data.ids import column_of_values, is_list
from recbole_hyper.data.malformed import Malformed
from recbole_hyper.data.parsers import Rows
from recbole_hyper.errors import DataError

# parsers of text by kind; parquet is the one kind that is none
PARSERS = {
    "delimited": parsers.delimited,
    "csv": parsers.delimited,
    "atomic": parsers.delimited,
    "json": parsers.json_lines,
    "literals": parsers.literals,
    "records": parsers.records,
    "sequences": parsers.sequences,
    "mind": parsers.mind,
}
PARQUET_ROWS = 1 << 19
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*[{\]]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark call the folder of rows without a value


@dataclass(frozen=True)
class Frame:
    """A pandas or polars DataFrame, or an Arrow table or batch; its rows count from 0."""

    frame: Any
    where: str = "the frame"

    def __str__(self) -> str:
        return self.where

    @property
    def names(self) -> list[str]:
        """Names of the columns; DataError where there are none to have."""
        if isinstance(self.frame, pa.Table | pa.RecordBatch):
            return [str(name) for name in self.frame.schema.names]
        if hasattr(self.frame, "columns"):
            return [str(name) for name in self.frame.columns]
        kind = type(self.frame).__name__
        raise DataError(f"interactions are a {kind}; give a pandas or polars DataFrame or Arrow table")

    def rows(self, columns: Mapping[str, str]) -> Rows:
        """Return ``columns``, a name by field."""
        names = self.names
        found = {field: self._column(names.index(name), name) for field, name in columns.items()}
        size = len(next(iter(found.values())))
        return Rows(found, np.arange(size))

    def _column(self, place: int, name: str) -> pa.Array:
        """Return one column of any frame; others are not converted."""
        if hasattr(self.frame, "iloc"):
            values: Any = self.frame.iloc[:, place]
        else:
            table = self.frame
            if not isinstance(table, pa.Table | pa.RecordBatch):
                table = table.to_arrow() if hasattr(table, "to_arrow") else pa.table(table)
            values = table.column(place)
        try:
            column = column_of_values(values)
        except DataError as error:
            raise DataError(f"{self.where}, column {name!r}, {error}") from error
        if column is None:
            raise DataError(f"{self.where}: the column {name!r} cannot be read")
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


Source = SourceFile | Frame


def pieces(source: Source, form: Format, progress: bool | None) -> Iterator[Block | Rows]:
    """Yield the blocks of texts, the batches of parquet files, a frame as a whole."""
    if isinstance(source, Frame):
        yield exploded(source.rows(form.columns or {}), source.where)
        return
    for part in source.parts or (source,):
        name, shown = part.name if source.parts else "", False if source.parts else progress
        if form.kind == "parquet":
            yield from _batches(part, source, form, shown)
        else:
            for block in _text(part, form, shown):
                yield replace(block, part=name) if name else block


def _text(part: SourceFile, form: Format, progress: bool | None) -> Iterator[Block]:
    array = form.kind == "json" and _ARRAY.match(part.first_bytes(1 << 12, form.encoding))
    with part.open(progress=progress, encoding=form.encoding) as stream:
        if not array:
            quotes = form.separator or "" if form.quoted else ""
            end = b"\n\n" if form.kind == "records" else b"\n"
            yield from blocks(stream, str(part), end=end, quotes=quotes)
            return
        number = 1
        for data in parsers.array_lines(stream, str(part)):
            yield Block(data, number)
            number += data.count(b"\n")


def parsed(piece: Block | Rows, form: Format, malformed: Malformed) -> Rows:
    """Return the rows of a piece."""
    if isinstance(piece, Rows):
        return piece
    rows = PARSERS[form.kind](piece, form, malformed)
    return replace(rows, part=piece.part) if piece.part else rows


def _batches(part: SourceFile, whole: SourceFile, form: Format, progress: bool | None) -> Iterator[Rows]:
    columns, before, name = form.columns or {}, 0, part.name if whole.parts else ""
    with part.open(progress=progress) as stream:
        source, named = pq.ParquetFile(pa.PythonFile(stream, mode="r")), hive_keys(part, whole)
        top = {
            column: column if column in source.schema_arrow.names else column.split(".")[0]
            for column in columns.values()
        }
        inside = {column: name for column, name in top.items() if name in source.schema_arrow.names}
        if lost := sorted(set(columns.values()) - set(inside) - set(named)):
            raise DataError(f"{part} has no column {', '.join(lost)}, which other parts have")
        for batch in source.iter_batches(PARQUET_ROWS, columns=sorted(set(inside.values()))):
            given: dict[str, Any] = {
                key: pa.repeat(pa.scalar(value, pa.string()), len(batch)) for key, value in named.items()
            }
            given |= {column: _nested(batch.column(name), column, name) for column, name in inside.items()}
            lines = np.arange(before + 1, before + len(batch) + 1)
            yield exploded(Rows({field: given[column] for field, column in columns.items()}, lines, name), str(part))
            before += len(batch)


def _nested(values: pa.Array, column: str, name: str) -> pa.Array:
    """Return a field of structures, or of lists of structures, that ``column`` names after a dot."""
    for key in column[len(name) + 1 :].split(".") if column != name else ():
        if is_list(values):
            lengths = pc.fill_null(pc.list_value_length(values), 0)
            offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy())])
            values = pa.LargeListArray.from_arrays(pa.array(offsets), _nested(pc.list_flatten(values), f"x.{key}", "x"))
        else:
            try:
                values = pc.struct_field(values, key)
            except (pa.ArrowException, KeyError) as error:
                raise DataError(f"the column {column!r}: {name!r} has no field {key!r}") from error
    return values


def exploded(rows: Rows, where: str) -> Rows:
    """Return a row for each entry where item, time or rating are lists, beside which other columns are repeated."""
    lists = {field: column for field, column in rows.columns.items() if is_list(column)}
    if "user_id" in lists or not {"item_id", "timestamp", "rating"} & set(lists):
        return rows
    lengths = [pc.fill_null(pc.list_value_length(column), 0).to_numpy() for column in lists.values()]
    for others in lengths[1:]:
        if len(bad := np.flatnonzero(others != lengths[0])):
            line, both = rows.lines[bad[0]], f"{lengths[0][bad[0]]} and {others[bad[0]]}"
            raise DataError(f"{where}, row {line}: the lists of {' and '.join(lists)} have {both} entries")
    index = np.repeat(np.arange(len(rows.lines)), lengths[0])
    columns = {
        field: pc.list_flatten(column) if field in lists else column.take(pa.array(index))
        for field, column in rows.columns.items()
    }
    return Rows(columns, rows.lines[index], rows.part)


def hive_keys(part: SourceFile, whole: SourceFile) -> dict[str, str | None]:
    """Return the values that a part's folders, called ``key=value``, give to all of its rows."""
    folders = part.path.relative_to(whole.path).parts[:-1] if whole.parts else ()
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    return {
        urllib.parse.unquote(key): None if value == _NO_VALUE else urllib.parse.unquote(value) for key, value in pairs
    }
