"""Reads and checks the ids, histories and items that callers pass as lists, Series, frames or files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables.ids import as_text, column_of_values, is_text, natural, single, text_array, text_list
from recbole_hyper.errors import DataError

if TYPE_CHECKING:  # the readers of tables are imported where a caller passes one
    from recbole_hyper.data.tables.archives import SourceFile
    from recbole_hyper.data.tables.formats import Layout
    from recbole_hyper.data.tables.table import Table

logger = logging.getLogger("recbole_hyper")

# more names of the column of each field, such as the names in the data of the run
Names = Mapping[str, Collection[str]]


FIELD_KEYS = {"user_id": "USER_ID_FIELD", "item_id": "ITEM_ID_FIELD", "timestamp": "TIME_FIELD"}


def column_names(columns: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the names of each field's column in the data of a run: in ``fields``, and in the source's ``columns``."""
    return {field: {name, columns.get(field, name)} for field, name in fields.items()}


@dataclass(frozen=True)
class Histories:
    """Histories of original item ids: history ``i`` is ``tokens[codes[offsets[i]:offsets[i + 1]]]``, oldest first.

    Attributes:
        names: (n,) the users as the caller passed them; numbers from 0 if histories have no users.
        named: whether ``names`` are users.
        times: the time of each of ``codes`` in the unit of the run; None if unknown.
        order: how the rows of a table were sorted, in words.
    """

    names: npt.NDArray[Any]
    named: bool
    offsets: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    tokens: npt.NDArray[Any]
    times: npt.NDArray[np.float64] | None = None
    order: str = ""


def read_histories(values: Any, own: Names, times: Any = None, unit: str | None = None) -> Histories:
    """Read a mapping of user to items, a table of interactions, or an iterable of histories (iterated once).

    Histories are oldest first; a table is sorted by its times if it has any. ``own`` are more names of the columns,
    ``unit`` is the unit of the run's times, and ``times`` of the items have the structure of ``values``. ValueError for
    a string instead of a list, an invalid id, a set (it has no order), a table without users and items, a missing time,
    and times that do not match the histories.
    """
    values = values.to_arrow() if hasattr(values, "to_arrow") else values  # polars, without importing it
    if _is_table(values):
        if times is not None:
            name = next(iter(own.get("timestamp", ())), "timestamp")
            raise ValueError(f"times: a table has its times in a column; put them into the column {name!r}")
        from recbole_hyper.data.tables.parsers import Frame
        from recbole_hyper.data.tables.table import open_table

        return of_table(open_table(Frame(values, "histories"), own=own, optional=("timestamp",)), unit)
    named = isinstance(values, Mapping)
    if named:
        names, lists = read_ids("histories", list(values)), list(values.values())
    else:
        lists = _listed("histories", values, "a list of lists of item ids")
        names = np.arange(len(lists))
    for at, items in enumerate(lists):
        if isinstance(items, (set, frozenset)):
            raise ValueError(f"histories[{at}] is a set, which has no order; give a list of item ids, oldest first")
    rows = [_listed(f"histories[{at}]", items, "a list of item ids") for at, items in enumerate(lists)]
    try:
        tokens = text_list(read_ids("histories", [*chain(*rows)]))
    except ValueError:
        for at, items in enumerate(rows):  # which one
            read_ids(f"histories[{at}]", items)
        raise
    offsets = np.cumsum([0, *map(len, rows)])
    moments = None if times is None else _times(times, list(values) if named else None, np.diff(offsets), unit)
    return Histories(names, named, offsets, np.arange(len(tokens)), tokens, moments)


def of_table(table: Table, unit: str | None = None) -> Histories:
    """Return the histories of a table of interactions, users in order of appearance, times in ``unit``."""
    from recbole_hyper.data.tables.parsers import Frame

    interactions, columns = table.read_all(unit), table.columns
    users, items = (single(interactions[name]).dictionary_encode() for name in ("user_id", "item_id"))
    codes, item_codes = np.asarray(users.indices), np.asarray(items.indices, dtype=np.int64)
    timed = "timestamp" in interactions
    order = np.lexsort((interactions["timestamp"], codes) if timed else (codes,))
    names = text_array(users.dictionary)
    if isinstance(table.source, Frame) and len(names):  # with the type that the frame has
        values = table.source.rows({"user_id": columns["user_id"]}).columns["user_id"]
        names = natural(values.take(pc.index_in(users.dictionary, as_text(values))))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
    unused = ", ".join(name for name in table.form.names if name not in columns.values())
    hint = f" (unused columns: {unused}; name that of the times by --columns=timestamp=NAME)" if unused else ""
    where = f"by the column {columns['timestamp']!r}" if timed else f"like the rows, which have no times{hint}"
    times = interactions["timestamp"][order] if timed else None
    return Histories(names, True, offsets, item_codes[order], text_array(items.dictionary), times, where)


def _times(
    times: Any, names: list[Any] | None, counts: npt.NDArray[np.int64], unit: str | None
) -> npt.NDArray[np.float64]:
    """Return the times of all items, concatenated; ``names`` are the keys if the histories are a mapping."""
    if (names is not None) != isinstance(times, Mapping):
        raise ValueError("times must have the form of the histories: a mapping for a mapping, else a list of lists")
    lists = _listed("times", times, "a list of lists of times") if names is None else [times.get(n, ()) for n in names]
    rows = [_listed(f"times[{at}]", row, "a list of times") for at, row in enumerate(lists)]
    if len(rows) != len(counts):
        raise ValueError(f"times has {len(rows)} lists for {len(counts)} histories")
    for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
        if len(row) != count:
            raise ValueError(f"times[{at}] has {len(row)} entries, its history has {count} items")
    moments = in_unit([*chain(*rows)], unit)
    history = np.repeat(np.arange(len(counts)), counts)
    back = np.flatnonzero((np.diff(moments) < 0) & (np.diff(history) == 0))
    if len(back):
        raise ValueError(f"times[{history[back[0]]}] go backwards: give the items of a history oldest first")
    return moments


def in_unit(values: Any, unit: str | None) -> npt.NDArray[np.float64]:
    """Return times of any form in the ``unit`` of a run, None for steps; DataError for one that is no time."""
    from recbole_hyper.data.tables.times import UNITS, guessed_time_format, to_seconds

    column = single(column_of_values(pd.Series(values)))
    try:
        form = "steps" if unit is None else guessed_time_format(column.slice(0, 10_000)) or "iso"
    except DataError:
        if is_text(column.type):
            raise
        form = "steps"  # numbers that are no dates, which are taken as they are
    moments, good = to_seconds(column, form)
    if not good.all() or (unit is None and pa.types.is_temporal(column.type)):
        row = int(np.argmin(good))
        kind = "steps, as those of the run" if unit is None else "numbers or dates"
        raise DataError(f"times must be {kind}; {column[row].as_py()!r} (row {row}, from 0) is not")
    return moments if form == "steps" else moments * UNITS[str(unit)]


def read_ids(name: str, values: Any) -> npt.NDArray[Any]:
    """Return the original ids of an iterable, a Series or a column, with their types; ValueError for anything else."""
    values = values.to_arrow() if hasattr(values, "to_arrow") else values
    try:
        if _is_table(values):
            if values.shape[1] != 1:
                raise ValueError(f"{name} is a table of {values.shape[1]} columns; give the one with the ids")
            values = values.iloc[:, 0] if isinstance(values, pd.DataFrame) else values.column(0)
        column = column_of_values(values)
        if column is None:
            column = column_of_values(pd.Series(_listed(name, values, "a list of ids"), dtype=object))
        column = single(column)
        null = pc.index(pc.is_null(column, nan_is_null=True), True).as_py()
        if null >= 0 or (pa.types.is_boolean(column.type) and len(column)):
            row = max(null, 0)
            raise ValueError(f"{name}, row {row} (from 0): {column[row].as_py()!r} is not an id")
        return natural(column)
    except (DataError, UnicodeEncodeError) as error:
        raise ValueError(f"{name}, {error}") from error


def _is_table(values: Any) -> bool:
    return isinstance(values, pd.DataFrame | pa.Table | pa.RecordBatch)


def _listed(name: str, values: Any, needed: str) -> list[Any]:
    """Return the entries of any iterable but a string; otherwise ValueError, which says what is ``needed``."""
    for method in ("to_pylist", "tolist"):  # of Arrow, numpy, torch or pandas
        values = getattr(values, method)() if hasattr(values, method) else values
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name}={values!r} is a single string; give {needed}")
    try:
        return [*iter(values)]
    except TypeError:
        raise ValueError(f"{name}={values!r} is not a list; give {needed}") from None


