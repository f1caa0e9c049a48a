"""Tables of every kind, frames and files, become the same columns; errors name the row."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.table import open_table, read_columns
from recbole_hyper.errors import DataError
from tests.data.tables.raw import T, interactions_of, prepared
from tests.raising import refused

DAY = 86_400


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
    "pandas with another index": lambda frame: frame.set_index(np.arange(len(frame)) * 7 + 3),
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
        ([2**70, 2**63 + 1, 1], [str(2**70), str(2**63 + 1), "1"]),
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
    ("changes", "row", "named"),
    [
        ({"userId": ["a", None, "b"]}, 1, "'userId': null or empty"),
        ({"movieId": ["a", "b", ""]}, 2, "'movieId': null or empty"),
        ({"movieId": [1.0, np.nan, 2.0]}, 1, "'movieId': null or empty"),
        ({"date": [1.0, 2.0, np.inf]}, 2, "'date': inf"),
        ({"date": [1.0, np.nan, 2.0]}, 1, "'date': "),
        ({"date": ["2019-01-01", "noon", "2019-01-02"]}, 1, "'date': 'noon'"),
        ({"date": ["x", "y", "z"]}, 0, "'date': 'x'"),
        ({"date": pd.to_datetime(["2019-01-01", None, "2019-01-02"])}, 1, "'date': None"),
    ],
)
def test_a_row_that_is_no_interaction_is_named(kind: str, changes: dict[str, Any], row: int, named: str) -> None:
    with refused(DataError, f"row {row} (from 0)", named):
        interactions_of(KINDS[kind](frame(**changes)))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_ambiguous_columns_name_what_is_there(kind: str) -> None:
    with refused(DataError, "item_id", "userId"):
        interactions_of(KINDS[kind](frame().drop(columns="movieId")))
    with refused(DataError, "columns", "timestamp"):
        interactions_of(KINDS[kind](frame().assign(time=1)[["time", "movieId", "userId", "date"]]))
    with refused(DataError, "movieId"):
        interactions_of(KINDS[kind](frame()), {"user_id": "nobody"})


def test_other_things_are_refused() -> None:
    with refused(DataError, "the frame", "pandas"):
        interactions_of(7)
    twice = pd.DataFrame([[1, 2, 3, 4]], columns=["user", "item", "user", "time"])
    with pytest.raises(DataError, match=r"user and user may both|has two columns 'user'"):
        interactions_of(twice)
    with refused(DataError, "neither", "numbers"):
        interactions_of(pa.table({"user": [[1]], "item": [1], "time": [1]}))


def test_words_like_NA_in_a_csv_file_are_not_ids_unless_requested(tmp_path: Path) -> None:
    text = "user,item,time\n" + f"NA,a,{T}\n,b,{T}\n\\N,c,{T}\nnull,d,{T}\nu,e,{T}\nNancy,f,{T}\n"
    with refused(DataError, "--missing_ids=keep"):
        prepared(text, tmp_path)
    rows, said = prepared(text, tmp_path, max_malformed=0.9)
    assert [row[1] for row in rows] == ["e", "f"]
    assert any("4 lines could not be read" in line for line in said)
    rows, said = prepared(text, tmp_path, max_malformed=0.9, format="csv", layout=Layout(missing_ids="keep"))
    assert [row[1] for row in rows] == ["a", "c", "d", "e", "f"]
    assert any("2 user ids are words such as NA" in line for line in said)


def test_an_optional_rating_rejects_no_rows(tmp_path: Path) -> None:
    rows, said = prepared(f"user,item,rating,time\na,x,4,{T}\na,y,,{T + 1}\na,z,good,{T + 2}\n", tmp_path)
    assert [row[2] for row in rows] == ["4", "", ""]
    assert "2 ratings are not numbers and are left blank" in said
    rows, _ = prepared(f"user,item,rating,time\na,x,bad,{T}\na,y,good,{T}\n", tmp_path)
    assert [len(row) for row in rows] == [3, 3]
    rows, _ = prepared(f"user,item,rating,time\na,x,4,{T}\na,y,,{T}\n", tmp_path, changes={"threshold": 3.0})
    assert [row[1] for row in rows] == ["x"]


def test_all_columns_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("item_id,price,name\n007, 1.5 ,NA\n8,,x\n")
    found = read_columns(SourceFile(tmp_path / "x.csv")).to_pydict()
    assert found == {"item_id": ["007", "8"], "price": ["1.5", ""], "name": ["NA", "x"]}


def test_a_condition_names_lines_and_misses_what_is_not_utf8(tmp_path: Path) -> None:
    rows = [b"a,x,5,%d", b"b,x,\xff,%d", b"c,x,10,%d", b"d,x,,%d"]
    text = b"user,item,price,time\n" + b"\n".join(row % T for row in rows) + b"\n"
    layout = Layout(encoding="utf-8")
    found, _ = prepared(text, tmp_path, where="price < '6'", format="csv", layout=layout)
    assert [row[0] for row in found] == ["a"]
    free = text.replace(b"10", b"free")
    with refused(DataError, "columns of text: price"):
        prepared(free, tmp_path, where="price < 6", format="csv", layout=layout, max_malformed=0.5)
    with refused(DataError, "--where"):
        prepared(text, tmp_path, where="price < 0", format="csv", layout=layout, max_malformed=0.5)


def test_numbers_with_gaps_are_the_same_ids_in_a_file_and_in_a_frame(tmp_path: Path) -> None:
    """pandas writes the whole numbers of a column with gaps as 17850.0."""
    table = pd.DataFrame({"user": [17850.0, None, 7.0], "item": ["1.0", "1.1", "x"], "time": T})
    table.to_csv(tmp_path / "x.csv", index=False)
    found = open_table(SourceFile(tmp_path / "x.csv")).read_all()
    assert found["user_id"].to_pylist() == interactions_of(table.dropna())["user_id"].to_pylist() == ["17850", "7"]
    assert found["item_id"].to_pylist() == ["1.0", "x"]
    for text in (f"user,item,time\n7.0,x,{T}\n7,y,{T}\n", f"user;item;time\n7,0;x;{T}\n7,0;y;{T}\n"):
        (tmp_path / "x.csv").write_text(text)  # two files joined, and a decimal comma
        assert open_table(SourceFile(tmp_path / "x.csv")).read_all()["user_id"].to_pylist() == ["7", "7"]


def test_decimals_short_floats_and_moments_among_dates() -> None:
    decimals = [Decimal("7.00"), Decimal("7.50"), Decimal("100")]
    assert interactions_of(frame(userId=decimals))["user_id"].to_pylist() == ["7", "7.5", "100"]
    with refused(DataError, "16777216.0", "digits"):
        interactions_of(frame(userId=np.array([1, 2, 2**24], np.float32)))
    dates = [datetime.date(2019, 1, 31), datetime.datetime(2019, 1, 31, 5), datetime.date(2019, 2, 1)]
    times = interactions_of(frame(date=dates))["timestamp"].to_pylist()
    assert times == [1_548_892_800.0, 1_548_910_800.0, 1_548_979_200.0]


def test_periods_are_their_first_moments() -> None:
    months = pd.period_range("2024-01", periods=3, freq="M")
    assert interactions_of(frame(date=months))["timestamp"].to_pylist() == [1_704_067_200, 1_706_745_600, 1_709_251_200]


def test_ids_that_are_neither_text_nor_numbers_name_their_column() -> None:
    table = pa.table({"userId": [{"a": 1}], "movieId": [1], "date": [TIMES[0]]})
    with refused(DataError, "'userId'", "int64>"):
        interactions_of(table)
