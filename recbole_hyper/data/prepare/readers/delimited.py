"""Lines of values between separators: MovieLens, Amazon ratings, Gowalla, Behance, csv files and atomic files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.blocks import BLOCK_BYTES


@dataclass(frozen=True)
class Header:
    """What is known of the lines of a delimited file.

    Attributes:
        names: names of all columns in order.
        columns: which column holds which field: keys user_id, item_id, timestamp and, optionally, rating.
        lines: how many lines the caller has already taken from the stream; for line numbers.
    """

    names: Sequence[str]
    columns: Mapping[str, str]
    lines: int = 0


def read_delimited(
    stream: BinaryIO,
    malformed: Malformed,
    header: Header,
    *,
    separator: str = "\t",
    quoted: bool = False,
    time_format: str = "unix",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RawChunk]:
    """Yield the lines of a delimited file, about 16 MiB at a time; a line must fit into ``block_bytes``.

    Args:
        header: the columns.
        separator: one character, or the two characters ``::`` of MovieLens.
        quoted: values may stand in double quotes and then hold separators and line ends.

    Raises:
        PrepareError: a line is longer than a block.
    """
    if separator == "::":
        stream, separator = io.BufferedReader(_DoubleColons(stream), block_bytes), "\t"
    if len(separator) != 1:
        raise PrepareError(f"separator={separator!r} is not one character (or '::'); give --separator='\\t' for a tab")
    columns = header.columns
    wrong = _WrongLines(malformed, header.lines)
    kept = 0
    try:
        reader = pacsv.open_csv(
            stream,
            # one thread: only then are lines numbered
            pacsv.ReadOptions(column_names=list(header.names), use_threads=False, block_size=block_bytes),
            pacsv.ParseOptions(
                delimiter=separator,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
                ignore_empty_lines=False,
                invalid_row_handler=wrong,
            ),
            pacsv.ConvertOptions(
                include_columns=sorted(set(columns.values())),
                column_types={name: pa.binary() for name in columns.values()},
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            fields = {field: batch.column(name) for field, name in columns.items()}
            lines = wrong.lines(kept, batch.num_rows)
            kept += batch.num_rows
            filled = np.logical_or.reduce([np.asarray(pc.binary_length(column)) > 0 for column in fields.values()])
            if not filled.all():
                mask = pa.array(filled)
                fields = {field: column.filter(mask) for field, column in fields.items()}
                lines = lines[filled]
            yield RawChunk.of(fields, lines, time_format)
    except pa.ArrowInvalid as error:
        if malformed.hopeless:
            malformed.check()
        raise PrepareError(f"{malformed.name} cannot be read as values separated by {separator!r}: {error}") from error


class _WrongLines:
    """Told by Arrow of each line with a wrong number of values; turns counts of good rows into line numbers."""

    def __init__(self, malformed: Malformed, lines_before: int) -> None:
        self.malformed = malformed
        self.lines_before = lines_before
        self.numbers: list[int] = []

    def __call__(self, row: pacsv.InvalidRow) -> str:
        self.numbers.append(row.number)
        reason = f"{row.actual_columns} values instead of {row.expected_columns}"
        self.malformed.add(row.number + self.lines_before, reason, row.text)
        return "error" if self.malformed.hopeless else "skip"

    def lines(self, first: int, count: int) -> np.ndarray:
        """Return the line numbers, from 1, of ``count`` good rows after the first ``first`` good rows."""
        rows = np.arange(first + 1, first + count + 1, dtype=np.int64)
        wrong = np.sort(np.asarray(self.numbers, np.int64))
        # before the i-th wrong line stand wrong[i] - i good ones
        return rows + np.searchsorted(wrong - np.arange(len(wrong)), rows, side="right") + self.lines_before


class _DoubleColons(io.RawIOBase):
    """A stream with every ``::`` turned into a tab, since Arrow knows separators of one character only."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._carry = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._stream.read(len(buffer))
            last = not data
            data = self._carry + data
            self._carry = b""
            if not data:
                return 0
            if not last and (len(data) - len(data.rstrip(b":"))) % 2:
                # the other half of this colon's pair may come with the next read
                data, self._carry = data[:-1], data[-1:]
            self._ready = data.replace(b"::", b"\t")
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
