"""Guesses the format of a source: kind, encoding, separator, quoting, columns, and the format of its times."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import logging
import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recbole_hyper.data.tables.archives import SourceFile, matches
from recbole_hyper.data.tables.formats import FIELDS, Format, Layout, formats, matching_names
from recbole_hyper.data.tables.ids import as_text
from recbole_hyper.data.tables.malformed import Malformed
from recbole_hyper.data.tables.parsers import LINE, Frame, Source, parsed, pieces
from recbole_hyper.data.tables.parsers import OTHER as OTHER
from recbole_hyper.data.tables.times import guessed_time_format, to_seconds
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

_SEPARATORS = (",", "\t", ";", "|", "::")
_LINES = 100
FIRST_BYTES = 1 << 20
_SAMPLE = 10_000
TYPES = ("token", "float", "token_seq", "float_seq")
_MARKS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_RATED = re.compile(r"\S+ \S+ [0-9.]+ [0-9]{9,13}(\.[0-9]+)?")  # user, item, rating and Unix time between blanks
# the starts of files that need a recipe of examples/convert/, and what they are
_RECIPES = {
    r"\s*\{u?'": ("dictionaries", "Python dictionaries"),
    r"[0-9]+:\s*\n": ("netflix", "lines below the number of their film, as in the Netflix Prize"),
    r"[0-9]+\t\w+\t[0-9/]+ [0-9:]+ [AP]M\t": ("mind", "the impressions of MIND"),
    r"\w+/\w+: ": ("records", "lines 'key: value'"),
    r'\s*\{\s*"': ("rows_in_object", "the rows in an object of JSON"),
}
# kinds of files that name their columns
_NAMED = ("csv", "parquet", "json")


def format_of(file: SourceFile, timed: bool = True, layout: Layout | None = None) -> str:
    """Return the format, guessed by the file's name, else its first bytes; without times, two columns are enough."""
    layout = layout or Layout()
    layout.check()
    first = (file.parts or (file,))[0]
    for name, form in formats().items():
        if not form.published or file.parts or not any(matches(first.name, pattern) for pattern in form.files):
            continue
        # a published format with a header must have its columns
        columns = {*(form.columns or {}).values()}
        if form.kind in _NAMED:
            columns -= {*named(first, replace(form, encoding=layout.encoding)).names}
        line = "".join(head(first, layout.encoding)[:1]) if form.header is False else ""
        if not _names_both(_cells(line, str(form.separator))) and (form.kind not in _NAMED or not columns):
            return name
    if (file.parts and matches(first.name, "*.parquet")) or first.first_bytes(4) == b"PAR1":
        return "parquet"
    lines = head(first, layout.encoding)
    if not lines:
        raise DataError(f"{first} is empty; check that it is complete")
    text = "\n".join(lines)
    if _objects(lines) or (text.lstrip().startswith("[") and "{" in text):
        return "jsonl"
    if len(cells := lines[0].split("\t")) > 1 and all(":" in cell for cell in cells):
        return "atomic"
    refuse_recipes(file, lines)
    separators = (layout.separator,) if layout.separator else _SEPARATORS
    if any(len(_cells(lines[0], one)) > 1 + timed for one in separators) or _blank_header(lines):
        return "csv"
    if not timed and len(lines[0].split()) > 1:
        if any(all(line.split()[n : n + 1] == [str(len(line.split()) - n - 1)] for line in lines) for n in (0, 1)):
            raise DataError(
                f"{file}: has each line the number of its items, as {lines[0][:80]!r}? Then make it 'user item item "
                "...' without the number; or is it an item? Then add --format=sequences"
            )
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


def refuse_recipes(file: SourceFile, lines: Sequence[str]) -> None:
    """Raise DataError, which names the recipe, for the first lines of a file that needs one."""
    text = "\n".join(lines[:3])
    for pattern, (recipe, what) in _RECIPES.items():
        if re.match(pattern, text):
            raise DataError(f"{file}: {what} become a table by examples/convert/{recipe}.py; prepare that")


def _blank_header(lines: Sequence[str]) -> bool:
    """Return whether the first line names a user and an item, and most lines have as many values between blanks."""
    widths = [line.count(" ") for line in lines]
    if not widths or widths.count(widths[0]) * 2 <= len(widths):
        return False
    return _names_both(lines[0].split(" "))


