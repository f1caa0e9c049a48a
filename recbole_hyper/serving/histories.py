"""Ids and histories in the form that a caller has them: lists, Series, frames, Arrow, polars; read and checked once."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.prepare.frames import FIELDS, fitting

LISTS = "a list of lists of item ids"


@dataclass(frozen=True)
class Histories:
    """Histories of original item ids: history ``i`` is ``tokens[codes[offsets[i]:offsets[i + 1]]]``, oldest first.

    Attributes:
        names: (n,) whose they are, as they were given; numbers from 0 where nobody was named.
        named: whether ``names`` are users.
        times: when, beside ``codes``, as they were given; None where nobody said.
    """

    names: npt.NDArray[Any]
    named: bool
    offsets: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.str_]
    times: npt.NDArray[Any] | None = None


def read_histories(values: Any, fields: tuple[str, str, str], times: Any = None) -> Histories:
    """Read a mapping of user to items, a table of interactions, or an iterable of histories; each iterable once.

    Histories are oldest first; the rows of a table are sorted by its time where it has one. ``fields`` are the names of
    the columns of user, item and time in the data of the run. ``times`` of the items are in the form of ``values``; a
    table has its own. ValueError for one text where a list is needed, an entry that is no id, a set (it has no order),
    a table without a column for users and one for items, or with a time that is missing; times of other histories.
    """
    values = _pandas(values)
    if isinstance(values, pd.DataFrame):
        if times is not None:
            raise ValueError(f"times: the table has its own; put them into its column {fields[2]!r}")
        return _of_table(values, fields)
    if isinstance(values, Mapping):
        names, lists = _array(ids("histories", values)), list(values.values())
    else:
        lists = listed("histories", values, LISTS)
        names = np.arange(len(lists))
    rows = [history(f"histories[{at}]", one) for at, one in enumerate(lists)]
    offsets = np.cumsum([0, *map(len, rows)])
    tokens = np.array(list(chain(*rows)), dtype=str)
    named = isinstance(values, Mapping)
    when = None if times is None else _times(times, list(values) if named else None, np.diff(offsets))
    return Histories(names, named, offsets, np.arange(len(tokens)), tokens, when)


def seconds(times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return times as float64: numbers and texts of numbers as they are, dates and ISO text as Unix seconds.

    ValueError for all else.
    """
    if pd.api.types.infer_dtype(times) == "string":
        with suppress(ValueError):
            times = times.astype(str).astype(np.float64)
    if times.dtype.kind not in "iufM":
        try:
            texts = pd.Series(times).replace(" UTC$", "Z", regex=True)  # as BigQuery writes them
            times = pd.to_datetime(texts, format="ISO8601", utc=True).dt.tz_localize(None).to_numpy()
        except (ValueError, TypeError) as error:
            cause = str(error).partition(". ")[0]  # pandas goes on with arguments of its own
            raise ValueError(f"times: numbers or dates are needed ({cause})") from error
    if times.dtype.kind == "M":
        if np.isnat(times).any():
            raise ValueError(f"times: {int(np.isnat(times).sum())} are missing")
        return times.astype("datetime64[us]").astype(np.int64) / 1e6
    found = times.astype(np.float64)
    if not np.isfinite(found).all():
        raise ValueError(f"times: {int((~np.isfinite(found)).sum())} are not finite")
    return found


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


def read_ids(name: str, values: Any) -> npt.NDArray[Any]:
    """Return original ids as given, in any iterable, Series, column of Arrow or polars; ValueError for all else."""
    values = _pandas(values)
    if isinstance(values, pd.DataFrame):
        if len(values.columns) != 1:
            raise ValueError(f"{name} is a table of {len(values.columns)} columns; give the one with the ids")
        values = values.iloc[:, 0]
    if getattr(getattr(values, "dtype", None), "kind", "O") in "iuU" and np.ndim(values) == 1:
        return np.asarray(values)
    return _array(ids(name, values))


def _pandas(values: Any) -> Any:
    """Return what Arrow and polars hold as pandas has it; anything else as it is."""
    if hasattr(values, "to_arrow"):  # polars, without importing it
        values = values.to_arrow()
    return values.to_pandas() if hasattr(values, "to_pandas") else values


def _array(values: list[Any]) -> npt.NDArray[Any]:
    # mixed ids stay what they are; an empty column of texts has the type that pandas gives one of texts
    return np.array(values, dtype=object if values else str)


def _of_table(table: pd.DataFrame, fields: tuple[str, str, str]) -> Histories:
    user, item, time = (column_of(table.columns, *names) for names in zip(fields, FIELDS[:3], strict=True))
    if user is None or item is None:
        missing = fields[0] if user is None else fields[1]
        raise ValueError(
            f"histories: the table has no column {missing!r}; it has {', '.join(map(str, table.columns))}; needed are "
            f"{fields[0]} and {fields[1]}, and {fields[2]} unless the rows are in time order"
        )
    for column in filter(None, (user, item, time)):
        bad = np.flatnonzero(table[column].isna())
        if len(bad):
            raise ValueError(f"histories: {len(bad)} rows have no {column} (first: row {bad[0]})")
    codes, names = pd.factorize(table[user])
    order = np.arange(len(table))
    if time is not None:
        when = table[time].to_numpy()
        # as text, 10 comes before 9, and 01.02. before 15.01.
        when = when if when.dtype.kind in "iufM" else seconds(when)
        order = np.argsort(when, kind="stable")
    order = order[np.argsort(codes[order], kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
    items, tokens = pd.factorize(table[item])
    times = None if time is None else when[order]
    users, known = read_ids(f"histories[{user!r}]", names), read_ids(f"histories[{item!r}]", tokens)
    return Histories(users, True, offsets, items[order], known.astype(str), times)


def column_of(names: Iterable[Any], own: str, field: str) -> str | None:
    """Return the column of a field (user_id, item_id, timestamp): the run's ``own`` name, else a known one, else None.

    ValueError where several fit.
    """
    texts = [name for name in names if isinstance(name, str)]
    found = [name for name in texts if name == own] or fitting(field, texts)
    if len(found) > 1:
        raise ValueError(f"the columns {' and '.join(found)} could each be the {field}; call one of them {own}")
    return found[0] if found else None


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
