"""Times in several columns: parts of a date, a date and a time of day, a time and a step."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper.data.formats import Layout
from recbole_hyper.data.inputs import read_history_file
from recbole_hyper.errors import DataError
from tests.data.raw import interactions_of, prepared
from tests.raising import refused

BASE = {"user_id": "user", "item_id": "item"}


def timed(columns: str) -> Layout:
    return Layout(columns={**BASE, "timestamp": columns})


def test_a_second_column_orders_equal_times(tmp_path: Path) -> None:
    text = "user,item,date,step\na,x,2020-01-02,10\na,y,2020-01-02,9\na,z,2020-01-01,11\nb,x,2020-01-01,1\n"
    rows, _ = prepared(text, tmp_path, layout=timed("date+step"))
    assert [row[:2] for row in rows] == [["a", "z"], ["a", "y"], ["a", "x"], ["b", "x"]]
    assert rows[1][2] == rows[2][2] == "1577923200"


def test_a_third_column_and_times_as_order(tmp_path: Path) -> None:
    text = "user,item,t,u,v\n" + "a,x,5,2,2020-01-03\na,y,5,2,2020-01-01\na,z,5,1,2020-01-09\n"
    rows, _ = prepared(text, tmp_path, layout=timed("t+u+v"))
    assert [row[1] for row in rows] == ["z", "y", "x"]


def test_a_step_that_is_not_a_number_is_an_error(tmp_path: Path) -> None:
    text = "user,item,t,u\na,x,5,q\na,y,5,2\n"
    with refused(DataError, "'q'", "timestamp=...+u"):
        prepared(text, tmp_path, layout=timed("t+u"))
    with refused(DataError, "'w'", "timestamp=t+w"):
        prepared(text, tmp_path, layout=timed("t+w"))


def test_a_column_whose_name_has_a_plus_is_one_column(tmp_path: Path) -> None:
    rows, _ = prepared("user,item,t+u\na,x,2020-01-02\n", tmp_path, layout=timed("t+u"))
    assert rows == [["a", "x", "1577923200"]]


@pytest.mark.parametrize("columns", [None, "year+month+day"])
def test_parts_of_a_date(columns: str | None, tmp_path: Path) -> None:
    text = "user,item,year,month,day\na,x,2020,1,2\na,y,2020,1,1\n"
    rows, said = prepared(text, tmp_path, layout=timed(columns) if columns else None)
    assert rows == [["a", "y", "1577836800"], ["a", "x", "1577923200"]]
    assert columns or "timestamp=year+month+day" in said[0]


def test_parts_with_a_time_of_day(tmp_path: Path) -> None:
    rows, _ = prepared("user,item,Year,Month,Day,Hour\na,x,2020,1,2,3\n", tmp_path)
    assert rows == [["a", "x", str(1577923200 + 3 * 3600)]]


def test_years_of_two_digits_are_refused(tmp_path: Path) -> None:
    with refused(DataError, "'year+month+day'", "24-01-05", "00:00:00"):
        prepared("user,item,year,month,day\na,x,24,1,5\na,y,24,1,6\n", tmp_path)


def test_a_date_that_does_not_exist_is_an_error_with_its_line(tmp_path: Path) -> None:
    text = "user,item,year,month,day\na,x,2020,1,2\na,y,2020,2,30\n"
    with refused(DataError, "2020-02-30"):
        prepared(text, tmp_path)
    assert prepared(text, tmp_path, max_malformed=0.5)[0] == [["a", "x", "1577923200"]]


def test_histories_and_frames_have_such_times_too(tmp_path: Path) -> None:
    """The run knows the columns by the name that prepare was given."""
    (tmp_path / "new.csv").write_text("user,item,Date,Time\na,x,2020-01-02,10:00\na,y,2020-01-02,09:00\n")
    found = read_history_file(tmp_path / "new.csv", {"timestamp": ["timestamp", "Date+Time"]}, unit="unix")
    assert found.tokens[found.codes].tolist() == ["y", "x"]
    assert found.order == "by the column 'Date+Time'"
    frame = pd.DataFrame({"user": "a", "item": ["x", "y"], "year": 2020, "month": 1, "day": [2, 1], "hour": [0.0, 5.0]})
    assert interactions_of(frame)["timestamp"].to_pylist() == [1577923200, 1577836800 + 5 * 3600]


@pytest.mark.parametrize(
    ("day", "clock", "seconds"),
    [
        ("2016-10-30", "09:58:11", 1477821491),
        ("30/10/2016", "09:58", 1477821480),
        ("10/30/2016", "9:58 PM", 1477864680),
    ],
)
def test_a_date_and_a_time_of_day(day: str, clock: str, seconds: int, tmp_path: Path) -> None:
    rows, _ = prepared(f"user,item,Date,Time\na,x,{day},{clock}\n", tmp_path, layout=timed("Date+Time"))
    assert rows == [["a", "x", str(seconds)]]


def test_most_neighbours_tie(tmp_path: Path) -> None:
    text = "user,item,date\n" + "".join(f"a,{item},2020-01-0{1 + n // 3}\n" for n, item in enumerate("abcdef"))
    _, said = prepared(text, tmp_path)
    assert any("80% of a user's neighbouring interactions have equal times" in line for line in said)
    assert any("--columns=timestamp=date+step" in line for line in said)
    _, said = prepared("user,item,date\na,x,2020-01-01\na,y,2020-01-02\n", tmp_path)
    assert not any("equal times" in line for line in said)
