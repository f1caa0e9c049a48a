"""What a source itself tells of its form: kind, encoding, separator, quoting, columns, how times are written."""

from __future__ import annotations

import contextlib
import csv
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from recbole_hyper.data.archives import SourceFile, matches
from recbole_hyper.data.blocks import FIRST_BYTES, Block, blocks, quoted
from recbole_hyper.data.columns import FIELDS, columns_of
from recbole_hyper.data.formats import Format, formats
from recbole_hyper.data.ids import as_text
from recbole_hyper.data.malformed import Malformed
from recbole_hyper.data.rows import Frame, Source, hive_keys, parsed, pieces
from recbole_hyper.data.times import guessed_time_format, to_numbers
from recbole_hyper.errors import DataError

_SEPARATORS = (",", "\t", ";", "|", "::")
_LINES = 100
_SAMPLE = 10_000
_TYPES = {"user_id": "token", "item_id": "token", "timestamp": "float", "rating": "float"}
_OWN = {name: name for name in _TYPES}
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
OTHER = "column "  # before the name of a column that is no field


@dataclass(frozen=True)
class Wanted:
    """The fields that are read, those that may be missing, further names of their columns, and other columns."""

    fields: Sequence[str] = FIELDS
    optional: Collection[str] = ("rating",)
    own: Mapping[str, Collection[str]] = field(default_factory=dict)
    others: Sequence[str] = ()
    alone: bool = False  # whether the only column is the field, whatever its name


def format_of(file: SourceFile, timed: bool = True) -> str:
    """Return the format that the file's name, else its first bytes, tell; DataError where neither does.

    A table that is not ``timed`` may have two columns, or none but words: ``user item item ...``.
    """
    first = (file.parts or (file,))[0]
    if file.parts and matches(first.name, "*.parquet"):
        return "parquet"
    for name, form in formats().items():
        if not form.own and any(matches(first.name, pattern) for pattern in form.files) and _has_columns(first, form):
            return name
    with first.open(progress=False) as stream:
        magic = stream.read(4)
    if magic == b"PAR1":
        return "parquet"
    lines = head(first)
    if _objects(lines) or (lines and lines[0].startswith("[") and any("{" in line for line in lines[:2])):
        return "jsonl"
    if lines and len(cells := lines[0].split("\t")) > 1 and all(":" in cell for cell in cells):
        return "atomic"
    least = 2 if timed else 1
    if any(len(_cells(line, separator)) > least for line in lines[:1] for separator in _SEPARATORS):
        return "csv"
    if not timed and lines and len(lines[0].split()) > 1:
        return "sequences"
    known = ", ".join(sorted(formats()))
    raise DataError(
        f"{file}: neither its name nor its first line tells the format (a table has a header of at least three "
        f"columns: user, item, time); give --format=NAME ({known}), or --order=file for a table without times"
    )


def _has_columns(file: SourceFile, form: Format) -> bool:
    """Say whether the file has the columns of a published format with a header; others have none to compare."""
    return form.kind != "csv" or set((form.columns or {}).values()) <= set(_table(file, form).names)


def completed(source: Source, form: Format, wanted: Wanted | None = None) -> Format:
    """Return the format with all that the source itself tells: encoding, names, separator, columns, time format.

    DataError for a column that is missing, two that fit equally, or times of no known format.
    """
    wanted, before = wanted or Wanted(), form
    if isinstance(source, SourceFile) and form.own and form.kind != "parquet" and form.encoding is None:
        form = replace(form, encoding=guessed_encoding(first_bytes(source)))
    names_of = {"csv": _table, "atomic": _table, "json": _keys, "parquet": _schema}
    if form.kind in names_of and isinstance(source, SourceFile) and (form.kind != "json" or form.own or wanted.others):
        form = names_of[form.kind](source, form)
    elif form.kind != "frame" and not wanted.others:
        return replace(form, columns=_only(form, wanted))
    given = form.columns
    if wanted.alone and len(form.names) == 1 and not given:
        given = {wanted.fields[0]: form.names[0]}
    chosen = columns_of(form.names, given, str(source), wanted.fields, wanted.optional, wanted.own)
    if missing := [
        name for name in wanted.others if name.partition(".")[0] not in form.names and name not in form.names
    ]:
        raise DataError(f"{source} has no column {', '.join(missing)}; its columns: {', '.join(form.names)}")
    form = replace(form, columns={**chosen, **{OTHER + name: name for name in wanted.others}})
    if "rating" in chosen and "rating" in wanted.optional and not (before.columns or {}).get("rating"):
        form = _without_text_as_rating(source, form)
    if form.kind == "csv" and form.own and form.missing_ids is None:
        form = replace(form, missing_ids="drop")
    if "timestamp" in chosen and not form.time_format:
        form = replace(form, time_format=_time_format(source, form), guessed=(*form.guessed, "time_format"))
    return form


