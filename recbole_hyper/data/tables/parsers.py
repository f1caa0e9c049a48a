"""Parsers: from a file or a frame to raw rows, which are one column per field and the line number of each row.

Arrow splits text into records. A parser takes some of them, the format (its columns, its separator) and a counter of
malformed lines. It does not check the values; :mod:`recbole_hyper.data.tables.table` does.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyarrow.lib import TransformInputStream

from recbole_hyper.data.tables import engine
from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import FIELDS, Format
from recbole_hyper.data.tables.ids import as_mask, as_text, column_of_values, is_list, relisted, single
from recbole_hyper.data.tables.malformed import Malformed
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

Mask = npt.NDArray[np.bool_]
Columns = dict[str, Any]  # by field; other columns by ``OTHER`` and their name
OTHER = "column "  # prefix of the names of columns that are not fields
_PARQUET_ROWS = 1 << 19
_LARGEST_ARRAY = 256 << 20  # bytes of a JSON array, which is read as a whole
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*[{\]]")
MARK = "\x1f"  # between values for Arrow, which only takes one character; lines of JSON cannot have it
LINE = "line"  # the column of whole lines
BLOCK_BYTES = 8 << 20  # a longer record is not interactions but, say, compressed zeros
_NO_ID = "^[\\[{tfn]|\ufffd"  # JSON that is neither text nor a number, and what replaces a wrong byte
_COMMA = r"^(\s*[+-]?[0-9]+),([0-9]+\s*)$"


@dataclass(frozen=True)
class Rows:
    """Rows of a source: the columns, each row's line (from 1), and the file's name if the source has several files."""

    columns: Columns
    lines: npt.NDArray[np.int64]
    part: str = ""
    wrong: Sequence[tuple[int, str, str]] = ()  # line, reason and text of unreadable records between the rows

    def filter(self, keep: Mask) -> Rows:
        """Return the rows where ``keep`` is True."""
        if keep.all():
            return self
        mask = pa.array(keep)
        columns = {
            name: column[keep] if isinstance(column, np.ndarray) else column.filter(mask)
            for name, column in self.columns.items()
        }
        return Rows(columns, self.lines[keep], self.part)


@dataclass(frozen=True)
class Frame:
    """A pandas or polars DataFrame, or an Arrow table or batch; rows are numbered from 0."""

    frame: Any
    where: str = "the frame"

    def __str__(self) -> str:
        return self.where

    @cached_property
    def table(self) -> Any:
        """The frame of pandas, or anything else as an Arrow table; DataError if this is no table."""
        try:
            if isinstance(self.frame, pd.DataFrame):
                return self.frame
            return self.frame.to_arrow() if hasattr(self.frame, "to_arrow") else pa.table(self.frame)  # polars
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise DataError(
                f"{self.where} is a {type(self.frame).__name__}, which is no table ({error}); give a pandas or polars "
                "DataFrame or an Arrow table; collect a lazy one, and cast columns of other types to text"
            ) from error

    @property
    def names(self) -> list[str]:
        """Names of the columns; DataError if this is not a table."""
        return [str(name) for name in (self.table if isinstance(self.table, pd.DataFrame) else self.table.column_names)]

    def rows(self, columns: Mapping[str, str]) -> Rows:
        """Return the rows with the columns named in ``columns`` (field to name); no other column is converted."""
        values = {}
        for field, name in columns.items():
            place, is_pandas = self.names.index(name), isinstance(self.table, pd.DataFrame)
            try:
                column = column_of_values(self.table.iloc[:, place] if is_pandas else self.table.column(place))
            except (DataError, UnicodeEncodeError) as error:
                raise DataError(f"{self.where}, column {name!r}, {error}") from error
            values[field] = single(column)
        return Rows(values, np.arange(len(next(iter(values.values())))))


Source = SourceFile | Frame


def pieces(source: Source, form: Format, bar: bool = False) -> Iterator[Rows]:
    """Yield the raw rows of a file in batches, with a progress ``bar``, and those of a frame as a whole."""
    flat = form.kind in ("csv", "atomic", "frame")  # without fields in columns
    if flat and (missing := {*(form.columns or {}).values()} - {*form.names}):
        raise DataError(f"{source} has no column {', '.join(sorted(missing))}; its columns: {', '.join(form.names)}")
    if isinstance(source, Frame):
        yield source.rows(form.columns or {})
        return
    by_lines = form.kind in ("json", "sequences")
    text = replace(form, columns={LINE: LINE}, names=[LINE], separator=MARK) if by_lines else form
    for part in source.parts or (source,):
        name, shown = (part.name, False) if source.parts else ("", bar)
        if form.kind == "parquet":
            found = _batches(part, form, shown)
        elif form.kind == "json" and _ARRAY.match(part.first_bytes(1 << 12, form.encoding)):
            found = iter([_array(part, form.encoding)])
        else:
            found = _records(part, text, shown)
        for rows in found:
            yield replace(rows, part=name)


def parsed(rows: Rows, form: Format, malformed: Malformed) -> Rows:
    """Return the rows of a piece, one for each entry of a list."""
    for line, reason, text in rows.wrong:
        malformed.add(line, reason, text)
    if form.kind in PARSERS:
        rows = PARSERS[form.kind](rows, form, malformed)
    return replace(exploded(rows, form.columns or {}, malformed), part=rows.part, wrong=())


class _Text:
    """Makes a separator of several characters one character, for Arrow, and counts line ends and double quotes."""

    def __init__(self, separator: bytes) -> None:
        self.separator, self.rest, self.line_ends, self.quotes = separator, b"", 0, 0

    def __call__(self, data: pa.Buffer) -> bytes:
        """Return the next bytes; those that may be a part of a separator wait for the next ones."""
        text = self.rest + data.to_pybytes()
        if len(self.separator) > 1:
            size = len(text.rstrip(self.separator)) if len(data) else len(text)
            text, self.rest = text[:size].replace(self.separator, MARK.encode()), text[size:]
        self.line_ends += text.count(b"\n")
        self.quotes += text.count(b'"')
        return text


def _records(part: SourceFile, form: Format, bar: bool) -> Iterator[Rows]:
    """Yield columns of a text file as bytes, with the numbers of its records.

    A record is a line, unless values in double quotes have line ends.
    """
    columns, separator = form.columns or {}, str(form.separator)
    mark = separator if len(separator.encode()) == 1 else MARK
    text, wrong, after = _Text(separator.encode()), deque[tuple[int, str, str]](), 0

    def skip(row: pacsv.InvalidRow) -> str:
        reason = f"{row.actual_columns} values instead of {row.expected_columns}"
        wrong.append((row.number, reason, row.text.replace(mark, separator)))
        return "skip"  # Arrow would swallow an exception raised here

    with part.open(bar=bar, encoding=form.encoding) as stream:
        try:
            for batch in pacsv.open_csv(
                TransformInputStream(pa.PythonFile(stream, mode="r"), text),
                # Arrow only numbers rows in one thread; other threads check other batches
                pacsv.ReadOptions(column_names=[*form.names], use_threads=False, block_size=BLOCK_BYTES),
                pacsv.ParseOptions(
                    delimiter=mark, quote_char='"' if form.quoted else False, newlines_in_values=form.quoted,
                    ignore_empty_lines=False, invalid_row_handler=skip,
                ),
                pacsv.ConvertOptions(
                    include_columns=sorted(set(columns.values())), strings_can_be_null=False,
                    column_types=dict.fromkeys(columns.values(), pa.binary()),
                ),
            ):  # fmt: skip
                lines = np.arange(after + 1, after + len(batch) + len(wrong) + 1)
                lines = lines[~np.isin(lines, [number for number, _, _ in [*wrong]])][: len(batch)]
                after = int(lines[-1]) if len(lines) else after
                # Arrow is a block ahead
                skipped = [wrong.popleft() for number, _, _ in [*wrong] if number < after]
                yield Rows({field: batch.column(name) for field, name in columns.items()}, lines, wrong=skipped)
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                what = f"a record of more than {BLOCK_BYTES >> 20} MiB" if "straddling" in str(error) else error
                raise DataError(f"{part}, after line {after}: {what}; is this text in this format?") from error
    if wrong:
        after = wrong[-1][0]
        yield Rows({field: pa.array([], pa.binary()) for field in columns}, np.zeros(0, np.int64), wrong=[*wrong])
    if form.quoted and (inside := text.line_ends - after) > 0:
        advice = "if quotes are plain text, set --quoting=none"
        if text.quotes % 2:
            raise DataError(f"{part}: a double quote opens a value with line ends, but none closes it; {advice}")
        logger.warning("%s: %d line ends are inside double quotes; %s", part, inside, advice)


def _batches(part: SourceFile, form: Format, bar: bool) -> Iterator[Rows]:
    """Yield columns of a parquet file."""
    columns, before = form.columns or {}, 0
    with part.open(bar=bar) as stream:
        file = pq.ParquetFile(pa.PythonFile(stream, mode="r"))
        names = file.schema_arrow.names
        top = {column: column if column in names else column.split(".")[0] for column in columns.values()}
        in_file = {column: name for column, name in top.items() if name in names}
        if missing := sorted(set(columns.values()) - set(in_file)):
            raise DataError(f"{part} has no column {', '.join(missing)}, but other parts have")
        for batch in file.iter_batches(_PARQUET_ROWS, columns=sorted(set(in_file.values()))):
            values = {
                column: _nested(batch.column(name), [] if column == name else column.split(".")[1:])
                for column, name in in_file.items()
            }
            by_field = {field: values[column] for field, column in columns.items()}
            lines = np.arange(before + 1, before + len(batch) + 1)
            yield Rows(by_field, lines)
            before += len(batch)


def _nested(values: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the field of a struct, or of the structs of a list, at the keys of ``path``."""
    for place, key in enumerate(path):
        if is_list(values):
            return relisted(values, _nested(pc.list_flatten(values), path[place:]))
        try:
            values = pc.struct_field(values, [key])
        except (pa.ArrowException, KeyError) as error:
            raise DataError(f"{key!r} is no field of {values.type}") from error
    return values


