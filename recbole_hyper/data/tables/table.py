"""From any table to columns of users, items, times, ratings and others, in blocks of bounded memory.

A table is a file or a folder (csv, json, parquet, the formats of public data sets), or a frame of pandas, polars or
Arrow. What the caller leaves open is guessed from names and first rows; see :mod:`recbole_hyper.data.tables.guess`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import guess, times
from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import FIELDS, Format, Layout, columns_of, find
from recbole_hyper.data.tables.ids import (
    MISSING_IDS,
    PAD,
    as_mask,
    as_text,
    decoded,
    id_fault,
    is_list,
    is_plain,
    to_strings,
)
from recbole_hyper.data.tables.malformed import Malformed, Refused, mapped
from recbole_hyper.data.tables.parsers import Frame, Rows, Source, json_keys, parsed, pieces
from recbole_hyper.data.tables.where import Where
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

Mask = npt.NDArray[np.bool_]
_NO_TIME = "not a finite time; times are dates or Unix times, from 1990 to tomorrow where their format is a guess"
_NO_NUMBER = "not a finite number (for dates see 'recbole-hyper prepare' --format=csv --time_format)"
_WHOLE = r"^(-?[0-9]+)[.,]0$"
_ROUNDED = r"^[0-9]([.,][0-9]+)?E\+[0-9]{2,}$"
_BRACKETS = r"^\s*\[.*\]\s*$"
_SHORT = {"user_id": "no user", "item_id": "no item", "timestamp": "no time"}


@dataclass(frozen=True)
class Table:
    """A source and its format."""

    source: Source
    form: Format

    @property
    def columns(self) -> dict[str, str]:
        """The column of each field of the table."""
        return {name: column for name, column in (self.form.columns or {}).items() if name in FIELDS}

    def blocks(self, malformed: Malformed, where: Where | None = None) -> Iterator[Rows]:
        """Yield the readable rows that meet ``where``, in order, and count the unreadable ones.

        DataError for a damaged file, too many unreadable rows, no readable row, or a value that ``where`` cannot
        compare.
        """
        source_pieces = pieces(self.source, self.form, bar=True)
        if where is not None and (first := next(source_pieces, None)) is not None:
            where = where.settled(_named(where, parsed(first, self.form, Malformed(malformed.name))))
            source_pieces = itertools.chain([first], source_pieces)

        def work(piece: Rows) -> tuple[Malformed, Rows]:
            counter = malformed if isinstance(malformed, Refused) else Malformed(malformed.name, part=piece.part)
            rows = parsed(piece, self.form, counter)
            if where is not None and len(rows.lines):
                rows = _meeting(where, rows, counter)
            before = counter.count
            rows = check(rows, self.form, counter)
            if where is not None:
                counter.invalid += counter.count - before
            return counter, rows

        for counter, block in mapped(work, source_pieces):
            if counter is not malformed:
                malformed.merge(counter)
            yield block
        if not isinstance(malformed, Refused):
            malformed.check()

    def read_all(self, unit: str | None = "unix") -> dict[str, Any]:
        """Return the columns of all rows; times are in ``unit``, or unchanged if that is None or they are not dates.

        Rows of a csv file without an id are skipped with a warning. DataError, with the row, for any other unreadable
        row.
        """
        places = {"frame": "row {} (from 0)", "parquet": "row {} (from 1)"}
        refused = Refused(str(self.source), places.get(self.form.kind, Malformed.place))
        blocks = list(self.blocks(refused))
        if refused.count:
            logger.warning(
                "%s: skipped %d rows without an id (the first: line %d); --missing_ids=keep reads words like NA as ids",
                self.source, refused.count, min(refused.examples)[0],
            )  # fmt: skip
        columns: dict[str, Any] = {}
        for name in blocks[0].columns if blocks else self.columns:
            parts = [block.columns[name] for block in blocks]
            if name in ("timestamp", "rating"):
                columns[name] = np.concatenate([np.zeros(0), *parts])
            else:
                columns[name] = pa.chunked_array(_alike(parts), pa.string() if name in FIELDS else None)
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
    """Return a table; what the layout leaves open is guessed from the source.

    ``format`` of a file is a name in formats.yaml, None for a guess. The ``optional`` ones of the ``fields`` may be
    missing; ``own`` lists preferred names of their columns. ``others`` are further columns to read. ``alone`` uses the
    only column of a table for the field. DataError if this is not a table, a column is missing, two columns match a
    field equally, or the format of the times is unknown.
    """
    form = _opened(source, layout, format, fields, optional)
    columns = {field: column for field, column in (form.columns or {}).items() if field in fields}
    if alone and len(form.names) == 1 and not columns:
        columns = {next(iter(fields)): form.names[0]}
    named = {**columns, **guess.by_values(source, form, columns, fields, own or {})}
    chosen = columns_of(form.names, named, str(source), fields, optional, own or {})
    _require(source, form, others)
    for name, column in chosen.items() if form.types else ():
        wanted, kind = "token" if name.endswith("_id") else "float", form.types[form.names.index(column)]
        if kind != wanted:
            raise DataError(f"{source}: column {column!r} is of type {kind!r}; expected {wanted!r}")
    timed, of_csv = "timestamp" in chosen and not form.time_format, form.kind == "csv"
    of_text = of_csv or form.kind == "json"
    judged = {"timestamp": timed, "user_id": of_text, "item_id": of_text}
    first = guess.sample(source, replace(form, columns=chosen), [field for field in chosen if judged.get(field)])
    form = replace(form, columns={**chosen, **{guess.OTHER + other: other for other in others}})
    texts = {name: to_strings(first[name])[0] for name in ("user_id", "item_id") if of_text and name in chosen}
    # pandas writes whole numbers beside gaps as 17850.0, in some parts only
    form = replace(form, whole_ids=[name for name, some in texts.items() if _are_whole(some)])
    if of_csv:
        form = replace(form, missing_ids=form.missing_ids or "drop")
        for name, some in texts.items():
            if len(damaged := some.filter(pc.match_substring_regex(some, _ROUNDED))):
                text = f"{damaged[0].as_py()!r} in {chosen[name]!r} has lost digits"
                raise DataError(f"{source}: {text}, as spreadsheets write long numbers; write such ids as text")
        if "item_id" in chosen:
            _refuse_lists(str(source), chosen["item_id"], texts["item_id"])
    if timed:
        kind = first["timestamp"].type
        if pa.types.is_floating(kind) and kind.bit_width < 64 and (pc.max(first["timestamp"]).as_py() or 0) >= 2**24:
            logger.warning("%s: times of %s lose seconds in %r; write float64", source, kind, chosen["timestamp"])
        unit = guess.time_format_of(source, first["timestamp"], chosen["timestamp"])
        form = replace(form, time_format=unit, guessed=True)
        if "timestamp" not in columns:
            guess.warn_of_finer(source, form, chosen, first["timestamp"])
    return Table(source, form)


def _opened(
    source: Source, layout: Layout | None, format: str | None, fields: Collection[str], optional: Collection[str]
) -> Format:
    """Return the format of a source with the names of its columns."""
    if isinstance(source, Frame):
        return Format(kind="frame", columns=(layout or Layout()).columns, names=source.names)
    name = format or guess.format_of(source, "timestamp" in fields and "timestamp" not in optional, layout)
    given = find(name).set(layout, name)
    form = guess.named(source, given)
    if form.encoding != given.encoding:
        logger.warning("%s is read as %s; set --encoding=NAME if this guess is wrong", source, form.encoding)
    return form


def _require(source: Source, form: Format, others: Collection[str]) -> None:
    """Raise DataError if the table has not all the ``others``; of JSON, the first lines may not have a key."""
    missing = [other for other in others if not {other, other.partition(".")[0]} & set(form.names)]
    if missing and form.kind == "json" and isinstance(source, SourceFile):
        known = json_keys(source, form)
        missing = [other for other in missing if not {other, other.partition(".")[0]} & set(known)]
    if missing:
        raise DataError(f"{source} has no column {', '.join(missing)}; its columns: {', '.join(form.names)}")


def _refuse_lists(where: str, column: str, texts: pa.Array) -> None:
    """Raise DataError if a column with the name of a plural, or texts in brackets, mostly has a separator in them."""
    brackets = as_mask(pc.match_substring_regex(texts, _BRACKETS))
    likely = len(texts) and (column.lower().endswith(("items", "ids", "list")) or brackets.mean() >= 0.5)
    if likely and 2 * as_mask(pc.match_substring_regex(texts, "[,;| ]")).sum() >= len(texts):
        raise DataError(
            f"{where}: the values of {column!r}, such as {texts[0].as_py()[:80]!r}, look like lists of items: "
            "examples/convert/lists.py makes rows of them"
        )


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Return whole numbers beside gaps as pandas writes them, 17850.0, without the point; other texts unchanged."""
    return _without_point(texts) if _are_whole(texts) else texts