def _only(form: Format, wanted: Wanted) -> Mapping[str, str] | None:
    if form.columns is None:
        return None
    return {name: column for name, column in form.columns.items() if name in wanted.fields}


def told(given: Format, found: Format) -> list[str]:
    """Return the options that one would write instead of having them guessed; none where nothing was."""
    options = []
    columns = {name: column for name, column in (found.columns or {}).items() if name in FIELDS}
    own = found.kind == "atomic" and all(name == column for name, column in columns.items())
    if columns and columns != given.columns and not own:
        options.append("--columns=" + ",".join(f"{name}={column}" for name, column in columns.items()))
    for key in ("separator", "time_format", "encoding", "quoting"):
        value = getattr(found, key)
        if value is not None and getattr(given, key) is None and (key, value) != ("quoting", "csv"):
            options.append(f"--{key}=" + value.replace("\t", "\\t"))
    return options


def first_bytes(file: SourceFile, encoding: str | None = None) -> bytes:
    """Return the first bytes of a file, or of the first part."""
    data = b""
    with (file.parts or (file,))[0].open(progress=False, encoding=encoding) as stream:
        while len(data) < FIRST_BYTES and (piece := stream.read(FIRST_BYTES - len(data))):
            data += piece
    return data


def guessed_encoding(data: bytes) -> str | None:
    """Return the encoding of the start of a text, None for UTF-8: by its mark, else cp1252 where UTF-8 cannot be.

    A few bytes that are not UTF-8 among characters that are do not change the encoding: they are faults of values.
    """
    for mark, name in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return name
    if data.isascii():
        return None
    text = data.decode("utf-8", "surrogateescape")
    others = [letter for letter in text[: len(text) - 3] if not letter.isascii()]
    wrong = sum("\udc80" <= letter <= "\udcff" for letter in others)
    return "cp1252" if wrong > len(others) - wrong and b"\0" not in data else None


def head(file: SourceFile, encoding: str | None = None) -> list[str]:
    """Return the file's first lines; DataError for bytes that are no text."""
    file = (file.parts or (file,))[0]
    if encoding is None:
        encoding = guessed_encoding(first_bytes(file))
    with file.open(progress=False, encoding=encoding) as stream:
        first = next(blocks(stream, str(file)), Block(b"", 1)).data
    if b"\0" in first:
        raise DataError(f"{file} is no UTF-8 text (packed, UTF-16, or of a program?); unpack it, or save it as text")
    return [line.removesuffix("\r") for line in first.decode("utf-8", "replace").split("\n")[:_LINES] if line.strip()]


def _cells(line: str, separator: str, quoting: str | None = None) -> list[str]:
    if separator != "::" and quoting != "none":
        with contextlib.suppress(csv.Error):  # a value of more than 128 KiB
            return next(csv.reader([line], delimiter=separator), [])
    return line.split(separator)


def _table(file: SourceFile, form: Format) -> Format:
    """The separator, and the names of the columns, or their numbers from 1 where there is no header."""
    lines = head(file, form.encoding) or [""]
    separator = form.separator or separator_of(lines)
    if len(separator) != 1 and separator != "::":
        raise DataError(f"separator={separator!r} is not one character (or '::'); give --separator='\\t' for a tab")
    if form.kind == "csv" and form.quoting is None and separator != "::":
        data = first_bytes(file, form.encoding)
        form = replace(form, quoting="csv" if quoted(data, separator, len(data) < FIRST_BYTES) else "none")
    header, cells = form.header is not False, _cells(lines[0], separator, form.quoting)
    names = [cell.strip() for cell in cells] if header else [str(number) for number in range(1, len(cells) + 1)]
    if not header and not form.columns:
        raise DataError(
            f"{file}: without a header columns are named by number: --columns=user_id=1,item_id=2,timestamp=4"
        )
    if form.kind == "atomic":
        names = [_field(name, form, str(file)) for name in names]
    if len(set(names)) < len(names):
        raise DataError(f"{file}, line 1: two columns have the same name in {', '.join(names)}; rename one")
    return replace(form, names=names, separator=separator, header=header)


def _field(cell: str, form: Format, where: str) -> str:
    """Return the name in ``name:type``, where the four fields must have their own types."""
    name, _, kind = cell.rpartition(":")
    if kind not in ("token", "float", "token_seq", "float_seq"):
        raise DataError(
            f"{where}: {cell[:120]!r} in the first line is no field of an atomic file, such as user_id:token"
        )
    for own, column in {**_OWN, **(form.columns or {})}.items():
        if column == name and own in _TYPES and kind != _TYPES[own]:
            raise DataError(f"{where}: field {name!r} is of type {kind!r}; expected {_TYPES[own]!r}")
    return name


def separator_of(lines: Sequence[str], default: str = ",") -> str:
    """Return the separator that gives the first lines equally many columns, at least two, and the most of them."""
    widths = {each: [len(_cells(line, each)) for line in lines] for each in _SEPARATORS}
    likely = {each: w[0] for each, w in widths.items() if w[0] > 1 and w.count(w[0]) * 2 > len(w)}
    return max(likely, key=lambda each: likely[each], default=default)


def _objects(lines: Sequence[str]) -> list[dict[str, object]]:
    """Return the JSON objects among the lines; none where most lines are something else."""
    found: list[dict[str, object]] = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            found += [value] if isinstance(value, dict) else []
    return found if 2 * len(found) > len(lines) else []


def _keys(file: SourceFile, form: Format) -> Format:
    """The keys that most of the first objects have, or that the user names and any has."""
    found = _objects(head(file, form.encoding)) or _entries(file, form)
    if not found:
        raise DataError(f"{file}: its first lines are no JSON objects, one a line, and no array of objects")
    counts = Counter(key for value in found for key in value)
    given = {part for name in (form.columns or {}).values() for part in (name, name.partition(".")[0])}
    return replace(form, names=[key for key, count in counts.items() if 2 * count > len(found) or key in given])


def _entries(file: SourceFile, form: Format) -> list[dict[str, object]]:
    """Return the first objects of a JSON array."""
    block = next(pieces(file, form, False), None)
    return (
        _objects([line.decode("utf-8", "replace") for line in block.lines().to_pylist()[:_LINES]])
        if isinstance(block, Block)
        else []
    )


def _schema(file: SourceFile, form: Format) -> Format:
    part = (file.parts or (file,))[0]
    with part.open(progress=False) as stream:
        names = pq.ParquetFile(pa.PythonFile(stream, mode="r")).schema_arrow.names
    return replace(form, names=[*names, *hive_keys(part, file)])


def _sample(source: Source, form: Format, field: str) -> pa.Array:
    """Return the first values of a field, none where there are no rows."""
    alone = replace(form, columns={field: (form.columns or {})[field]})
    for piece in pieces(source, alone, False):
        if len(values := parsed(piece, alone, Malformed(str(source))).columns[field]):
            return values.slice(0, _SAMPLE)
    return pa.array([], pa.string())


def _without_text_as_rating(source: Source, form: Format) -> Format:
    """Return the format without a rating that was found by its name, where most of its values are no numbers."""
    values = _sample(source, form, "rating")
    if not len(values) or 2 * to_numbers(values)[1].mean() >= 1:
        return form
    return replace(form, columns={name: column for name, column in (form.columns or {}).items() if name != "rating"})


def _time_format(source: Source, form: Format) -> str:
    values, column = _sample(source, form, "timestamp"), (form.columns or {})["timestamp"]
    if not len(values):
        return "unix"
    try:
        guess = guessed_time_format(values, column)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    if guess is None and isinstance(source, Frame):
        return "iso"  # the row that is none is named when it is read
    if guess is None:
        raise DataError(
            f"{source}: the times in {column!r}, such as {as_text(values)[0]}, are no dates as 2019-01-31 and no Unix "
            "seconds or milliseconds; give their pattern by --time_format, such as '%d.%m.%Y'"
        )
    return guess
