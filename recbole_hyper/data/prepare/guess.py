"""What a file itself says about its format: kind, separator, header, columns, how times are written."""

import contextlib
import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from recbole_hyper.data.prepare.blocks import Block, blocks
from recbole_hyper.data.prepare.errors import Malformed, PrepareError
from recbole_hyper.data.prepare.formats import Format, formats
from recbole_hyper.data.prepare.frames import columns_of
from recbole_hyper.data.prepare.interactions import PARSERS, hive_keys, pieces
from recbole_hyper.data.prepare.sources import SourceFile, matches
from recbole_hyper.data.prepare.values import as_text, guessed_time_format

_SEPARATORS = (",", "\t", ";", "|", "::")
_LINES = 100
_TYPES = {"user_id": "token", "item_id": "token", "timestamp": "float", "rating": "float"}
_OWN = {field: field for field in _TYPES}


def format_of(file: SourceFile) -> str:
    """Return the format that the file's name, else its first bytes, tell; PrepareError where neither does."""
    if file.parts:
        return "parquet"
    for name, form in formats().items():
        if not form.own and any(matches(file.name, pattern) for pattern in form.files) and _has_columns(file, form):
            return name
    with file.open(progress=False) as stream:
        magic = stream.read(4)
    if magic == b"PAR1":
        return "parquet"
    lines = head(file)
    if _objects(lines):
        return "jsonl"
    if lines and lines[0].startswith("[") and any("{" in line for line in lines[:2]):
        raise PrepareError(f"{file} is one JSON array; write an object a line, as jq -c '.[]' FILE > FILE.jsonl does")
    if lines and len(cells := lines[0].split("\t")) > 1 and all(":" in cell for cell in cells):
        return "atomic"
    if any(len(_cells(line, separator)) > 2 for line in lines[:1] for separator in _SEPARATORS):
        return "csv"
    known = ", ".join(sorted(formats()))
    raise PrepareError(
        f"{file}: neither its name nor its first line tells the format (a table has a header of at least three "
        f"columns: user, item, time); give --format=NAME ({known})"
    )


def _has_columns(file: SourceFile, form: Format) -> bool:
    """Say whether the file has the columns of a published format with a header; others have none to compare."""
    return form.kind != "csv" or set((form.columns or {}).values()) <= set(_table(file, form).names)


def completed(file: SourceFile, form: Format) -> Format:
    """Return the format with all that the file itself tells: names, separator, columns, time format.

    PrepareError for a column that is missing, two that fit equally, or times of no known format.
    """
    names_of = {"csv": _table, "atomic": _table, "json": _keys, "parquet": _schema}
    if form.kind not in names_of or (form.kind == "json" and not form.own):
        return form
    form = names_of[form.kind](file, form)
    form = replace(form, columns=columns_of(form.names, form.columns, str(file)))
    return form if form.time_format else replace(form, time_format=_time_format(file, form))


def told(given: Format, found: Format) -> list[str]:
    """Return the options that one would write instead of having them guessed; none where nothing was."""
    options = []
    own = found.kind == "atomic" and all(field == column for field, column in (found.columns or {}).items())
    if found.columns and found.columns != given.columns and not own:
        options.append("--columns=" + ",".join(f"{field}={column}" for field, column in found.columns.items()))
    for key in ("separator", "time_format"):
        value = getattr(found, key)
        if value is not None and getattr(given, key) is None:
            options.append(f"--{key}=" + value.replace("\t", "\\t"))
    return options


def head(file: SourceFile) -> list[str]:
    """Return the file's first lines; PrepareError for bytes that are no text."""
    with file.open(progress=False) as stream:
        first = next(blocks(stream, str(file)), Block(b"", 1)).data
    if b"\0" in first:
        raise PrepareError(f"{file} is no UTF-8 text (packed, UTF-16, or of a program?); unpack it, or save it as text")
    return [line.removesuffix("\r") for line in first.decode("utf-8", "replace").split("\n")[:_LINES] if line.strip()]


def _cells(line: str, separator: str) -> list[str]:
    if separator != "::":
        with contextlib.suppress(csv.Error):  # a value of more than 128 KiB
            return next(csv.reader([line], delimiter=separator), [])
    return line.split(separator)


def _table(file: SourceFile, form: Format) -> Format:
    """The separator, and the names of the columns, or their numbers from 1 where there is no header."""
    lines = head(file) or [""]
    separator = form.separator or separator_of(lines)
    if len(separator) != 1 and separator != "::":
        raise PrepareError(f"separator={separator!r} is not one character (or '::'); give --separator='\\t' for a tab")
    header, cells = form.header is not False, _cells(lines[0], separator)
    names = [cell.strip() for cell in cells] if header else [str(number) for number in range(1, len(cells) + 1)]
    if not header and not form.columns:
        raise PrepareError(
            f"{file}: without a header columns are named by number: --columns=user_id=1,item_id=2,timestamp=4"
        )
    if form.kind == "atomic":
        names = [_field(name, form, str(file)) for name in names]
    if len(set(names)) < len(names):
        raise PrepareError(f"{file}, line 1: two columns have the same name in {', '.join(names)}; rename one")
    return replace(form, names=names, separator=separator, header=header)


def _field(cell: str, form: Format, where: str) -> str:
    """Return the name in ``name:type``, where the four fields must have their own types."""
    name, _, kind = cell.rpartition(":")
    if kind not in ("token", "float", "token_seq", "float_seq"):
        raise PrepareError(
            f"{where}: {cell[:120]!r} in the first line is no field of an atomic file, such as user_id:token"
        )
    for field, column in {**_OWN, **(form.columns or {})}.items():
        if column == name and kind != _TYPES[field]:
            raise PrepareError(f"{where}: field {name!r} is of type {kind!r}; expected {_TYPES[field]!r}")
    return name


def separator_of(lines: Sequence[str]) -> str:
    """Return the separator that gives the first lines equally many columns, at least two, and the most of them."""
    widths = {each: [len(_cells(line, each)) for line in lines] for each in _SEPARATORS}
    fitting = {each: w[0] for each, w in widths.items() if w[0] > 1 and w.count(w[0]) * 2 > len(w)}
    return max(fitting, key=lambda each: fitting[each], default=",")


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
    found = _objects(head(file))
    if not found:
        raise PrepareError(f"{file}: its first lines are no JSON objects, one a line")
    counts = Counter(key for value in found for key in value)
    given = (form.columns or {}).values()
    return replace(form, names=[key for key, count in counts.items() if 2 * count > len(found) or key in given])


def _schema(file: SourceFile, form: Format) -> Format:
    part = (file.parts or (file,))[0]
    with part.open(progress=False) as stream:
        names = pq.ParquetFile(pa.PythonFile(stream, mode="r")).schema_arrow.names
    return replace(form, names=[*names, *hive_keys(part, file)])


def _time_format(file: SourceFile, form: Format) -> str:
    piece = next(pieces(file, form, False), None)
    rows = PARSERS[form.kind](piece, form, Malformed(file.name)) if isinstance(piece, Block) else piece
    if rows is None or not len(rows.lines):
        return "unix"
    times = rows.columns["timestamp"].slice(0, 10_000)
    if (guess := guessed_time_format(times)) is None:
        raise PrepareError(
            f"{file}: the times in {(form.columns or {})['timestamp']!r}, such as {as_text(times)[0]}, are no dates as "
            "2019-01-31 and no Unix seconds or milliseconds; give their pattern by --time_format, such as '%d.%m.%Y'"
        )
    return guess