def exploded(rows: Rows, columns: Mapping[str, str], malformed: Malformed) -> Rows:
    """Return one row per list entry if items, times or ratings are lists; the other columns are repeated.

    A column that is no field stays a list, unless it comes from the same list of objects as a field: ``events.type``
    beside ``events.aid``. A row whose lists have different lengths is unreadable.
    """
    lists = {field: column for field, column in rows.columns.items() if is_list(column)}
    fields = {"item_id", "timestamp", "rating"} & set(lists)
    if "user_id" in lists or not fields:
        return rows
    objects = {columns.get(field, field).rpartition(".")[0] for field in fields} - {""}
    together = [n for n in lists if n in fields or columns.get(n, n).rpartition(".")[0] in objects]
    sizes = np.array([pc.fill_null(pc.list_value_length(lists[name]), 0).to_numpy() for name in together])
    uneven = (sizes != sizes[0]).any(axis=0)
    for row in np.flatnonzero(uneven):
        both = " and ".join(map(str, sorted({*sizes[:, row].tolist()})))
        malformed.add(int(rows.lines[row]), f"lists of {both} entries", ", ".join(together))
    rows, index = rows.filter(~uneven), np.repeat(np.arange(int((~uneven).sum())), sizes[0, ~uneven])
    flat = {
        field: pc.list_flatten(column) if field in together else column.take(pa.array(index))
        for field, column in rows.columns.items()
    }
    return Rows(flat, rows.lines[index], rows.part)


