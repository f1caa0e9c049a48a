"""Anyone's own tables: csv files and parquet files, with the columns named by the user."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.delimited import Header, read_delimited

FIELDS = ("user_id", "item_id", "timestamp", "rating")
PARQUET_ROWS = 1 << 19


def _chosen(columns: Mapping[str, str] | None, names: list[str], file: str) -> dict[str, str]:
    """Return field to column: the user's, else the column of the field's own name; the rating may be missing."""
    chosen = {field: (columns or {}).get(field, field) for field in FIELDS}
    if "rating" not in (columns or {}) and "rating" not in names:
        del chosen["rating"]
    missing = sorted(set(chosen.values()) - set(names))
    if missing:
        raise PrepareError(
            f"{file} has no column {', '.join(missing)}; its columns: {', '.join(names)}. "
            "Name them by --columns=user_id=...,item_id=...,timestamp=...[,rating=...]"
        )
    return chosen


def read_csv(
    stream: BinaryIO,
    malformed: Malformed,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str = ",",
    header: bool = True,
    time_format: str = "unix",
) -> Iterator[RawChunk]:
    """Yield the rows of a csv file, whose values may stand in double quotes.

    ``header`` says whether the first line names the columns; without it ``columns`` has numbers, from 1.

    Raises:
        PrepareError: a column is missing, or none is named where there is no header.
    """
    buffered = io.BufferedReader(cast(io.RawIOBase, stream))
    first = buffered.readline()
    line = first.decode("utf-8-sig", "replace").rstrip("\r\n")
    quoted = separator != "::"
    cells = next(csv.reader([line], delimiter=separator[:1]), []) if quoted else line.split(separator)
    names = [cell.strip() for cell in cells] if header else [str(number) for number in range(1, len(cells) + 1)]
    if not header and not columns:
        raise PrepareError(
            f"{malformed.name}: without a header the columns are named by number, from 1: "
            "--columns=user_id=1,item_id=2,timestamp=4"
        )
    if len(set(names)) < len(names):
        raise PrepareError(f"{malformed.name}: two columns have the same name in {', '.join(names)}; rename one")
    rest = cast(BinaryIO, buffered if header else io.BufferedReader(_Prepended(first, cast(BinaryIO, buffered))))
    yield from read_delimited(
        rest,
        malformed,
        Header(names, _chosen(columns, names, malformed.name), lines=int(header)),
        separator=separator,
        quoted=quoted,
        time_format=time_format,
    )


class _Prepended(io.RawIOBase):
    """A stream with some bytes, read ahead, put back in front."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._first:
            return self._rest.readinto(buffer)  # type: ignore[attr-defined]
        count = min(len(buffer), len(self._first))
        buffer[:count], self._first = self._first[:count], self._first[count:]
        return count


def read_parquet(
    stream: BinaryIO, malformed: Malformed, *, columns: Mapping[str, str] | None = None, time_format: str = "unix"
) -> Iterator[RawChunk]:
    """Yield the rows of a parquet file, whose stream must allow jumps; times may be timestamps, numbers or text.

    Raises:
        PrepareError: the file is not parquet, or a column is missing.
    """
    try:
        file = pq.ParquetFile(pa.PythonFile(stream, mode="r"))
    except (pa.ArrowInvalid, OSError) as error:
        raise PrepareError(f"{malformed.name} is not a parquet file that can be read: {error}") from error
    chosen = _chosen(columns, list(file.schema_arrow.names), malformed.name)
    before = 0
    for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=sorted(set(chosen.values())), use_threads=False):
        fields = {field: _plain(batch.column(name)) for field, name in chosen.items()}
        lines = np.arange(before + 1, before + batch.num_rows + 1, dtype=np.int64)
        before += batch.num_rows
        yield RawChunk.of(fields, lines, time_format)


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column