def _without_point(texts: pa.Array) -> pa.Array:
    pointed = pc.or_(pc.ends_with(texts, ".0"), pc.ends_with(texts, ",0"))  # ten times as quick as the expression
    return pc.replace_substring_regex(texts, _WHOLE, r"\1") if pc.any(pointed).as_py() else texts


def _are_whole(texts: pa.Array) -> bool:
    return bool(as_mask(pc.match_substring_regex(pc.fill_null(texts, ""), r"^(-?[0-9]+([.,]0)?)?$")).all())


def read_columns(source: SourceFile) -> pa.Table:
    """Return all columns of a file; those of text files as text without surrounding blanks. DataError for no table."""
    form = guess.named(source, find(guess.format_of(source, timed=False)))
    if form.kind == "json":
        form = replace(form, names=json_keys(source, form))
    table = Table(source, replace(form, columns={guess.OTHER + name: name for name in form.names}))
    columns = {name: pa.chunked_array([], pa.string()) for name in form.names}
    for key, column in table.read_all().items():
        if pa.types.is_binary(column.type):
            column = pa.chunked_array([to_strings(chunk)[0] for chunk in column.chunks], pa.string())
        columns[key.removeprefix(guess.OTHER)] = column
    kinds = form.types or [""] * len(form.names)
    schema = [pa.field(n, columns[n].type, metadata={"type": kind}) for n, kind in zip(form.names, kinds, strict=True)]
    return pa.table(list(columns.values()), pa.schema(schema))


