"""Any table to columns with known meaning, in blocks of bounded memory: users, items, times, ratings and others.

A table is a file or a folder (csv and the like, json, parquet, the formats of public data sets), or a frame of pandas,
polars or Arrow. What the caller leaves out is guessed from names and first rows; see :mod:`recbole_hyper.data.guess`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data import guess, times
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.blocks import Block, Malformed, Refused, mapped
from recbole_hyper.data.formats import FIELDS, Format, Layout, columns_of, find
from recbole_hyper.data.ids import MISSING_IDS, PAD, as_mask, as_text, decoded, holds_nul, id_fault, to_strings
from recbole_hyper.data.parsers import Frame, Rows, Source, parsed, pieces
from recbole_hyper.data.where import Where
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

Mask = npt.NDArray[np.bool_]
_NO_TIME = "no finite time; times are timestamps, dates, ISO text, or Unix seconds or milliseconds"
_NO_NUMBER = "not a finite number (for dates see 'recbole-hyper prepare' --format=csv --time_format)"
_SHOWN = ("user_id", "item_id", "rating", "timestamp")
_SHORT = {"user_id": "no user", "item_id": "no item", "timestamp": "no time", "rating": "no rating"}


@dataclass(frozen=True)
class Table:
    """A source and its form; ``blank_ratings`` leaves unreadable ratings blank, instead of dropping the row."""

    source: Source
    form: Format
    blank_ratings: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """The column of each field that the table has; a format without columns has fields alone."""
        columns = self.form.columns or dict(zip(FIELDS[:3], FIELDS[:3], strict=True))
        return {name: column for name, column in columns.items() if name in FIELDS}

    def blocks(self, malformed: Malformed, where: Where | None = None, progress: bool | None = None) -> Iterator[Rows]:
        """Yield the readable rows that meet ``where``, in order; unreadable rows are counted.

        DataError for a damaged file, too many unreadable rows, no readable one, or a value that ``where`` cannot
        compare.
        """

        def work(piece: Block | Rows) -> tuple[Malformed, Rows]:
            own = malformed if isinstance(malformed, Refused) else Malformed(malformed.name, part=piece.part)
            rows = parsed(piece, self.form, own)
            if where is not None and len(rows.lines):
                rows = rows.filter(where.mask({name: rows.columns[guess.OTHER + name] for name in where.columns}))
            return own, check(rows, self.form, own, blank_ratings=self.blank_ratings)

        for own, block in mapped(work, pieces(self.source, self.form, progress)):
            if own is not malformed:
                malformed.merge(own)
            yield block
        if not isinstance(malformed, Refused):
            malformed.check()

    def read_all(self, unit: str | None = "unix") -> dict[str, Any]:
        """Return the columns of all rows, times in ``unit``; in that of the table for None, or where they are no dates.

        A warning counts the rows of a csv file without an id. DataError, which names the row, for one that cannot be
        read.
        """
        places = {"frame": "row {} (from 0)", "parquet": "row {} (from 1)"}
        refused = Refused(str(self.source), places.get(self.form.kind, Malformed.place))
        blocks = list(self.blocks(refused))
        if refused.count:
            logger.warning(
                "%s: %d rows without an id are left out (the first: line %d); --missing_ids=keep keeps such as NA",
                self.source, refused.count, refused.examples[0][0],
            )  # fmt: skip
        columns: dict[str, Any] = {}
        for name in blocks[0].columns if blocks else self.columns:
            parts = [block.columns[name] for block in blocks]
            if name in ("timestamp", "rating"):
                columns[name] = np.concatenate([np.zeros(0), *parts])
            else:
                columns[name] = pa.chunked_array(parts, pa.string() if name in FIELDS else None)
        moments = columns.get("timestamp")
        if moments is not None and unit is not None and times.unit_of_times(moments) is not None:
            columns["timestamp"] = moments * times.UNITS[unit]
        return columns


def open_table(
    source: Source,
    layout: Layout | None = None,
    *,
    format: str | None = None,
    fields: Collection[str] = FIELDS[:3],
    optional: Collection[str] = ("rating",),
    own: Mapping[str, Collection[str]] | None = None,
    others: Collection[str] = (),
    alone: bool = False,
) -> Table:
    """Return a table with everything that its layout leaves open guessed from the source.

    ``format`` of a file is a name in formats.yaml, None for a guess. Of the ``fields`` that are read the ``optional``
    may be missing; ``own`` names of their columns come first. ``others`` are columns that are read as well, and
    ``alone`` takes the only column of a table for the field. DataError for no table, a column that is missing, two that
    fit equally, and times of no known format.
    """
    if isinstance(source, Frame):
        given = Format(kind="frame", columns=(layout or Layout()).columns, names=source.names)
    else:
        name = format or guess.format_of(source, timed="timestamp" in fields and "timestamp" not in optional)
        given = find(name).set(layout, name)
    form, columns = given, given.columns or {}
    if isinstance(source, SourceFile):
        form = guess.named(source, given, keys=bool(given.own or others))
        if form.encoding != given.encoding:
            logger.warning("%s is read as %s; --encoding=NAME overrules this guess", source, form.encoding)
    if form.kind != "frame" and not others and not (form.names and form.kind in guess.HEADERS):
        chosen = {one: column for one, column in columns.items() if one in fields}
        return Table(source, replace(form, columns=chosen or None), "rating" in optional)
    if alone and len(form.names) == 1 and not columns:
        columns = {next(iter(fields)): form.names[0]}
    chosen = columns_of(form.names, columns, str(source), fields, optional, own or {})
    if missing := [one for one in others if not {one, one.partition(".")[0]} & set(form.names)]:
        raise DataError(f"{source} has no column {', '.join(missing)}; its columns: {', '.join(form.names)}")
    for name, column in chosen.items() if form.types else ():
        wanted = "token" if name.endswith("_id") else "float"
        if (kind := form.types[form.names.index(column)]) != wanted:
            raise DataError(f"{source}: field {column!r} is of type {kind!r}; expected {wanted!r}")
    if "rating" in chosen and "rating" in optional and not columns.get("rating"):
        values = guess.sample(source, form, chosen["rating"])
        if len(values) and 2 * times.to_numbers(values)[1].mean() < 1:  # a text that was found by its name
            del chosen["rating"]
    form = replace(form, columns={**chosen, **{guess.OTHER + one: one for one in others}})
    if form.kind == "csv" and form.own and form.missing_ids is None:
        form = replace(form, missing_ids="drop")
    if "timestamp" in chosen and not form.time_format:
        form = replace(form, time_format=guess.time_format_of(source, form, chosen["timestamp"]), guessed=True)
    return Table(source, form, "rating" in optional)


def read_columns(source: SourceFile) -> pa.Table:
    """Return all columns of a file, those of a text as text; DataError where it is no table."""
    form = guess.named(source, find(guess.format_of(source, timed=False)))
    table = Table(source, replace(form, columns={guess.OTHER + one: one for one in form.names}))
    columns = {name.removeprefix(guess.OTHER): one for name, one in table.read_all().items()}

    def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:  # bytes, as texts come, are text without blanks around it
        of_text = pa.types.is_binary(column.type)
        return pa.chunked_array([to_strings(chunk)[0] for chunk in column.chunks], pa.string()) if of_text else column

    return pa.table({one: plain(columns[one]) if one in columns else pa.array([], pa.string()) for one in form.names})


def check(rows: Rows, form: Format, malformed: Malformed, *, blank_ratings: bool = False) -> Rows:
    """Return the rows whose values can all be read, ids as text and times as Unix seconds; the others are counted."""
    columns, good = dict(rows.columns), dict[str, Mask]()
    for name in ("user_id", "item_id"):
        if name in columns:
            columns[name], good[name] = id_texts(columns[name], form)
    if "timestamp" in columns:
        columns["timestamp"], good["timestamp"] = _seconds(rows, form, malformed)
    if "rating" in columns:
        numbers, readable = times.to_numbers(columns["rating"])
        columns["rating"] = np.where(readable, numbers, np.nan).astype(np.float32)
        if not blank_ratings:
            good["rating"] = readable
    good_rows = np.logical_and.reduce([np.ones(len(rows.lines), bool), *good.values()])
    malformed.good += int(np.count_nonzero(good_rows))
    for row in np.flatnonzero(~good_rows):
        bad = next(name for name in _SHORT if name in good and not good[name][row])
        _tell(rows, int(row), bad, form, malformed)
    return Rows(columns, rows.lines, rows.part).filter(good_rows)


def id_texts(values: pa.Array, form: Format) -> tuple[pa.Array, Mask]:
    """Return ids as text, and which are some: of files without blanks around, of csv files no words for none."""
    if form.exact:
        texts = as_text(values)
        good = as_mask(pc.greater(pc.binary_length(texts), 0)) & ~as_mask(pc.equal(texts, PAD))
    else:
        texts, good = to_strings(values)
    if form.missing_ids == "drop":
        good &= ~as_mask(pc.is_in(texts, value_set=pa.array(MISSING_IDS)))
    if holds_nul(texts):
        good &= ~as_mask(pc.match_substring(texts, "\0"))
    return texts, good


def _seconds(rows: Rows, form: Format, malformed: Malformed) -> tuple[npt.NDArray[np.float64], Mask]:
    """Return Unix seconds; DataError where a unit that was guessed cannot be that of all."""
    values, unit = rows.columns["timestamp"], form.time_format or "unix"
    seconds, good = times.to_seconds(values, unit)
    if form.guessed and unit in times.UNITS and not pa.types.is_temporal(values.type):
        numbers = seconds * times.UNITS[unit]
        if (row := times.mixed_units(np.where(good, numbers, 0.0), unit)) >= 0:
            other = times.unit_of(abs(numbers[row]))
            read = [f"{times.day(numbers[row] / times.UNITS[one])} by --time_format={one}" for one in (unit, other)]
            column, value = (form.columns or {})["timestamp"], as_text(values)[row].as_py()
            raise DataError(
                f"{rows.part or malformed.name}, {malformed.place.format(int(rows.lines[row]))}: {value} in {column!r} "
                f"is {' and '.join(read)}: the times are in more than one unit; write all in one, or give the option"
            )
    return seconds, good


def _tell(rows: Rows, row: int, bad: str, form: Format, malformed: Malformed) -> None:
    """Count a row that cannot be read, with the reason."""
    line, column = int(rows.lines[row]), (form.columns or {}).get(bad)
    given = {name: rows.columns[name][row].as_py() for name in _SHOWN if name in rows.columns}
    texts = {name: decoded(value) for name, value in given.items()}
    value, text, of_ids = given[bad], texts[bad], bad.endswith("_id")
    missing = of_ids and form.missing_ids == "drop" and str(text or "").strip() in ("", *MISSING_IDS)
    if isinstance(malformed, Refused):
        if missing:
            malformed.skip(line)
        elif of_ids:
            malformed.add(line, f"the id in {column!r} is {id_fault(value if text is None else text)}", "")
        else:
            malformed.add(line, f"{text!r} in {column!r} is {_NO_NUMBER if form.kind == 'atomic' else _NO_TIME}", "")
        return
    reason = _SHORT[bad]
    if any(isinstance(one, bytes) and texts[name] is None for name, one in given.items()):
        reason = "not UTF-8; give the file's --encoding"
    elif missing and value:
        reason += " (--missing_ids=keep takes such words for ids)"
    shown = [given[name].decode("utf-8", "backslashreplace") if text is None and given[name] else text
             for name, text in texts.items()]  # fmt: skip
    malformed.add(line, reason, "\t".join(map(str, shown)))
