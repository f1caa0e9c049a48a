"""Times: dates, units, and numbers that are unlikely dates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper.data.formats import Layout
from recbole_hyper.data.inputs import read_histories
from recbole_hyper.data.prepare.pipeline import prepare
from recbole_hyper.data.times import in_unit
from recbole_hyper.errors import DataError
from tests.data.raw import T, interactions_of


def test_dates_come_in_the_unit_of_the_run() -> None:
    """A model that was trained on milliseconds got seconds."""
    dates = pa.array(["2020-09-13 12:26:40", "2020-09-14"])
    assert in_unit(dates, "unix_ms").tolist() == [T * 1000.0, 1_600_041_600_000.0]
    assert in_unit(pa.array([T, T + 1]), "unix_ms").tolist() == [T * 1000.0, (T + 1) * 1000.0]
    assert in_unit(pa.array([T * 1000]), "unix").tolist() == [T]
    assert in_unit(pa.array([3, 5]), None).tolist() == [3, 5]
    with pytest.raises(DataError, match="steps"):
        in_unit(dates, None)
    table = pd.DataFrame({"user": "a", "item": ["x", "y"], "time": ["2020-09-14", "2020-09-13"]})
    assert read_histories(table, {}, unit="unix_ms").times.tolist() == [1_599_955_200_000.0, 1_600_041_600_000.0]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (["20200920.0", "20200921.0"], 1_600_560_000),
        (["202009202357", "202009210000"], 1_600_646_220),
        (["20200920", "20200921"], 1_600_560_000),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_dates_written_as_numbers(times: list[str], seconds: int, as_text: bool) -> None:
    values: Any = times if as_text else [float(time) for time in times]
    table = interactions_of(pd.DataFrame({"user_id": "u", "item_id": ["a", "b"], "timestamp": values}))
    assert table["timestamp"][0].as_py() == seconds


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([200920, 200921], r"1970-01-03 .*--time_format=unix, 2020-09-21 by --time_format=%y%m%d"),
        ([202009, 202010], r"--time_format=unix, 2020-10-01 by --time_format=%Y%m"),
        ([500_000_000, 500_000_001], "1985-11-05 .*--time_format=unix;"),
        ([4_000_000_000, 4_000_000_001], "2096-10-02 .*--time_format=unix;"),
        (
            [T, T + 1, (T + 2) * 1000],
            r"row 2 .*: 1600000002000 in 'timestamp' is .*unix and 2020-09-13 .*unix_ms: .*one unit",
        ),
        ([T * 1000, T * 1000, T], r"row 2 .*: 1600000000 in 'timestamp' is 1970.*unix_ms and 2020-09-13 .*=unix:"),
        ([True, False], "bool"),
    ],
)
def test_unlikely_times_are_an_error_with_both_readings(times: list[Any], message: str) -> None:
    frame = pd.DataFrame({"user_id": "u", "item_id": [f"i{n}" for n in range(len(times))], "timestamp": times})
    with pytest.raises(DataError, match=message):
        interactions_of(frame)


def test_units_mixed_between_the_parts_of_a_folder_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"user,item,time\na,x,{T}\n")
    (tmp_path / "in" / "b.csv").write_text(f"user,item,time\na,y,{T}000\n")
    with pytest.raises(DataError, match=r"b.csv, line 2: 1600000000000 in 'time' is .* more than one unit"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    layout = Layout(time_format="unix")
    result = prepare("mine", source=tmp_path / "in", format="csv", layout=layout, output=tmp_path / "out")
    assert result.statistics.interactions == 2
