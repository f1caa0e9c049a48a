"""RecBole's atomic files as text that means itself: the reader of ``.inter``, ``.user``, ``.item`` and their like.

The first line names the columns as ``name:type``. A line ends at LF or CRLF, a value at the separator. There are no
quotation marks, no escapes and no comments, and an id is any text: ``NA``, ``null`` and ``"`` are names like others.
Wholly blank lines are passed over. Whatever else differs from this is one error that names the file and the line.
"""

from __future__ import annotations

import codecs
import dataclasses
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

TYPES = ("token", "float", "token_seq", "float_seq")
PAD = "[PAD]"
# what RecBole, through pandas, takes for a missing value of a feature; never for an id
MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_BLOCK_BYTES = 64 << 20  # a line must fit
_SHOWN = 120  # characters of a line that an error shows
_STAND_INS = b"\x1f\x1e\x1d\x1c\x01\x02\x03\x04"  # Arrow knows separators of one byte only


def nothing_in(path: Path) -> DataError:
    """Return the error about a file of interactions without any."""
    return DataError(f"{path} holds no interactions, only a header; prepare the data set again")


def without_time(path: Path, field: str, bad: int, rows: int, lines: Sequence[int]) -> DataError:
    """Return the error about ``bad`` of a file's rows, in ``lines`` and others, whose time is not finite."""
    return DataError(
        f"{path}: {bad} of {rows} rows have no finite {field!r} (first at line {', '.join(map(str, lines))}); "
        "drop these rows or give them a time"
    )


def header(path: Path, separator: str = "\t", encoding: str | None = None) -> list[str]:
    """Return the entries ``name:type`` of the first line; DataError where it is empty or two columns have one name."""
    with path.open(encoding=_codec(encoding), errors="replace", newline="\n") as file:
        line = file.readline()
    if not line.strip():
        raise DataError(f"{path}: the first line is empty; it must name the columns, such as item_id:token")
    entries = line.removesuffix("\n").removesuffix("\r").split(separator)
    names = [entry.partition(":")[0] for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path}, line 1: the column {', '.join(map(repr, twice))} stands there twice; rename one")
    return entries


def typed_header(path: Path, separator: str, encoding: str | None) -> dict[str, str]:
    """Return name and type of all columns; DataError for an entry that is not name:type."""
    columns = {}
    for entry in header(path, separator, encoding):
        name, colon, kind = entry.partition(":")
        if not colon or kind not in TYPES:
            kinds = ", ".join(TYPES)
            raise DataError(f"{path}: header entry {entry!r} is not 'name:type' of {kinds}, separated by {separator!r}")
        columns[name] = kind
    return columns


def read_atomic(
    path: Path,
    columns: Mapping[str, str],
    *,
    ids: Collection[str] = (),
    separator: str = "\t",
    seq_separator: str = " ",
    encoding: str | None = None,
    lenient: bool = False,
) -> pd.DataFrame:
    """Read ``columns`` (name: type) of an atomic file, a row per line that is not blank.

    Tokens are text, floats float64 (NaN where missing), sequences an array per row; the index is the number of the line
    less 2. Values of the token columns ``ids`` are any text that is not empty; in others an empty value and pandas'
    words for one (NA, null, ...) are missing. ``lenient`` reads as RecBole: an empty id is missing, what a line holds
    beyond the columns of the header is left out, and what it lacks is missing. DataError, with the number of the line,
    for a line or a value that means nothing.
    """
    (text,) = Text.pieces(path, header(path, separator, encoding), separator, encoding)
    read, lines = (text.of_even_width() if lenient else text).columns(list(columns))
    result = {}
    for name, kind in columns.items():
        column = read[name]
        if kind == "float":
            result[name] = pd.Series(column.numbers())
        elif kind == "token":
            result[name] = (column.ids(lenient) if name in ids else column.texts()).to_pandas()
        else:
            result[name] = pd.Series(column.sequences(seq_separator, kind == "float_seq"), dtype=object)
    return pd.DataFrame(result).set_axis(pd.Index(lines - 2))


@dataclass(frozen=True)
class Text:
    """Whole lines of a file after its header, from line ``first``: UTF-8 with a ``separator`` of one byte."""

    path: Path
    entries: Sequence[str]
    data: bytes
    separator: bytes
    first: int = 2
    returns: bool = False  # whether the header ends in CR

    @classmethod
    def pieces(
        cls, path: Path, entries: Sequence[str], separator: str, encoding: str | None, size: int | None = None
    ) -> Iterator[Text]:
        """Yield the file in pieces of about ``size`` bytes (None: all of it; so is a file that is not UTF-8)."""
        codec, first = _codec(encoding), 2
        with path.open("rb") as file:
            if codec == "utf-8-sig":
                head, parts = file.readline(), _whole_lines(file, size)
            else:
                data = file.read()
                try:
                    head, _, data = data.decode(codec).encode().partition(b"\n")
                except UnicodeDecodeError as error:
                    raise _undecodable(path, data, error, first=1) from error
                parts = iter([data])
            returns = head.removesuffix(b"\n").endswith(b"\r")
            for data in parts:
                mark = separator.encode()
                if len(mark) > 1:
                    unused = [stand_in for stand_in in _STAND_INS if stand_in not in data]
                    if not unused:
                        raise DataError(
                            f"{path}: field_separator={separator!r} and control characters cannot go together"
                        )
                    data, mark = data.replace(mark, bytes(unused[:1])), bytes(unused[:1])
                yield cls(path, entries, data, mark, first, returns)
                first += data.count(b"\n")

    def _check_characters(self) -> None:
        """Refuse NUL, and carriage returns that may or may not belong to a value."""
        if (at := self.data.find(b"\0")) >= 0:
            self._refuse_at(at, "there is a NUL character; is the file UTF-16? Then give --encoding=utf-16")
        if b"\r" not in self.data:
            return
        ends = self.data.count(b"\r\n")
        if self.data.count(b"\r") > ends:
            lone = next(re.finditer(rb"\r(?!\n)", self.data))
            self._refuse_at(lone.start(), "there is a carriage return inside the line; lines end with LF or CRLF")
        if ends and not self.returns and not self.entries[-1].partition(":")[2].startswith("float"):
            # the last value of such a line may or may not end in CR
            self._refuse_at(
                self.data.find(b"\r\n"), "it ends with CRLF, the first line with LF; write all ends the same"
            )

    def of_even_width(self) -> Text:
        """Return the lines cut, or filled with empty values, to the width of the header; blank lines stay."""
        width, lines = len(self.entries), self.data.split(b"\n")
        uneven = [
            row for row, line in enumerate(lines) if line.count(self.separator) + 1 != width and line.strip(b"\r")
        ]
        for row in uneven:
            line = lines[row].removesuffix(b"\r")
            values = [*line.split(self.separator), *[b""] * width][:width]
            lines[row] = self.separator.join(values) + lines[row][len(line) :]
        if not uneven:
            return self
        logger.warning(
            "%s: %d lines hold more or fewer values than the %d columns of the header, the first is line %d; what is "
            "beyond them is not read",
            self.path, len(uneven), width, uneven[0] + self.first,
        )  # fmt: skip
        return dataclasses.replace(self, data=b"\n".join(lines))

    def columns(self, names: list[str]) -> tuple[dict[str, Column], npt.NDArray[np.int64]]:
        """Return the values of some columns as they stand there, and the (n,) lines of the rows; no blank lines."""
        try:
            table = self.parsed({name: pa.string() for name in names})
        except pa.ArrowInvalid as error:
            self._refuse(error)
        filled = self._filled(table)
        table, lines = table.filter(pa.array(filled)), np.flatnonzero(filled) + self.first
        return {name: Column(self.path, name, table.column(name), lines) for name in names}, lines

    def parsed(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return some columns as Arrow reads them, blank lines as empty values.

        Raises:
            DataError: characters that no value may hold.
            pyarrow.ArrowInvalid: lines of another width, or values of another type.
        """
        self._check_characters()
        if not self.data:
            return pa.table({name: pa.array([], kind) for name, kind in types.items()})
        everything = [entry.partition(":")[0] for entry in self.entries]
        # Arrow drops a mark at the start, where the first value of a line stands
        data = codecs.BOM_UTF8 + self.data if self.data.startswith(codecs.BOM_UTF8) else self.data
        return pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=everything, use_threads=False, block_size=_BLOCK_BYTES),
            pacsv.ParseOptions(delimiter=self.separator.decode(), quote_char=False, ignore_empty_lines=False),
            pacsv.ConvertOptions(include_columns=list(types), column_types=dict(types), strings_can_be_null=False),
        )

    def _filled(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which rows are no blank lines."""
        filled = np.logical_or.reduce([pc.binary_length(column).to_numpy() > 0 for column in table.columns])
        if not filled.all():
            lines = self.data.split(b"\n")
            for row in np.flatnonzero(~filled):
                filled[row] = bool(lines[row].strip(b"\r"))
        return filled

    def _refuse(self, error: pa.ArrowInvalid) -> NoReturn:
        """Say what Arrow could not read, and in which line."""
        lines = self.data.split(b"\n")
        width = len(self.entries)
        for number, line in enumerate(lines, start=self.first):
            count = line.count(self.separator) + 1
            if count != width and line.strip(b"\r"):
                names = ", ".join(entry.partition(":")[0] for entry in self.entries)
                raise DataError(
                    f"{self.path}: the header names {width} columns ({names}), but line {number} holds {count} "
                    f"values: {line[:_SHOWN].decode(errors='replace')!r}"
                ) from error
        try:
            self.data.decode()
        except UnicodeDecodeError as fault:
            raise _undecodable(self.path, self.data, fault, first=self.first) from fault
        longest = max(range(len(lines)), key=lambda row: len(lines[row]))
        raise DataError(
            f"{self.path} cannot be read ({error}); its longest line, {longest + self.first}, has "
            f"{len(lines[longest])} bytes"
        ) from error

    def _refuse_at(self, place: int, what: str) -> NoReturn:
        line = self.data.count(b"\n", 0, place) + self.first
        raise DataError(f"{self.path}, line {line}: {what}")


@dataclass(frozen=True)
class Column:
    """The values of one column as they stand in the file, and their line numbers."""

    path: Path
    name: str
    values: pa.ChunkedArray
    lines: npt.NDArray[np.int64]

    def ids(self, empty: bool = False) -> pa.ChunkedArray:
        """Return the values, none of which is RecBole's name for padding; null where empty, if that is allowed."""
        for word in (PAD,) if empty else ("", PAD):
            same = pc.equal(self.values, word)
            if pc.any(same).as_py():
                self.refuse(np.asarray(same), "RecBole's name for padding" if word else "no id; give every line one")
        return (
            pc.if_else(pc.equal(self.values, ""), pa.scalar(None, pa.string()), self.values) if empty else self.values
        )

    def texts(self) -> pa.ChunkedArray:
        """Return the values, null where missing."""
        missing = pc.is_in(self.values, value_set=pa.array(sorted(MISSING)))
        return pc.if_else(missing, pa.scalar(None, pa.string()), self.values)

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return float64 numbers, NaN where missing."""
        try:
            numbers = self.values.cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            numbers = self._parsed()
        if np.isinf(numbers).any():
            self.refuse(np.isinf(numbers), "not a finite number")
        return np.asarray(numbers, dtype=np.float64)

    def _parsed(self) -> npt.NDArray[np.float64]:
        """Read what Arrow does not, such as '+1', ' 1' and '', by Python's own rules; a distinct text once."""
        encoded = pc.dictionary_encode(self.values).combine_chunks()
        known = [_number(text) for text in encoded.dictionary.to_pylist()]
        codes = np.asarray(encoded.indices)
        wrong = np.array([number is None for number in known])[codes]
        if wrong.any():
            self.refuse(wrong, "not a number (for dates see 'recbole-hyper prepare' --format=csv --time_format)")
        return np.array(known, dtype=np.float64)[codes]

    def sequences(self, separator: str, numbers: bool) -> list[npt.NDArray[Any]]:
        """Return the parts of every value, as text or as finite numbers; no parts where the value is missing."""
        cells = ["" if cell in MISSING else cell for cell in self.values.to_pylist()]
        parts = [[part for part in cell.split(separator) if part] for cell in cells]
        if not numbers:
            return [np.array(words) for words in parts]
        read = [[_number(part) for part in words] for words in parts]
        wrong = np.array([any(part is None or not np.isfinite(part) for part in row) for row in read], dtype=bool)
        if wrong.any():
            self.refuse(wrong, f"no sequence of finite numbers with {separator!r} between")
        return [np.array(row, dtype=np.float64) for row in read]

    def refuse(self, wrong: npt.NDArray[np.bool_], what: str) -> NoReturn:
        """Raise DataError for the first of the rows that are ``wrong``."""
        row = int(np.flatnonzero(wrong)[0])
        count = int(wrong.sum())
        more = f"; {count} lines are like this" if count > 1 else ""
        value = self.values[row].as_py()[:_SHOWN]
        raise DataError(f"{self.path}, line {self.lines[row]}: {self.name!r} holds {value!r}, {what}{more}")


def _whole_lines(file: BinaryIO, size: int | None) -> Iterator[bytes]:
    """Yield what is left of ``file`` in pieces that end where a line ends; one piece where ``size`` is None."""
    if size is None:
        yield file.read()
        return
    carry = b""
    while data := file.read(size):
        cut = data.rfind(b"\n") + 1
        if not cut:
            carry += data
            continue
        yield b"".join((carry, memoryview(data)[:cut]))  # one copy
        carry = data[cut:]
    if carry:
        yield carry


def _number(text: str) -> float | None:
    if text.strip() in MISSING:
        return float("nan")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _codec(encoding: str | None) -> str:
    try:
        "".encode(encoding or "utf-8")
        name = codecs.lookup(encoding or "utf-8").name
    except LookupError as error:
        raise DataError(f"encoding={encoding!r} is no text encoding that Python knows; try utf-8 or latin-1") from error
    # a byte order mark is no part of the first column's name
    return "utf-8-sig" if name == "utf-8" else name


def _undecodable(path: Path, data: bytes, error: UnicodeDecodeError, first: int) -> DataError:
    """Return the error about bytes that are no text; ``first`` is the number of the first line of ``data``."""
    line = data.count(b"\n", 0, error.start) + first
    return DataError(
        f"{path}, line {line}: the byte 0x{data[error.start]:02x} is not in {error.encoding} ({error.reason}); "
        "give the file's --encoding"
    )