def _alike(parts: list[pa.Array]) -> list[pa.Array]:
    """Return arrays of one type: a list of one entry for each value if other parts have lists."""
    if len({part.type for part in parts}) < 2 or not any(is_list(part) for part in parts):
        return parts
    kind = next(part.type for part in parts if is_list(part))
    return [
        part if is_list(part) else pa.array([v if v is None else [v] for v in part.to_pylist()], kind) for part in parts
    ]


def _named(where: Where, rows: Rows) -> dict[str, pa.Array]:
    return {name: rows.columns[guess.OTHER + name] for name in where.columns}


def _meeting(where: Where, rows: Rows, malformed: Malformed) -> Rows:
    """Return the rows that meet ``where``."""
    name = rows.part or malformed.name
    met = where.meets(_named(where, rows), place=lambda row: f"{name}, {malformed.place.format(rows.lines[row])}")
    keep = as_mask(met)
    malformed.unmet += int(np.count_nonzero(~keep))
    malformed.unknown += met.null_count
    return rows.filter(keep)


def check(rows: Rows, form: Format, malformed: Malformed) -> Rows:
    """Return the rows with valid ids and times, as text and in Unix seconds; count others. No number is no rating."""
    columns, good = dict(rows.columns), dict[str, Mask]()
    for name in ("user_id", "item_id"):
        if name in columns:
            try:
                columns[name], good[name] = id_texts(columns[name], form)
            except DataError as error:
                raise DataError(f"{malformed.name}, column {(form.columns or {}).get(name)!r}: {error}") from error
        if name in form.whole_ids:
            columns[name] = _without_point(columns[name])
    if "timestamp" in columns:
        values = columns["timestamp"]
        columns["timestamp"], good["timestamp"] = times.to_seconds(values, form.time_format or "unix")
        if form.guessed:
            good["timestamp"] &= times.plausible(columns["timestamp"], values.type, form.time_format)
    if "rating" in columns:
        numbers, readable = times.to_numbers(columns["rating"])
        columns["rating"] = np.where(readable, numbers, np.nan).astype(np.float32)
    good_rows = np.logical_and.reduce([np.ones(len(rows.lines), bool), *good.values()])
    malformed.good += int(np.count_nonzero(good_rows))
    for row in np.flatnonzero(~good_rows):
        bad = next(name for name in _SHORT if name in good and not good[name][row])
        _count_bad(rows, int(row), bad, form, malformed)
    return Rows(columns, rows.lines, rows.part).filter(good_rows)


def id_texts(values: pa.Array, form: Format) -> tuple[pa.Array, Mask]:
    """Return ids as text, and which are valid. Blanks around ids of text files go; csv files may have words like NA."""
    if form.exact:
        texts = as_text(values)
        good = as_mask(pc.greater(pc.binary_length(texts), 0))
    else:
        texts, good = to_strings(values)
    good &= ~as_mask(pc.equal(texts, PAD))
    if form.missing_ids == "drop":
        good &= ~as_mask(pc.is_in(texts, value_set=pa.array(MISSING_IDS)))
    if not is_plain(texts):  # numpy would cut a text at NUL
        good &= ~as_mask(pc.match_substring(texts, "\0"))
    return texts, good


def _count_bad(rows: Rows, row: int, bad: str, form: Format, malformed: Malformed) -> None:
    """Count a row whose field ``bad`` is invalid, with the reason."""
    line = int(rows.lines[row])
    values = {name: rows.columns[name][row].as_py() for name in FIELDS if name in rows.columns}
    value, text = values[bad], decoded(values[bad])
    missing = bad.endswith("_id") and form.missing_ids == "drop" and str(text or "").strip() in ("", *MISSING_IDS)
    if missing and isinstance(malformed, Refused):
        Malformed.add(malformed, line, "", "")
        return
    if bad.endswith("_id"):
        reason = id_fault(value if text is None else text)
        reason += " (--missing_ids=keep reads such words as ids)" if missing and value else ""
        reason += "; or an object, whose key is written as user.id" if form.kind == "json" and value is None else ""
    else:
        reason = f"{value if text is None else text!r} is {_NO_NUMBER if form.kind == 'atomic' else _NO_TIME}"
        reason += f"; --time_format={form.time_format} keeps others" if form.guessed else ""
    shown = "\t".join(
        str(one.decode("utf-8", "backslashreplace") if isinstance(one, bytes) else one) for one in values.values()
    )
    malformed.add(line, f"{_SHORT[bad]} in {(form.columns or {}).get(bad)!r}: {reason}", shown)
