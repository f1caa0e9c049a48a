"""Times: dates, units, and numbers that are unlikely dates."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper.cli import main
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.inputs import in_unit, read_histories
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.data.tables.times import guessed_time_format, to_seconds
from recbole_hyper.errors import DataError
from tests.data.tables.raw import T, interactions_of, prepared
from tests.raising import refused


def test_dates_come_in_the_unit_of_the_run() -> None:
    """A model that was trained on milliseconds got seconds."""
    dates = ["2020-09-13 12:26:40", "2020-09-14"]
    assert in_unit(dates, "unix_ms").tolist() == [T * 1000.0, 1_600_041_600_000.0]
    assert in_unit([T, T + 1], "unix_ms").tolist() == [T * 1000.0, (T + 1) * 1000.0]
    assert in_unit([T * 1000], "unix").tolist() == [T]
    assert in_unit([3, 5], None).tolist() == [3, 5]
    with refused(DataError, "steps"):
        in_unit(dates, None)
    table = pd.DataFrame({"user": "a", "item": ["x", "y"], "time": ["2020-09-14", "2020-09-13"]})
    assert read_histories(table, {}, unit="unix_ms").times.tolist() == [1_599_955_200_000.0, 1_600_041_600_000.0]


@pytest.mark.parametrize(("times", "seconds"), [
    (["20200920.0", "20200921.0"], 1_600_560_000),
    (["202009202357", "202009210000"], 1_600_646_220),
    (["20200920", "20200921"], 1_600_560_000),
])  # fmt: skip
@pytest.mark.parametrize("as_text", [True, False])
def test_dates_written_as_numbers(times: list[str], seconds: int, as_text: bool) -> None:
    values: Any = times if as_text else [float(time) for time in times]
    table = interactions_of(pd.DataFrame({"user_id": "u", "item_id": ["a", "b"], "timestamp": values}))
    assert table["timestamp"][0].as_py() == seconds


@pytest.mark.parametrize(("times", "named"), [
    ([200920, 200921], ("1970-01-03", "--time_format=unix")),
    ([202009, 202010], ("1970-01-03", "--time_format=unix")),
    ([500_000_000, 500_000_001], ("1985-11-05", "--time_format=unix")),
    ([4_000_000_000, 4_000_000_001], ("2096-10-02", "--time_format=unix")),
    ([T, T + 1, (T + 2) * 1000], ("row 2", "--time_format=unix")),
    ([T * 1000, T * 1000, T], ("row 2", "--time_format=unix_ms")),
    ([True, False], ("bool",)),
    ([0, 0, T], ("such as 0", "1970-01-01", "--time_format=unix")),
])  # fmt: skip
def test_unlikely_times_are_an_error_with_their_reading(times: list[Any], named: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"user_id": "u", "item_id": [f"i{n}" for n in range(len(times))], "timestamp": times})
    with refused(DataError, *named):
        interactions_of(frame)


def test_units_mixed_between_the_parts_of_a_folder_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"user,item,time\na,x,{T}\n")
    (tmp_path / "in" / "b.csv").write_text(f"user,item,time\na,y,{T}000\n")
    with refused(DataError, "b.csv", "1600000000000", "--time_format=unix"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    layout = Layout(time_format="unix")
    result = prepare("mine", source=tmp_path / "in", format="csv", layout=layout, output=tmp_path / "out")
    assert result.statistics.interactions == 2


def test_dates_after_many_steps_are_unreadable(tmp_path: Path) -> None:
    """The format is guessed from the first rows: dates that came after ten thousand zeros were kept as steps."""
    rows = [f"u{n % 5},i{n % 7},{time}" for n, time in enumerate([0] * 10_001 + [T, T + 1])]
    (tmp_path / "x.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    with refused(DataError, "line 10003", "--time_format=steps"):
        prepare("mine", source=tmp_path / "x.csv", output=tmp_path / "out", max_malformed=0)
    layout = Layout(time_format="steps")
    prepare("mine", source=tmp_path / "x.csv", format="csv", layout=layout, output=tmp_path / "out")


def guess(values: list[Any]) -> str | None:
    return guessed_time_format(pa.array(values))


@pytest.mark.parametrize(
    ("values", "form", "first"),
    [
        ([1, 2, 3], "steps", 1),
        (["829", "1111"], "steps", 829),
        (["Fri Feb 21 16:00:00 -0700 2020"], "%a %b %d %H:%M:%S %z %Y", 1_582_326_000),
        (["31.12.2019"], "%d.%m.%Y", 1_577_750_400),
        (["Jan 5 2020", "5 Feb 2020"], "%b %d %Y", 1_578_182_400),  # neither pattern reads the other's text
        (["13/02/2020", "01/03/2020"], "%d/%m/%Y", 1_581_552_000),
        (["12/13/2010 8:26", "12/1/2010 8:28"], "%m/%d/%Y %H:%M", 1_292_228_760),
        (["6/4/2018 3:45 PM", "6/13/2018 3:45 AM"], "%m/%d/%Y %I:%M %p", 1_528_127_100),
        (["Oct 11, 2017", "May 1, 2018"], "%b %d, %Y", 1_507_680_000),
    ],
)
def test_formats_are_guessed(values: list[Any], form: str, first: float) -> None:
    assert guess(values) == form
    assert to_seconds(pa.array(values), form)[0][0] == first


@pytest.mark.parametrize("values", [["abc", "d"], ["10:20"], ["", ""]])
def test_other_text_is_not_guessed(values: list[Any]) -> None:
    assert guess(values) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["01/02/2020", "01/03/2020"], r"2020-01-02 by --time_format='%m/%d/%Y', or 2020-02-01 by .*'%d/%m/%Y'"),
        (["9999-12-31"] * 2, "unlikely dates: 9999-12-31 by --time_format=iso"),
        (["0001-01-01"] * 2, r"such as 0001-01-01, are unlikely dates: .* by --time_format=iso"),
        (["1969-07-20", "1969-07-21"], r"unlikely dates: 1969-07-2. by --time_format=iso"),
        (["2099-07-20"], "unlikely dates: 2099-07-20 by --time_format=iso"),
        ([-1_600_000_000] * 2, "such as -1600000000, are unlikely dates: 1919-04-20"),
        ([28_000_000, 28_000_001], r"1970-11-21 .*--time_format=steps for numbers that are not dates"),
    ],
)
def test_unlikely_or_ambiguous_dates_are_an_error(values: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        guess(values)


@pytest.mark.parametrize("odd", ["9999-12-31", "1969-12-31"])
def test_single_unlikely_dates_are_left_out_and_listed(odd: str, tmp_path: Path) -> None:
    text = f"user,item,time\na,x,2020-01-02\na,y,{odd}\na,z,2020-01-01\n"
    rows, said = prepared(text, tmp_path, max_malformed=0.5)
    assert [row[1] for row in rows] == ["z", "x"]
    assert any(odd in line and "--time_format=iso" in line for line in said)
    with refused(DataError, "1990"):
        prepared(text, tmp_path)
    rows, _ = prepared(text, tmp_path, layout=Layout(time_format="iso"))
    assert len(rows) == 3


def test_dates_of_a_frame_from_1970_on_are_taken() -> None:
    frame = pd.DataFrame({"user_id": "u", "item_id": ["a", "b"], "timestamp": pd.to_datetime([5, 9], unit="s")})
    assert interactions_of(frame)["timestamp"].to_pylist() == [5, 9]
    with refused(DataError, "1969"):
        interactions_of(frame.assign(timestamp=pd.to_datetime([-5, -9], unit="s")))


def test_steps_are_shown_without_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "steps.csv"
    raw.write_text("user,item,time\na,x,2\na,y,1\n")
    assert main(["prepare", f"--source={raw}", f"--output={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr().out
    assert "--time_format=steps" in printed
    assert "step 1" in printed
    assert "1970" not in printed
    large = raw.read_text().replace(",2", ",28000001").replace(",1", ",28000000")
    rows, _ = prepared(large, tmp_path, layout=Layout(time_format="steps"))
    assert [row[2] for row in rows] == ["28000000", "28000001"]


def test_a_pattern_that_strptime_does_not_have_is_refused() -> None:
    for pattern in ("%Q", "%Y%Y"):
        with refused(DataError, f"time_format='{pattern}'"):
            to_seconds(pa.array(["2024-01-01"]), pattern)


def test_words_and_moments_beyond_the_calendar_are_no_times() -> None:
    assert to_seconds(pa.array(["now", "today", "2024-03-01 10:00:00"]), "iso")[1].tolist() == [False, False, True]
    assert to_seconds(pa.array([2**62], pa.timestamp("s")), "iso")[0].tolist() == [2.0**62]


@pytest.mark.parametrize("texts", [["10:05 20/02/2001", "12:07 09/12/2015"], ["10:20 20/02/2001", "17:15 11/06/2009"]])
def test_the_hour_before_the_day_has_its_minutes(texts: list[str]) -> None:
    assert guessed_time_format(pa.array(texts)) == "%H:%M %d/%m/%Y"
