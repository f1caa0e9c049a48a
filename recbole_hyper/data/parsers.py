"""Blocks of text to columns by field: a parser per way of writing interactions down.

A parser takes a block, the format (its columns, separator) and the piece's counter of malformed lines, and returns the
columns as the file has them, with the number of each row's line. The values are checked elsewhere.
"""

import ast
import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from recbole_hyper.data.blocks import LONGEST, Block
from recbole_hyper.data.formats import Format
from recbole_hyper.data.ids import as_mask, as_text
from recbole_hyper.data.malformed import Malformed
from recbole_hyper.errors import DataError

Columns = dict[str, pa.Array]
_SKIPPED = re.compile(r"[\s,]*")
_STAND_INS = "\x1f\x1e\x1d\x1c\x01\x02\x03\x04"  # Arrow knows separators of one character only
_COMMA = r"^(\s*[+-]?[0-9]+),([0-9]+\s*)$"


@dataclass(frozen=True)
class Rows:
    """Some rows of a source, unchecked: a column by field (text, bytes, numbers, times) and each row's line, from 1.

    ``part`` is the name of the part that they are of, where the source has several.
    """

    columns: Columns
    lines: npt.NDArray[np.int64]
    part: str = ""


def delimited(block: Block, form: Format, malformed: Malformed) -> Rows:
    """Values between separators, a record a line; lines without any value are passed over."""
    data, separator, columns = block.data, form.separator or "", form.columns or {}
    mark = separator if len(separator) == 1 else next((m for m in _STAND_INS if m.encode() not in data), "")
    if not mark:
        raise DataError(f"{malformed.name}: the separator {separator!r} and control characters cannot go together")
    if mark != separator:
        data = data.replace(separator.encode(), mark.encode())
    wrong: list[pacsv.InvalidRow] = []

    def skip(row: pacsv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"  # what is raised here is lost

    if block.ends is None and b"\r" in data and data.count(b"\r") > data.count(b"\r\n"):
        line = block.first + data.count(b"\n", 0, next(re.finditer(rb"\r(?!\n)", data)).start())
        raise DataError(f"{malformed.name}, line {line}: there is a carriage return inside the line")
    try:
        table = pacsv.read_csv(
            # Arrow drops a mark at the start, where the first value of a line is
            pa.BufferReader(codecs.BOM_UTF8 + data if data.startswith(codecs.BOM_UTF8) else data),
            # one thread: only then are rows numbered; other threads parse other blocks
            pacsv.ReadOptions(column_names=list(form.names), use_threads=False, block_size=len(data) + 4),
            pacsv.ParseOptions(
                delimiter=mark,
                quote_char='"' if form.quoted else False,
                newlines_in_values=form.quoted,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            pacsv.ConvertOptions(
                include_columns=sorted(set(columns.values())),
                column_types=dict.fromkeys(columns.values(), pa.binary()),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{malformed.name} cannot be read as values separated by {separator!r}: {error}") from error
    places = np.array([row.number - 1 for row in wrong], dtype=np.int64)
    for row, line in zip(wrong, block.numbers(places).tolist(), strict=True):
        reason = f"{row.actual_columns} values instead of {row.expected_columns}"
        malformed.add(line, reason, row.text.replace(mark, separator))
    found = {field: _joined(table.column(name)) for field, name in columns.items()}
    if separator == ";":  # then the comma is often the decimal point
        found |= {
            f: pc.replace_substring_regex(found[f], _COMMA, r"\1.\2") for f in {"timestamp", "rating"} & set(found)
        }
    records = np.delete(np.arange(len(table) + len(wrong)), places)
    filled = np.logical_or.reduce([np.asarray(pc.binary_length(column)) > 0 for column in found.values()])
    if form.kind == "atomic" and not filled.all():  # no id is a fault, and only a blank line is none
        lines = data.split(b"\n")
        for row in np.flatnonzero(~filled):
            filled[row] = bool(lines[records[row]].strip(b"\r"))
    if form.header and block.first == 1:
        filled[np.flatnonzero(filled)[:1]] = False
    return _kept(found, block.numbers(records), filled)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _kept(columns: Columns, lines: npt.NDArray[np.int64], rows: npt.NDArray[np.bool_]) -> Rows:
    if rows.all():
        return Rows(columns, lines)
    mask = pa.array(rows)
    return Rows({field: column.filter(mask) for field, column in columns.items()}, lines[rows])


_DEEP = b"[" * 500  # Arrow's parser is recursive, and has no limit
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def json_lines(block: Block, form: Format, malformed: Malformed) -> Rows:
    """A JSON object a line, whose other keys are passed over.

    Arrow parses a block at once where each key has the type that it has on the first line; else Python, line by line.
    """
    data, columns = block.data, form.columns or {}
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    nested = any("." in key for key in columns.values()) or _DEEP in data
    try:
        if nested:
            raise ValueError("not for Arrow")
        first = json.loads(data[: data.find(b"\n") + 1] or data)
        types = {key: _TYPES.get(type(first.get(key)), pa.string()) for key in columns.values()}
        numbers = [columns[field] for field in ("timestamp", "rating") if field in columns]
        types |= {key: pa.float64() for key in numbers if types[key] == pa.int64()}
        parse = pajson.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore")
        read = pajson.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pajson.read_json(pa.BufferReader(data), read, parse)
        if len(table) == count:  # with another count than lines, the rows could not be numbered
            return Rows({f: _joined(table.column(key)) for f, key in columns.items()}, block.numbers(np.arange(count)))
    except (ValueError, AttributeError, RecursionError, pa.ArrowException):
        pass
    return _evaluated(block, np.arange(count), json.loads, columns, malformed)


def _evaluated(
    block: Block, rows: npt.NDArray[np.integer], load: Callable[[str], Any], columns: Mapping[str, str], bad: Malformed
) -> Rows:
    """Read some lines one by one by ``load``; a value that is neither text nor number becomes null.

    A key ``events.id`` is one of an object inside, and of a list of objects one of each. A list is a row for each
    entry, beside which the other fields are repeated.
    """
    found: dict[str, list[str | None]] = {field: [] for field in columns}
    kept: list[int] = []
    for row, line in zip(rows, block.lines().take(pa.array(rows)).to_pylist(), strict=True):
        if not line.strip():
            continue
        try:
            # a byte that is not UTF-8 is a fault of the value that holds it, not of the line
            value = load(line.decode("utf-8", "surrogateescape").strip())
            if not isinstance(value, dict):
                raise ValueError("not a mapping")
            values = {field: _at(value, key) for field, key in columns.items()}
            if "." not in columns.get("user_id", "") and isinstance(values.get("user_id"), list):
                values["user_id"] = None
            lengths = {len(one) for one in values.values() if isinstance(one, list)}
            if len(lengths) > 1:
                raise ValueError(f"lists of {' and '.join(map(str, sorted(lengths)))} entries")
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            kind = "JSON object" if load is json.loads else "dictionary"
            reason = str(error) if str(error).startswith("lists of") else f"no {kind}"
            bad.add(int(block.first + row), reason, line.decode("utf-8", "backslashreplace"))
            continue
        count = lengths.pop() if lengths else 1
        kept += [int(row)] * count
        for field, one in values.items():
            found[field] += [_plain(entry) for entry in one] if isinstance(one, list) else [_plain(one)] * count
    arrays = {field: pa.array(values, pa.string()) for field, values in found.items()}
    return Rows(arrays, block.numbers(np.asarray(kept, np.int64)))


def _at(value: Any, key: str) -> Any:
    """Return the value of a key, or under its parts between the dots, of every entry of a list."""
    if isinstance(value, list):
        return [_at(entry, key) for entry in value]
    if not isinstance(value, dict):
        return None
    first, dot, rest = key.partition(".")
    return _at(value.get(first), rest) if dot and key not in value else value.get(key)


def _plain(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return None if _SURROGATE.search(text) else text


_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SCALAR = r"""[^'"\[\]{},]+"""
_NUMBER = r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?"
# walks from the start of the line over whole ``key: value`` pairs, so that a review that itself looks like a dictionary
# is never taken for one
_BEFORE = rf"(?:{_STRING}: (?:{_STRING}|{_SCALAR}), )*?"


def literals(block: Block, form: Format, malformed: Malformed) -> Rows:
    """A Python dictionary a line, as the McAuley lab publishes Steam and BeerAdvocate reviews.

    Regular expressions find the values at about a microsecond a line; only lines that they do not fit (nested values,
    missing keys) are read by ``ast.literal_eval``, which takes thirty times as long and runs no code.
    """
    columns, text, found = form.columns or {}, as_text(block.lines()), {}
    for field, key in columns.items():
        pattern = rf"""^\s*\{{{_BEFORE}u?['"]{re.escape(key)}['"]: (?P<value>{_STRING}|{_NUMBER})[,}}]"""
        found[field] = _extracted(text, pattern)
    fits = np.logical_and.reduce([as_mask(pc.is_valid(column)) for column in found.values()])
    fast = _kept(found, block.numbers(np.arange(len(text))), fits)
    slow = _evaluated(block, np.flatnonzero(~fits), ast.literal_eval, columns, malformed)
    lines = np.concatenate([fast.lines, slow.lines])
    order = np.argsort(lines)
    both = {f: pa.concat_arrays([_unquoted(fast.columns[f]), slow.columns[f]]) for f in columns}
    return Rows({field: column.take(pa.array(order)) for field, column in both.items()}, lines[order])


def _extracted(text: pa.Array, pattern: str) -> pa.Array:
    """Return the group ``value`` of the pattern in each text; null where it does not match."""
    return pc.struct_field(pc.extract_regex(text, pattern), "value")


def _unquoted(values: pa.Array) -> pa.Array:
    """Turn string literals into their values; numbers stay as they are."""
    plain = pc.replace_substring_regex(values, r"""(?s)^u?['"](.*)['"]$""", r"\1")
    escaped = pc.match_substring(values, "\\")
    found = [ast.literal_eval(value) for value in values.filter(escaped).to_pylist()]
    return pc.replace_with_mask(plain, escaped, pa.array(found, pa.string())) if found else plain


def records(block: Block, form: Format, malformed: Malformed) -> Rows:
    """Lines ``key: value`` with a blank line between records; the first of several lines with the same key counts."""
    data = block.data.replace(b"\r\n", b"\n")
    texts = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n\n")).cast(pa.binary())
    trimmed = pc.replace_substring_regex(texts, "^\n+", "")
    sizes = np.asarray(pc.count_substring(texts, "\n")) + 2
    leading = np.asarray(pc.binary_length(texts)) - np.asarray(pc.binary_length(trimmed))
    lines = block.first + np.cumsum(sizes) - sizes + leading
    text = as_text(texts)
    found = {
        field: _extracted(text, rf"(?:^|\n){re.escape(key)}:(?P<value>[^\n]*)")
        for field, key in (form.columns or {}).items()
    }
    return _kept(found, lines, np.asarray(pc.binary_length(trimmed)) > 0)


def sequences(block: Block, form: Format, malformed: Malformed) -> Rows:
    """``user item item ...`` a line, blanks, tabs or the separator between; a time is the item's position, from 1."""
    text = pc.utf8_trim_whitespace(pc.fill_null(as_text(block.lines()), ""))
    split = pc.utf8_split_whitespace(text) if form.separator is None else pc.split_pattern(text, form.separator)
    lengths = np.asarray(pc.list_value_length(split)) - 1
    filled = np.asarray(pc.binary_length(text)) > 0
    for row in np.flatnonzero(filled & (lengths < 1)):
        malformed.add(int(block.first + row), "a user without items", text[int(row)].as_py())
    good = np.flatnonzero(filled & (lengths >= 1))
    split, lengths = split.take(pa.array(good)), lengths[good]
    users = pc.list_element(split, 0).take(pa.array(np.repeat(np.arange(len(good)), lengths)))
    ends = np.cumsum(lengths)
    positions = np.arange(1, lengths.sum() + 1) - np.repeat(ends - lengths, lengths)
    items = pc.list_flatten(pc.list_slice(split, 1))
    columns = {"user_id": users, "item_id": items, "timestamp": pa.array(positions.astype(np.float64))}
    return Rows(columns, np.repeat(block.numbers(good), lengths))


def mind(block: Block, form: Format, malformed: Malformed) -> Rows:
    """``impression, user, time, history, shown`` with tabs between: what was clicked (``N12-1``) of what was shown."""
    found: dict[str, list[str]] = {"user_id": [], "item_id": [], "timestamp": []}
    kept: list[int] = []
    for row, line in enumerate(as_text(block.lines()).to_pylist()):
        if line is None or not line:
            continue
        values = line.split("\t")
        if len(values) != 5:
            malformed.add(block.first + row, f"{len(values)} values instead of 5", line)
            continue
        clicked = [item.removesuffix("-1") for item in values[4].split() if item.endswith("-1")]
        kept += [row] * len(clicked)
        found["item_id"] += clicked
        found["user_id"] += [values[1]] * len(clicked)
        found["timestamp"] += [values[2]] * len(clicked)
    arrays = {field: pa.array(values, pa.string()) for field, values in found.items()}
    return Rows(arrays, block.numbers(np.asarray(kept, np.int64)))


def array_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the entries of a JSON array as lines, in pieces; DataError, with its number, for one that is none."""
    decoder, text, number = json.JSONDecoder(), "", 0
    read, begun, lines = codecs.getreader("utf-8-sig")(stream, "surrogateescape"), False, []
    while True:
        piece = read.read(1 << 20)
        text, at = text + piece, 0
        while True:
            at = _SKIPPED.match(text, at).end()  # type: ignore[union-attr]
            if not begun:
                if text[at : at + 1] not in ("[", ""):
                    raise DataError(f"{name} is no JSON array")
                begun, at = text[at : at + 1] == "[", at + 1
                continue
            if text[at : at + 1] in ("]", ""):
                break
            try:
                _, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if piece and len(text) - at < LONGEST:
                    break
                raise DataError(f"{name}: entry {number + 1} of the array cannot be read ({error})") from error
            if end == len(text) and piece:
                break  # a number may go on
            # a text of JSON contains no line end
            lines.append(text[at:end].replace("\n", " ").replace("\r", " "))
            number, at = number + 1, end
        if lines:
            yield ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
            lines = []
        if not piece:
            if not text[at:].startswith("]"):
                raise DataError(f"{name}: the array does not end; the file is cut off after entry {number}")
            return
        text = text[at:]