def records(rows: Rows, form: Format, malformed: Malformed) -> Rows:
    """Values between separators: records without any value and the header are skipped."""
    values, filled = dict(rows.columns), np.zeros(len(rows.lines), dtype=bool)
    for field in {"timestamp", "rating"} & set(values) if form.separator == ";" else ():  # often with a decimal comma
        values[field] = pc.replace_substring_regex(values[field], _COMMA, r"\1.\2")
    for column in values.values():
        if not filled.all():
            filled |= np.asarray(pc.binary_length(column)) > 0
    if form.header and 1 in rows.lines[:1]:
        filled[np.flatnonzero(filled)[:1]] = False
    return replace(rows, columns=values).filter(filled)


def objects(rows: Rows, form: Format, malformed: Malformed) -> Rows:
    """One JSON object per line; values are read as text, and lists as lists of text."""
    lines, numbers = rows.columns[LINE], rows.lines
    texts = as_text(lines)
    if texts.null_count:  # a wrong byte makes its value missing, not the line
        texts = pa.array([line.decode("utf-8", "replace") for line in lines.to_pylist()])
    texts = pc.utf8_trim_whitespace(texts)
    filled = as_mask(pc.not_equal(texts, ""))
    good = as_mask(single(_query("json_valid(c0) and starts_with(c0, '{')", texts)[0]))
    for row in np.flatnonzero(filled & ~good):
        text = lines[int(row)].as_py().decode("utf-8", "backslashreplace")
        malformed.add(int(numbers[row]), "not a JSON object", text)
    texts, values = texts.filter(pa.array(good)), {}
    for field, name in (form.columns or {}).items():
        path = [name] if name in form.names else name.split(".")
        values[field] = _json_texts(_at(texts, path), field)
    return Rows(values, numbers[good])


def json_keys(source: SourceFile, form: Format) -> list[str]:
    """Return the keys of all objects of a file, by first appearance."""
    keys: dict[str, None] = {}
    for rows in pieces(source, form):
        texts = pc.fill_null(as_text(rows.columns[LINE]), "")
        found = engine.query("select case when json_valid(c0) then json_keys(c0) end as c0 from rows", {"c0": texts})
        keys |= dict.fromkeys(pc.unique(pc.list_flatten(single(found["c0"]))).to_pylist())
    return list(keys)


def _at(texts: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the JSON at the keys of ``path``, in lists where all values at a key are lists."""
    key = path[0].replace("~", "~0").replace("/", "~1").replace("'", "''")
    found = single(_query(f"nullif(cast(c0 -> '/{key}' as varchar), 'null')", texts)[0])
    if found.null_count != len(found) and pc.all(pc.starts_with(found, "[")).as_py():
        lists = single(_query("cast(json_transform(c0, '[\"JSON\"]') as varchar[])", found)[0])
        entries = pc.list_flatten(lists)
        return relisted(lists, _at(entries, path[1:]) if path[1:] else entries)
    return _at(found, path[1:]) if path[1:] else found


def _query(columns: str, texts: pa.Array) -> pa.Table:
    return engine.query(f"select {columns} from rows", {"c0": texts})


def _json_texts(values: pa.Array, field: str) -> pa.Array:
    """Return JSON as text. Of fields, what is neither text nor a number and what is not UTF-8 is missing."""
    if is_list(values):
        return relisted(values, _json_texts(pc.list_flatten(values), field))
    raw = as_text(values)
    if pc.any(pc.match_substring(raw, "\\")).as_py():
        texts = single(_query("c0 ->> '$'", raw)[0])
    else:  # duckdb takes three times as long
        texts = pc.if_else(pc.starts_with(raw, '"'), pc.utf8_slice_codeunits(raw, 1, -1), raw)
    missing = pc.match_substring_regex(raw, _NO_ID) if field in FIELDS else pc.equal(raw, "null")
    return pc.if_else(missing, pa.scalar(None, pa.string()), texts)


def sequences(rows: Rows, form: Format, malformed: Malformed) -> Rows:
    """One user per line, ``user item item ...``, with blanks or a separator between."""
    text = pc.utf8_trim_whitespace(pc.fill_null(as_text(rows.columns[LINE]), ""))
    split = pc.utf8_split_whitespace(text) if form.separator is None else pc.split_pattern(text, form.separator)
    lengths = np.asarray(pc.list_value_length(split)) - 1
    filled = np.asarray(pc.binary_length(text)) > 0
    for row in np.flatnonzero(filled & (lengths < 1)):
        malformed.add(int(rows.lines[row]), "user without items", text[int(row)].as_py())
    good = np.flatnonzero(filled & (lengths >= 1))
    split = split.take(pa.array(good))
    lists = {"user_id": pc.list_element(split, 0), "item_id": pc.list_slice(split, 1)}
    return exploded(Rows(lists, rows.lines[good]), {}, malformed)


def _array(part: SourceFile, encoding: str | None) -> Rows:
    """Return the entries of a JSON array as lines, with their numbers; DataError if it is too large or no JSON."""
    data = part.first_bytes(_LARGEST_ARRAY + 1, encoding)
    if len(data) > _LARGEST_ARRAY:
        way = "duckdb -c \"copy (from read_json('x.json')) to 'x.jsonl'\""
        raise DataError(f"{part}: an array of more than {_LARGEST_ARRAY >> 20} MiB; make it lines by {way}")
    text = pa.array([data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")])
    try:
        entries = single(_query("unnest(c0 -> '$[*]') as c0", text)["c0"])
    except engine.Error as error:
        way = "several arrays become lines by examples/convert/rows_in_object.py"
        raise DataError(f"{part}: the array cannot be read ({error}); is the file complete? {way}") from error
    return Rows({LINE: entries}, np.arange(1, len(entries) + 1))


PARSERS = {"csv": records, "atomic": records, "json": objects, "sequences": sequences}
