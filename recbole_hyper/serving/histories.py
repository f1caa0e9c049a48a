"""Ids and histories in the form that a caller has them: lists, Series, frames, files; read and checked once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.ids import column_of_values, natural, text_array
from recbole_hyper.data.rows import Frame
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables import Table, open_table
from recbole_hyper.data.times import in_unit
from recbole_hyper.errors import DataError

LISTS = "a list of lists of item ids"
# further names of the columns of each field, such as those of the run
Names = Mapping[str, Collection[str]]


def column_names(config: Any, store: SequenceStore) -> dict[str, set[str]]:
    """Return what the columns of a table are called that goes on from a run's data: by its keys, and by its source."""
    keys = {"user_id": "USER_ID_FIELD", "item_id": "ITEM_ID_FIELD", "timestamp": "TIME_FIELD"}
    return {field: {config[key], *store.columns_of(field)} for field, key in keys.items()}


@dataclass(frozen=True)
class Histories:
    """Histories of original item ids: history ``i`` is ``tokens[codes[offsets[i]:offsets[i + 1]]]``, oldest first.

    Attributes:
        names: (n,) whose they are, as they were given; numbers from 0 where nobody was named.
        named: whether ``names`` are users.
        times: when, beside ``codes``, in the unit of the run; None where nobody said.
        order: what the rows of a table were sorted by, in words.
    """

    names: npt.NDArray[Any]
    named: bool
    offsets: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    tokens: npt.NDArray[Any]
    times: npt.NDArray[np.float64] | None = None
    order: str = ""


def read_histories(values: Any, own: Names, times: Any = None, unit: str | None = None) -> Histories:
    """Read a mapping of user to items, a table of interactions, or an iterable of histories; each iterable once.

    Histories are oldest first; the rows of a table are sorted by its time where it has one. ``own`` are the names of
    the columns of user, item and time in the data of the run, and ``unit`` that of its times. ``times`` of the items
    are in the form of ``values``; a table has its own. ValueError for one text where a list is needed, an entry that is
    no id, a set (it has no order), a table without a column for users and one for items, or with a time that is
    missing; times of other histories.
    """
    if hasattr(values, "to_arrow"):  # polars, without importing it
        values = values.to_arrow()
    if is_table(values):
        if times is not None:
            name = next(iter(own.get("timestamp", ())), "timestamp")
            raise ValueError(f"times: the table has its own; put them into its column {name!r}")
        return of_table(open_table(Frame(values, "histories"), own=own, optional=("timestamp",)), unit)
    if isinstance(values, Mapping):
        names, lists = _array(ids("histories", values)), list(values.values())
    else:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = values.to_pylist()
        lists = listed("histories", values, LISTS)
        names = np.arange(len(lists))
    rows = [history(f"histories[{at}]", one) for at, one in enumerate(lists)]
    offsets = np.cumsum([0, *map(len, rows)])
    tokens = text_array(chain(*rows))
    named = isinstance(values, Mapping)
    when = None if times is None else _times(times, list(values) if named else None, np.diff(offsets))
    moments = None if when is None else in_unit(_moments(when), unit)
    return Histories(names, named, offsets, np.arange(len(tokens)), tokens, moments)


def is_table(values: Any) -> bool:
    """Return whether ``values`` are a pandas DataFrame, or an Arrow table or batch."""
    return isinstance(values, pd.DataFrame | pa.Table | pa.RecordBatch)


def of_table(table: Table, unit: str | None = None) -> Histories:
    """Return the histories of a table of interactions, by user in order of appearance; times in ``unit``."""
    found, columns = table.whole(unit), table.columns
    assert found.users is not None
    assert found.items is not None
    users, items = (column.combine_chunks().dictionary_encode() for column in (found.users, found.items))
    codes, item_codes = np.asarray(users.indices), np.asarray(items.indices)
    order = np.arange(len(codes))
    if found.times is not None:
        order = np.argsort(found.times, kind="stable")
    order = order[np.argsort(codes[order], kind="stable")]
    names = text_array(users.dictionary)
    if isinstance(table.source, Frame) and len(names):  # as they were given
        _, first = np.unique(codes, return_index=True)
        given = table.source.rows({"user_id": columns["user_id"]}).columns["user_id"]
        names = natural(given.take(pa.array(first))) if len(given) == len(codes) else names
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))]).astype(np.int64)
    where = (
        f"by the column {columns['timestamp']!r}" if "timestamp" in columns else "as the rows are: no column of times"
    )
    times = None if found.times is None else found.times[order]
    return Histories(
        names, True, offsets, item_codes[order].astype(np.int64), text_array(items.dictionary), times, where
    )