def read_history_file(path: Path, own: Names, layout: Layout | None = None, unit: str | None = None) -> Histories:
    """Return the histories of a file of interactions in any format that ``prepare`` reads."""
    from recbole_hyper.data.tables.table import open_table

    return of_table(open_table(_file(path), layout, own=own, optional=("timestamp",)), unit)


def read_id_file(path: Path, own: Names, field: str, layout: Layout | None = None) -> npt.NDArray[Any]:
    """Return the ids in a file, as text: its only column, else the column of the ``field``.

    A text file of one column has no header, unless its first line is a name of the field. DataError if there is no such
    column.
    """
    from recbole_hyper.data.tables.formats import Layout, matching_names
    from recbole_hyper.data.tables.table import open_table

    layout = layout or Layout()
    lines = _lines_of_ids(path) if path.suffix == ".txt" or not layout.columns else None
    if lines == []:
        return np.zeros(0, dtype=str)
    if lines:  # a separator that no id contains
        layout = Layout(columns={field: "1"}, separator="\x1f", header=False, missing_ids=layout.missing_ids)
    table = open_table(
        _file(path), layout, format="csv" if lines else None, fields=(field,), optional=(), own=own, alone=True
    )
    texts = text_array(table.read_all()[field])
    first = lines[0].strip().strip('"').removesuffix(":token") if lines else ""
    return texts[1:] if lines and matching_names(field, [first], own.get(field, ())) else texts


def read_exclusions(path: Path, own: Names, layout: Layout | None = None) -> Any:
    """Return the items to leave out: a mapping by user if the file has a column of users, else ids for all users."""
    from recbole_hyper.data.tables.table import open_table

    fields = ("user_id", "item_id")
    if _lines_of_ids(path) is None:
        table = open_table(_file(path), layout, fields=fields, optional=fields, own=own)
        if set(table.columns) == {*fields}:
            pairs = pd.DataFrame({name: column.to_pandas() for name, column in table.read_all().items()})
            return pairs.groupby("user_id")["item_id"].apply(list).to_dict()
    return read_id_file(path, own, "item_id", layout)


def read_boosts(path: Path, own: Names) -> dict[str, float]:
    """Return {item id: number} from a table with a column ``boost``; the first row of an item counts.

    DataError if the column is missing, or has a value that is not a number.
    """
    from recbole_hyper.data.tables.guess import OTHER
    from recbole_hyper.data.tables.table import open_table
    from recbole_hyper.data.tables.times import to_numbers

    rows = open_table(_file(path), fields=("item_id",), optional=(), own=own, others=("boost",)).read_all()
    column = single(rows[name]) if (name := OTHER + "boost") in rows else pa.array([], pa.float64())
    values, good = to_numbers(column)
    if not good.all():
        value = as_text(column)[int(np.argmin(good))].as_py()
        raise DataError(f"{path}: {value!r} in the column boost is not a number")
    boosts = dict(zip(reversed(rows["item_id"].to_pylist()), reversed(values.tolist()), strict=True))
    if len(boosts) < len(values):
        logger.warning("%s: %d rows repeat an item; its first row counts", path, len(values) - len(boosts))
    return boosts


def read_table(path: Path) -> pa.Table:
    """Return all columns of a table; columns of a text file are text."""
    from recbole_hyper.data.tables.table import read_columns

    return read_columns(_file(path))


def _file(path: Path) -> SourceFile:
    from recbole_hyper.data.tables.archives import SourceFile

    if not path.exists():
        raise DataError(f"{path} does not exist")
    return SourceFile(path)


def _lines_of_ids(path: Path) -> list[str] | None:
    """Return the first lines of a text file with one value a line, None for a table."""
    from recbole_hyper.data.tables.guess import head, separator_of

    file = _file(path)
    lines = [] if file.first_bytes(4) == b"PAR1" else head(file)
    one = bool(lines) and separator_of(lines, default="") == "" and not lines[0].lstrip().startswith(("{", "["))
    return lines if one or path.suffix == ".txt" else None
