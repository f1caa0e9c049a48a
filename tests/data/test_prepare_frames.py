"""Frames of every kind to the same table of interactions, and errors that name the row."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper.data.formats import Layout
from recbole_hyper.data.tables import Frame, open_table
from recbole_hyper.errors import DataError

DAY = 86_400


def interactions_of(frame: Any, columns: dict[str, str] | None = None) -> pa.Table:
    """Return the interactions of a frame, as runs and histories read them."""
    found = open_table(Frame(frame), Layout(columns=columns)).read_all()
    return pa.table({name: found[name] for name in ("user_id", "item_id", "timestamp")})


TIMES = [17_000.0 * DAY, 16_999.0 * DAY + 3_600.25, 16_998.0 * DAY]
MOMENTS = [datetime.datetime.fromtimestamp(time, datetime.UTC).replace(tzinfo=None) for time in TIMES]


class Polars:
    """As much of a polars DataFrame as is used: names and to_arrow, with its large strings."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)
        self.columns = list(frame.columns)

    def to_arrow(self) -> pa.Table:
        kinds = [pa.large_string() if pa.types.is_string(f.type) else f.type for f in self._table.schema]
        return self._table.cast(pa.schema(list(zip(self.columns, kinds, strict=True))))


KINDS = {
    "pandas": lambda frame: frame,
    "pandas with an index of its own": lambda frame: frame.set_index(np.arange(len(frame)) * 7 + 3),
    "polars": Polars,
    "table": lambda frame: pa.Table.from_pandas(frame),
    "chunks": lambda frame: pa.concat_tables([pa.Table.from_pandas(frame[n : n + 1]) for n in range(len(frame))]),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame),
}
WHEN: dict[str, Any] = {
    "seconds": TIMES,
    "milliseconds": [int(time * 1000) for time in TIMES],
    "microseconds": [int(time * 1e6) for time in TIMES],
    "nanoseconds": [int(time) * 10**9 + int(time % 1 * 1e9) for time in TIMES],
    "iso": [moment.isoformat(sep=" ") for moment in MOMENTS],
    "iso with zones": [moment.isoformat() + "+00:00" for moment in MOMENTS],
    "text of seconds": [str(time) for time in TIMES],
    "datetimes": pd.to_datetime(MOMENTS),
    "datetimes with a zone": pd.to_datetime(MOMENTS).tz_localize("UTC").tz_convert("Asia/Tokyo"),
}


def frame(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({"movieId": [3, 1, 3], "userId": ["b", "a", "NA"], "text": "x", "date": TIMES} | changes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", WHEN)
def test_every_frame_gives_text_ids_and_seconds_in_its_own_order(kind: str, when: str) -> None:
    table = interactions_of(KINDS[kind](frame(date=WHEN[when])))
    assert table.schema == pa.schema([("user_id", pa.string()), ("item_id", pa.string()), ("timestamp", pa.float64())])
    assert table.drop(["timestamp"]).to_pydict() == {"user_id": ["b", "a", "NA"], "item_id": ["3", "1", "3"]}
    # nanoseconds of our days have more digits than float64
    assert table["timestamp"].to_pylist() == (pytest.approx(TIMES, abs=1e-6) if when == "nanoseconds" else TIMES)


def test_dates_are_their_midnights() -> None:
    dates = [datetime.date(2019, 1, 31), datetime.date(2020, 2, 29), datetime.date(1970, 1, 1)]
    expected = [1_548_892_800.0, 1_582_934_400.0, 0.0]
    assert interactions_of(frame(date=dates))["timestamp"].to_pylist() == expected


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([1, "b", 2], ["1", "b", "2"]),
        (np.array([1.0, 2.5, -3.0]), ["1", "2.5", "-3"]),
        (np.array([2**40, 7, 2**62]), [str(2**40), "7", str(2**62)]),
        (pd.Categorical(["x", "y", "x"]), ["x", "y", "x"]),
        ([True, False, True], ["true", "false", "true"]),
        (
            [UUID(int=n) for n in (1, 2, 2**127)],
            [f"{0:08}-0000-0000-0000-{n:012}" for n in (1, 2)] + [str(UUID(int=2**127))],
        ),
    ],
)
def test_ids_of_any_kind_become_their_text(ids: Any, text: list[str]) -> None:
    assert interactions_of(frame(userId=ids))["user_id"].to_pylist() == text


def test_columns_may_be_named() -> None:
    named = interactions_of(frame(user=["p", "q", "r"]), {"user_id": "user", "item_id": "text"})
    assert named["user_id"].to_pylist() == ["p", "q", "r"]
    assert named["item_id"].to_pylist() == ["x"] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"userId": ["a", None, "b"]}, r"row 1 \(from 0\): the id in 'userId' is null or empty"),
        ({"movieId": ["a", "b", ""]}, r"row 2 \(from 0\): the id in 'movieId' is null"),
        ({"movieId": [1.0, np.nan, 2.0]}, r"row 1 \(from 0\): the id in 'movieId' is null"),
        ({"date": [1.0, 2.0, np.inf]}, r"row 2 \(from 0\): inf in 'date' is no finite time"),
        ({"date": [1.0, np.nan, 2.0]}, r"row 1 \(from 0\): .* in 'date' is no finite time"),
        ({"date": ["2019-01-01", "noon", "2019-01-02"]}, r"row 1 \(from 0\): 'noon' in 'date' is no finite time"),
        ({"date": ["x", "y", "z"]}, r"row 0 \(from 0\): 'x' in 'date'"),
        ({"date": pd.to_datetime(["2019-01-01", None, "2019-01-02"])}, r"row 1 \(from 0\): None in 'date'"),
    ],
)
def test_a_row_that_is_no_interaction_is_named(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        interactions_of(KINDS[kind](frame(**changes)))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_ambiguous_columns_name_what_is_there(kind: str) -> None:
    with pytest.raises(DataError, match="no column item_id; its columns: userId, text, date"):
        interactions_of(KINDS[kind](frame().drop(columns="movieId")))
    with pytest.raises(DataError, match="the columns time and date could each be the timestamp"):
        interactions_of(KINDS[kind](frame().assign(time=1)[["time", "movieId", "userId", "date"]]))
    with pytest.raises(DataError, match="no column nobody; its columns: movieId"):
        interactions_of(KINDS[kind](frame()), {"user_id": "nobody"})


def test_other_things_are_refused() -> None:
    with pytest.raises(DataError, match="interactions are a dict; give a pandas"):
        interactions_of({"user_id": [1]})
    twice = pd.DataFrame([[1, 2, 3, 4]], columns=["user", "item", "user", "time"])
    with pytest.raises(DataError, match=r"user and user could each|'user' is there twice"):
        interactions_of(twice)
    with pytest.raises(DataError, match="is neither text nor numbers"):
        interactions_of(pa.table({"user": [[1]], "item": [1], "time": [1]}))