def _names_both(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line name a user and an item."""
    return all(matching_names(field, cells) for field in ("user_id", "item_id"))


def named(file: SourceFile, form: Format) -> Format:
    """Return the format with its encoding and the names of the file's columns."""
    if form.encoding is None and form.kind != "parquet":
        form = replace(form, encoding=guessed_encoding(file.first_bytes(FIRST_BYTES)))
    return HEADERS[form.kind](file, form) if form.kind in HEADERS else form


def guessed_options(given: Format, guess: Format) -> list[str]:
    """Return the command-line options that replace all guesses; [] if nothing was guessed."""
    options = []
    columns = {name: column for name, column in (guess.columns or {}).items() if name in FIELDS}
    usual = guess.kind == "atomic" and all(name == column for name, column in columns.items())
    if columns != given.columns and not usual:
        options.append("--columns=" + ",".join(f"{name}={column}" for name, column in columns.items()))
    for key in ("separator", "time_format", "encoding", "quoting"):
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
    first = file.first_bytes(FIRST_BYTES, encoding).removeprefix(codecs.BOM_UTF8)
    if (at := first.find(b"\0")) >= 0:
        raise DataError(
            f"{file}, line {first.count(10, 0, at) + 1}: a NUL character, so this is not UTF-8 text (is it packed, "
            "UTF-16, binary, or the workbook of a spreadsheet?); unpack it, or save it as text, such as csv"
        )
    lines = re.split("\r\n?|\n", first.decode("utf-8", "replace"), maxsplit=_LINES)[:_LINES]
    return [line for line in lines if line.strip()]


def quoted(data: bytes, separator: str, complete: bool) -> bool:
    """Return whether the start of a text, or a ``complete`` one, puts values in double quotes, and closes all."""
    text = io.StringIO(data.decode("utf-8", "replace"), newline="")
    try:
        deque(csv.reader(text, delimiter=separator, strict=True), maxlen=0)
    except csv.Error as error:
        return not complete and "unexpected end" in str(error)
    return True


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
    whole = lines[:1] if replace(form, separator=separator).quoted else lines  # values in quotes may have line ends
    width, _ = Counter(len(_cells(line, separator, form.quoting)) for line in whole).most_common(1)[0]
    names = [cell.strip() for cell in cells] if header else [str(number) for number in range(1, width + 1)]
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


def _objects(lines: Sequence[str]) -> list[dict[str, object]]:
    """Return the objects among lines of JSON, [] if most are something else or the only one has lists and objects."""
    objects: list[dict[str, object]] = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            objects += [value] if isinstance(value, dict) else []
    wraps = len(objects) == 1 and all(isinstance(value, list | dict) for value in objects[0].values())
    return objects if 2 * len(objects) > len(lines) and not wraps else []


def _keys(file: SourceFile, form: Format) -> Format:
    """Add the keys that most of the first JSON objects have, or that the user names."""
    rows = next(pieces(file, form), None)
    lines = [] if rows is None else pc.fill_null(as_text(rows.columns[LINE].slice(0, _LINES)), "").to_pylist()
    objects = _objects([line for line in lines if line.strip()])
    if not objects:
        refuse_recipes(file, head(file, form.encoding))
        raise DataError(f"{file}: the first lines are neither one JSON object per line nor an array of objects")
    counts = Counter(key for value in objects for key in value)
    named_keys = {part for name in (form.columns or {}).values() for part in (name, name.partition(".")[0])}
    return replace(form, names=[key for key, count in counts.items() if 2 * count > len(objects) or key in named_keys])


def _schema(file: SourceFile, form: Format) -> Format:
    with (file.parts or (file,))[0].open() as stream:
        return replace(form, names=pq.ParquetFile(pa.PythonFile(stream, mode="r")).schema_arrow.names)


HEADERS = {"csv": _table, "atomic": _table, "json": _keys, "parquet": _schema}


def sample(source: Source, form: Format, fields: Collection[str]) -> dict[str, pa.Array]:
    """Return the first values of the columns of some fields, without those that are empty in a text file."""
    some = replace(form, columns={field: name for field, name in (form.columns or {}).items() if field in fields})
    for piece in pieces(source, some) if fields else ():
        rows = parsed(piece, some, Malformed(str(source)))
        if len(rows.lines):
            found = {field: rows.columns[field].slice(0, _SAMPLE) for field in fields}
            texts = {field: values for field, values in found.items() if pa.types.is_binary(values.type)}
            return found | {field: one.filter(pc.greater(pc.binary_length(one), 0)) for field, one in texts.items()}
    return dict.fromkeys(fields, pa.array([], pa.string()))


def dated(source: Source, form: Format, without: Collection[str]) -> dict[str, pa.Array]:
    """Return the first values of the columns that are dates or Unix times, except some."""
    names = [name for name in dict.fromkeys(form.names) if name not in without]
    found: dict[str, pa.Array] = {}
    for some in [[name] for name in names] if isinstance(source, Frame) else [names]:
        with contextlib.suppress(DataError):  # a column of a frame may be anything
            found |= sample(source, replace(form, columns={name: name for name in some}), some)
    for name in list(found):
        with contextlib.suppress(DataError):
            if len(found[name]) and guessed_time_format(found[name]) not in (None, "steps"):
                continue
        del found[name]
    return found


def by_values(
    source: Source, form: Format, given: Mapping[str, str], fields: Collection[str], own: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """Return the column of the times if no name of a column says it, but only one has dates."""
    known = form.types or not {"timestamp"} - {*given} & {*fields}
    if known or matching_names("timestamp", form.names, own.get("timestamp", ())):
        return {}
    taken = [*given.values(), *(name for field in fields for name in matching_names(field, form.names))]
    times = list(dated(source, form, taken))
    return {"timestamp": times[0]} if len(times) == 1 else {}


def warn_of_finer(source: Source, form: Format, chosen: Mapping[str, str], values: pa.Array) -> None:
    """Warn if the times are days, but other columns have times of day."""
    if not _whole_days(values, str(form.time_format)):
        return
    others = dated(source, form, chosen.values())
    finer = [name for name, some in others.items() if not _whole_days(some, guessed_time_format(some) or "iso")]
    if finer:
        logger.warning(
            "%s: the column %s has days without a time of day, %s has times: --columns=timestamp=%s",
            source, chosen["timestamp"], ", ".join(finer), finer[0],
        )  # fmt: skip


def _whole_days(values: pa.Array, time_format: str) -> bool:
    seconds, good = to_seconds(values, time_format)
    return time_format != "steps" and bool(np.all(seconds[good] % 86_400 == 0))


def time_format_of(source: Source, values: pa.Array, column: str) -> str:
    """Return the time format of a column's ``values``, ``unix`` for none; DataError if it cannot be guessed."""
    if not len(values):
        return "unix"
    if values.null_count == len(values):
        raise DataError(f"{source}: {column!r} has no times; the key of an object is written as {column}.date")
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