def _times(times: Any, names: list[Any] | None, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the times of all items of ``counts``, one history after another; ``names`` are the keys of a mapping."""
    if (names is not None) != isinstance(times, Mapping):
        raise ValueError("times: the form of the histories is needed, a mapping for a mapping, else a list of lists")
    if names is not None:
        if missing := [name for name in names if name not in times]:
            raise ValueError(f"times: {len(missing)} histories have none (first: {missing[0]!r})")
        times = [times[name] for name in names]
    rows = [list(one) for one in listed("times", times, LISTS)]
    if len(rows) != len(counts):
        raise ValueError(f"times: {len(rows)} lists came for {len(counts)} histories")
    for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
        if len(row) != count:
            raise ValueError(f"times[{at}] has {len(row)} entries, its history has {count} items")
    return np.array(list(chain(*rows))) if rows else np.zeros(0)


def _moments(values: npt.NDArray[Any]) -> pa.Array:
    try:
        column = column_of_values(values)
    except DataError as error:
        raise DataError(f"times: numbers or dates are needed ({error})") from error
    if column is None:
        raise DataError("times: numbers or dates are needed")
    return column.combine_chunks()


def read_ids(name: str, values: Any) -> npt.NDArray[Any]:
    """Return original ids as given, in any iterable, Series, column of Arrow or polars; ValueError for all else."""
    values = values.to_arrow() if hasattr(values, "to_arrow") else values
    if is_table(values):
        columns = Frame(values, name).names
        if len(columns) != 1:
            raise ValueError(f"{name} is a table of {len(columns)} columns; give the one with the ids")
        return _natural(name, Frame(values, name).rows({"id": columns[0]}).columns["id"])
    try:
        column = column_of_values(values)
    except DataError as error:
        raise ValueError(f"{name}, {error}") from error
    return _array(ids(name, values)) if column is None else _natural(name, column.combine_chunks())


def _natural(name: str, column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_boolean(column.type) and len(column):
        raise ValueError(f"{name} holds {column[0].as_py()!r}, which is no id; ids are text or numbers")
    if (row := pc.index(pc.is_null(column, nan_is_null=True), True).as_py()) >= 0:
        raise ValueError(f"{name}, row {row} (from 0), holds {column[row].as_py()!r}, which is no id; drop such rows")
    try:
        return natural(column)
    except DataError as error:
        raise ValueError(f"{name}: {error}") from error


def _array(values: list[Any]) -> npt.NDArray[Any]:
    # mixed ids stay what they are; an empty column of texts has the type that pandas gives one of texts
    return np.array(values, dtype=object if values else str)


def ids(name: str, values: Any) -> list[str | int | float]:
    """Return the original ids in any iterable (a list, an array, a Series, a generator), which is read once.

    ValueError for one text, no iterable, or an entry that is no id (None, NaN, True, a list).
    """
    return [_id(name, value) for value in listed(name, values, "a list of ids")]


def history(place: str, values: Any) -> list[str]:
    """Return the original item ids of one history, oldest first; ValueError for a set or what is no id."""
    if isinstance(values, (set, frozenset)):
        raise ValueError(f"{place} is a set, which has no order; give a list of item ids, oldest first")
    return [str(item) for item in ids(place, values)]


def histories(name: str, values: Any) -> list[list[str]]:
    """Return the histories in any iterable of iterables, each read once; ValueError for what is none or is empty."""
    found = [history(f"{name}[{at}]", one) for at, one in enumerate(listed(name, values, LISTS))]
    for at, items in enumerate(found):
        if not items:
            raise ValueError(f"{name}[{at}] is empty: every history needs at least one item")
    return found


def flag(name: str, value: Any) -> bool:
    """Return True or False; ValueError for anything else, 1 and "False" among it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r}: True or False is needed")
    return bool(value)


def listed(name: str, values: Any, needed: str) -> list[Any]:
    """Return the entries of any iterable; ValueError for one text or no iterable, which says what is ``needed``."""
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name}={values!r} is one text; give {needed}")
    try:
        read = iter(values)
    except TypeError:
        raise ValueError(f"{name}={values!r} is no list; give {needed}") from None
    return list(read)


def _id(name: str, value: Any) -> str | int | float:
    # a number of numpy or torch, as an array or a tensor holds it
    plain = value.item() if getattr(value, "ndim", None) == 0 else value
    plain = str(plain) if isinstance(plain, UUID) else plain
    if isinstance(plain, bool) or not isinstance(plain, (str, int, float)) or plain != plain:
        raise ValueError(f"{name} holds {value!r}, which is no id; ids are text or numbers")
    # 7.0 is "7", as where a frame is read: pandas makes floats of a column of whole numbers with gaps
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain
