"""Which column is the user, the item, the time, the rating; data frames and Arrow tables as interactions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.values import as_text, guessed_time_format, to_seconds

_SAMPLE = 10_000
FIELDS = ("user_id", "item_id", "timestamp", "rating")
# names of columns, without case and signs, beside the field's own
_KNOWN = {
    "user_id": "user uid customerid customer reviewerid reviewer username visitorid memberid accountid playerid",
    "item_id": "item iid asin productid movieid sku articleid songid trackid bookid gameid businessid",
    "timestamp": "time date datetime unixreviewtime unixtime unixtimestamp ts createdat eventtime",
    "rating": "ratings stars overall score",
}


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def fitting(field: str, names: Sequence[str]) -> list[str]:
    """Return the columns that may be a field: of its name, else of its name in other signs, else of a known name."""
    known = {_bare(field), *_KNOWN[field].split()}
    tests = ([n for n in names if n == field], [n for n in names if _bare(n) == _bare(field)])
    return next(filter(None, tests), [n for n in names if _bare(n) in known])


def columns_of(
    names: Sequence[str], given: Mapping[str, str] | None, where: str, fields: Sequence[str] = FIELDS
) -> dict[str, str]:
    """Return the column of each field: the one ``given``, else one of the field's name, else one of a known name.

    Of the ``fields`` wanted a rating may be missing, and is only searched for where nothing is given; ``where`` holds
    the columns ``names``. PrepareError where a column is missing, or several fit a field equally.
    """
    chosen, missing = dict(given or {}), []
    for field in fields:
        # who names columns and no rating means none, but for one of the field's name
        found = fitting(field, [n for n in names if n == field] if field == "rating" and given else names)
        if field in chosen or (not found and field == "rating"):
            continue
        if len(found) > 1:
            both = " and ".join(found)
            raise PrepareError(
                f"{where}: the columns {both} could each be the {field}; name one by --columns={field}={found[0]}"
            )
        if found:
            chosen[field] = found[0]
        else:
            missing.append(field)
    missing += [column for column in chosen.values() if column not in names]
    if missing:
        hint = (
            "name them by --columns=user_id=...,item_id=...,timestamp=...[,rating=...] (without a header: --no_header)"
        )
        raise PrepareError(f"{where} has no column {', '.join(missing)}; its columns: {', '.join(names)}; {hint}")
    return {field: chosen[field] for field in fields if field in chosen}


def interactions_of(frame: Any, columns: Mapping[str, str] | None = None) -> pa.Table:
    """Return a frame's interactions as the columns user_id (string), item_id (string) and timestamp (float64 seconds).

    A frame is a pandas or polars DataFrame, an Arrow table or record batch, or what gives an Arrow stream; ``columns``
    names the column of a field, and others are found by their names, as in files. Ids that are numbers become their
    decimal text. Times are timestamps or dates (without a zone UTC), ISO text, or Unix seconds, milli-, micro- or
    nanoseconds, told apart by their size. Rows stay in order and count from 0. PrepareError: no such frame, a column is
    missing or two fit equally, an id is null, a row has no finite time.
    """
    fields = FIELDS[:3]
    if unknown := sorted(set(columns or {}) - set(fields)):
        raise PrepareError(f"columns: {', '.join(unknown)} is no field; fields: {', '.join(fields)}")
    names = [str(name) for name in names_of(frame)]
    chosen = columns_of(names, columns, "the frame", fields)
    if twice := [name for name in chosen.values() if names.count(name) > 1]:
        raise PrepareError(f"the frame: the column {twice[0]!r} is there twice; rename one")
    arrays = [_column(frame, names.index(chosen[field])) for field in fields]
    if len(arrays[0]) == 0:
        raise PrepareError("the frame holds no interactions")
    users, items = (_ids(arrays[n], chosen[fields[n]]) for n in (0, 1))
    return pa.table({"user_id": users, "item_id": items, "timestamp": _times(arrays[2], chosen["timestamp"])})


def names_of(frame: Any) -> list[Any]:
    """Return the names of the columns; PrepareError where there are none to have."""
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return list(frame.schema.names)
    if hasattr(frame, "columns"):
        return list(frame.columns)
    raise PrepareError(f"interactions are a {type(frame).__name__}; give a pandas or polars DataFrame or Arrow table")


def _column(frame: Any, place: int) -> pa.ChunkedArray:
    """Return one column of any frame; others are not converted."""
    if hasattr(frame, "iloc"):
        series = frame.iloc[:, place]
        try:
            column = pa.Array.from_pandas(series)
        except (pa.ArrowTypeError, pa.ArrowInvalid):  # numbers and text side by side
            column = pa.array([None if value != value else value if value is None else str(value) for value in series])
    else:
        if not isinstance(frame, pa.Table | pa.RecordBatch):
            frame = frame.to_arrow() if hasattr(frame, "to_arrow") else pa.table(frame)
        column = frame.column(place)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _ids(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    text = pa.chunked_array([as_text(chunk) for chunk in column.chunks], pa.string())
    empty = pc.fill_null(pc.equal(pc.binary_length(text), 0), True)
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise PrepareError(f"the frame, row {row} (from 0): the id in {name!r} is null or empty; drop such rows")
    return text


def _times(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    form = guessed_time_format(column.slice(0, _SAMPLE).combine_chunks())
    before, chunks = 0, []
    for chunk in column.chunks:
        seconds, good = to_seconds(chunk, form or "iso")
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise PrepareError(
                f"the frame, row {before + row} (from 0): {chunk[row].as_py()!r} in {name!r} is no finite time; "
                "times are timestamps, dates, ISO text, or Unix seconds or milliseconds"
            )
        chunks.append(pa.array(seconds))
        before += len(chunk)
    return pa.chunked_array(chunks, pa.float64())
