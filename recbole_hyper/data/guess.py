"""Guesses the format of a source: kind, encoding, separator, quoting, columns, and the format of its times."""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recbole_hyper.data.archives import SourceFile, matches
from recbole_hyper.data.blocks import FIRST_BYTES, Block, Malformed, blocks, quoted
from recbole_hyper.data.formats import FIELDS, Format, Layout, formats, matching_names
from recbole_hyper.data.ids import as_text
from recbole_hyper.data.parsers import OTHER as OTHER
from recbole_hyper.data.parsers import WRAPPED, Frame, Source, hive_keys, parsed, pieces
from recbole_hyper.data.times import guessed_time_format
from recbole_hyper.errors import DataError

_SEPARATORS = (",", "\t", ";", "|", "::")
_LINES = 100
_SAMPLE = 10_000
TYPES = ("token", "float", "token_seq", "float_seq")
_MARKS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_GROUP = re.compile(r"[0-9]+:")  # a film of the Netflix Prize
_RATED = re.compile(r"\S+ \S+ [0-9.]+ [0-9]{9,13}(\.[0-9]+)?")  # user, item, rating and Unix time between blanks
_BARE_LISTS = re.compile(r'\s*\[\s*\[|\s*\{\s*"[^"]*"\s*:\s*\[\s*["\[0-9]')
_AMAZON = re.compile(r"[1-5](\.0)?,(9|1[0-9])[0-9]{8}")  # a rating and Unix seconds


def format_of(file: SourceFile, timed: bool = True, layout: Layout | None = None) -> str:
    """Return the format, guessed by the file's name, else its first bytes; without times, two columns are enough."""
    layout = layout or Layout()
    layout.check()
    encoding, columns = layout.encoding, layout.columns
    first = (file.parts or (file,))[0]
    if file.parts and matches(first.name, "*.parquet"):
        return "parquet"
    for name, form in formats().items():
        if form.own or not any(matches(first.name, pattern) for pattern in form.files):
            continue
        # a published format with a header must have its columns
        if form.kind not in ("csv", "parquet") or _has_columns(first, replace(form, encoding=encoding)):
            return name
    if first.first_bytes(4) == b"PAR1":
        return "parquet"
    lines = head(first, encoding)
    if lines and _GROUP.fullmatch(lines[0]) and any(line.count(",") == 2 for line in lines[1:3]):
        return "netflix"
    if columns is None and (amazon := _amazon_ratings(lines)):
        return amazon
    objects, text = _objects(lines), "\n".join(lines)
    if text.startswith(("{'", "{u'")) and not objects:
        return "python-dictionaries"
    if _BARE_LISTS.match(text) and (not objects or _is_wrapper(objects)):
        raise DataError(
            f"{file}: lists of JSON without the names of their users; write an object a line, "
            '{"user": "ann", "items": ["lamp", "desk"]}, or lines \'ann lamp desk\' with --order=file'
        )
    if objects or WRAPPED.match(text) or (text.lstrip().startswith("[") and any("{" in line for line in lines[:2])):
        return "jsonl"
    if lines and len(cells := lines[0].split("\t")) > 1 and all(":" in cell for cell in cells):
        return "atomic"
    separators = (layout.separator,) if layout.separator else _SEPARATORS
    if any(len(_cells(line, separator)) > 1 + timed for line in lines[:1] for separator in separators):
        return "csv"
    if _blank_header(lines):
        return "csv"
    if not timed and lines and len(lines[0].split()) > 1:
        if len(lines) > 1 and all(_RATED.fullmatch(line) for line in lines):
            raise DataError(
                f"{file}: are these lines 'user item rating time', as {lines[0]!r}? Then add --format=csv "
                "--separator=' ' --no_header --columns=user_id=1,item_id=2,timestamp=4; or are they 'user item item "
                "...'? Then add --format=sequences"
            )
        return "sequences"
    known = ", ".join(sorted(formats()))
    raise DataError(
        f"{file}: cannot guess the format from its name or its first line (a table has a header with at least three "
        f"columns: user, item, time); add --format=NAME ({known}), or --order=file for a table without times"
    )


def _blank_header(lines: Sequence[str]) -> bool:
    """Return whether the first line names a user and an item, and most lines have as many values between blanks."""
    widths = [line.count(" ") for line in lines]
    if not widths or widths.count(widths[0]) * 2 <= len(widths):
        return False
    return all(matching_names(field, lines[0].split(" ")) for field in ("user_id", "item_id"))


def _has_columns(file: SourceFile, form: Format) -> bool:
    return {*(form.columns or {}).values()} <= {*HEADERS[form.kind](file, form).names}


def _amazon_ratings(lines: Sequence[str]) -> str | None:
    """Return the format of Amazon's ratings without a header, by the place of the item codes of ten characters."""
    rows = [line.split(",") for line in lines]
    if not rows or any(len(row) != 4 or not _AMAZON.fullmatch(",".join(row[2:])) for row in rows):
        return None
    places = [sum(len(row[place]) == 10 for row in rows) for place in (0, 1)]
    if max(places) * 2 <= len(rows) or places[0] == places[1]:
        return None
    return "amazon-ratings-2018" if places[0] > places[1] else "amazon-ratings-2014"


def named(file: SourceFile, form: Format, keys: bool = True) -> Format:
    """Return the format with its encoding and the names of the file's columns (of JSON only if ``keys``)."""
    if form.encoding is None and form.kind != "parquet":
        form = replace(form, encoding=guessed_encoding(file.first_bytes(FIRST_BYTES)))
    return HEADERS[form.kind](file, form) if form.kind in HEADERS and (keys or form.kind not in _BY_KEY) else form


def guessed_options(given: Format, guess: Format) -> list[str]:
    """Return the command-line options that replace all guesses; [] if nothing was guessed."""
    options = []
    columns = {name: column for name, column in (guess.columns or {}).items() if name in FIELDS}
    usual = guess.kind == "atomic" and all(name == column for name, column in columns.items())
    if given.own and columns and columns != given.columns and not usual:
        options.append("--columns=" + ",".join(f"{name}={column}" for name, column in columns.items()))
    for key in ("separator", "time_format", "encoding", "quoting") if given.own else ("encoding",):
        value = getattr(guess, key)
        if value is not None and getattr(given, key) is None and (key, value) != ("quoting", "csv"):
            options.append(f"--{key}=" + value.replace("\t", "\\t"))
    return options


def guessed_encoding(data: bytes) -> str | None:
    """Return the encoding of a text by its start: that of its byte order mark, None for UTF-8, else cp1252."""
    if by_mark := next((name for mark, name in _MARKS.items() if data.startswith(mark)), None):
        return by_mark
    if data.isascii():
        return None
    text = data.decode("utf-8", "surrogateescape")
    letters = [letter for letter in text[: len(text) - 3] if not letter.isascii()]
    invalid = sum("\udc80" <= letter <= "\udcff" for letter in letters)
    return "cp1252" if 2 * invalid > len(letters) and b"\0" not in data else None


def head(file: SourceFile, encoding: str | None = None) -> list[str]:
    """Return the file's first lines; DataError for bytes that are not text."""
    file = (file.parts or (file,))[0]
    encoding = encoding or guessed_encoding(file.first_bytes(FIRST_BYTES))
    with file.open(progress=False, encoding=encoding) as stream:
        first = next(blocks(stream, str(file)), Block(b"", 1)).data
    if (at := first.find(b"\0")) >= 0:
        raise DataError(
            f"{file}, line {first.count(10, 0, at) + 1}: a NUL character, so this is not UTF-8 text (is it packed, "
            "UTF-16, binary, or the workbook of a spreadsheet?); unpack it, or save it as text, such as csv"
        )
    return [line.removesuffix("\r") for line in first.decode("utf-8", "replace").split("\n")[:_LINES] if line.strip()]


def _cells(line: str, separator: str, quoting: str | None = None) -> list[str]:
    if len(separator) == 1 and quoting != "none":
        with contextlib.suppress(csv.Error):  # a value of more than 128 KiB
            return next(csv.reader([line], delimiter=separator), [])
    return line.split(separator)


def _table(file: SourceFile, form: Format) -> Format:
    """Add the names of the columns: those in the first line, or numbers from 1 if there is no header."""
    lines = head(file, form.encoding)
    if form.kind == "atomic" and not lines:
        raise DataError(f"{file}: the first line is empty; it must name the columns, such as item_id:token")
    lines, types = lines or [""], []
    separator = form.separator or separator_of(lines, " " if _blank_header(lines) else ",")
    if form.kind == "csv" and form.quoting is None and len(separator.encode()) == 1:
        data = file.first_bytes(FIRST_BYTES, form.encoding)
        form = replace(form, quoting="csv" if quoted(data, separator, len(data) < FIRST_BYTES) else "none")
    header, cells = form.header is not False, _cells(lines[0], separator, "none" if form.exact else form.quoting)
    names = [cell.strip() for cell in cells] if header else [str(number) for number in range(1, len(cells) + 1)]
    if not header and not form.columns:
        raise DataError(f"{file} has no header; add --columns=user_id=1,item_id=2,timestamp=4 with your numbers")
    if form.kind == "atomic":
        if wrong := [cell for cell in names if cell.rpartition(":")[2] not in TYPES]:
            raise DataError(
                f"{file}: header entry {wrong[0][:120]!r} is not 'name:type', such as user_id:token; types are "
                f"{', '.join(TYPES)}, and {separator!r} separates the entries"
            )
        names, types = [cell.rpartition(":")[0] for cell in names], [cell.rpartition(":")[2] for cell in names]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{file}, line 1: two columns have the same name, {', '.join(map(repr, repeated))}; rename one")
    return replace(form, names=names, types=types, separator=separator, header=header)


def separator_of(lines: Sequence[str], default: str = ",") -> str:
    """Return the separator that splits most of the first lines into equally many columns, and into the most columns."""
    likely: dict[str, int] = {}
    for each in _SEPARATORS:
        widths = [[len(_cells(line, each)) for line in lines]]
        if len(each) == 1:
            with contextlib.suppress(csv.Error):  # records, whose values in quotes may have line ends
                widths.append([len(row) for row in csv.reader([f"{line}\n" for line in lines], delimiter=each)])
        if any(w[0] > 1 and w.count(w[0]) * 2 > len(w) for w in widths if w):
            likely[each] = widths[0][0]
    return max(likely, key=lambda each: likely[each], default=default)


def _dictionary(line: str) -> object:
    try:
        return ast.literal_eval(line)
    except (SyntaxError, MemoryError) as error:
        raise ValueError(line) from error


def _objects(lines: Sequence[str], load: Callable[[str], object] = json.loads) -> list[dict[str, object]]:
    """Return the objects among the lines, of JSON or what ``load`` reads; [] if most lines are something else."""
    objects: list[dict[str, object]] = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            value = load(line)
            objects += [value] if isinstance(value, dict) else []
    return objects if 2 * len(objects) > len(lines) else []


def _is_wrapper(objects: Sequence[dict[str, object]]) -> bool:
    """Return whether this is one object that only has lists and objects."""
    return len(objects) == 1 and all(isinstance(value, list | dict) for value in objects[0].values())


def _keys(file: SourceFile, form: Format) -> Format:
    """Add the keys that most of the first JSON objects have, or that the user names."""
    load = json.loads if form.kind == "json" else _dictionary
    lines = head(file, form.encoding)
    objects = _objects(lines, load)
    if form.kind == "json" and WRAPPED.match("\n".join(lines)) and (not objects or _is_wrapper(objects)):
        form, objects = replace(form, wrapped=True), []
    if not objects and form.kind == "json" and isinstance(block := next(pieces(file, form, False), None), Block):
        objects = _objects([line.decode("utf-8", "replace") for line in block.lines().to_pylist()[:_LINES]])
    if not objects:
        raise DataError(f"{file}: the first lines are neither one JSON object per line nor an array of objects")
    counts = Counter(key for value in objects for key in value)
    named_keys = {part for name in (form.columns or {}).values() for part in (name, name.partition(".")[0])}
    return replace(form, names=[key for key, count in counts.items() if 2 * count > len(objects) or key in named_keys])


def _schema(file: SourceFile, form: Format) -> Format:
    part = (file.parts or (file,))[0]
    with part.open(progress=False) as stream:
        names = pq.ParquetFile(pa.PythonFile(stream, mode="r")).schema_arrow.names
    return replace(form, names=[*names, *hive_keys(part, file)])


HEADERS = {"csv": _table, "atomic": _table, "json": _keys, "literals": _keys, "parquet": _schema}
_BY_KEY = ("json", "literals")


def sample(source: Source, form: Format, fields: Collection[str]) -> dict[str, pa.Array]:
    """Return the first values of the columns of some fields, without those that are empty in a text file."""
    some = replace(form, columns={field: name for field, name in (form.columns or {}).items() if field in fields})
    for piece in pieces(source, some, False) if fields else ():
        rows = parsed(piece, some, Malformed(str(source)))
        if len(rows.lines):
            found = {field: rows.columns[field].slice(0, _SAMPLE) for field in fields}
            texts = {field: values for field, values in found.items() if pa.types.is_binary(values.type)}
            return found | {
                field: values.filter(pc.greater(pc.binary_length(values), 0)) for field, values in texts.items()
            }
    return dict.fromkeys(fields, pa.array([], pa.string()))


def time_format_of(source: Source, values: pa.Array, column: str) -> str:
    """Return the time format of a column's ``values``, ``unix`` for none; DataError if it cannot be guessed."""
    if not len(values):
        return "unix"
    try:
        guess = guessed_time_format(values, column)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    if guess is None and not isinstance(source, Frame):
        raise DataError(
            f"{source}: the times in {column!r}, such as {as_text(values)[0]}, are neither dates like 2019-01-31 nor "
            "Unix seconds or milliseconds; set their pattern by --time_format, such as '%d.%m.%Y'"
        )
    return guess or "iso"  # for a frame, reading then names the row
