"""Tables as other programs write them come back equal, or with one error that names the file and the line."""

import csv
import datetime
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.ids import MISSING_IDS
from recbole_hyper.data.tables.table import open_table
from recbole_hyper.errors import DataError

CONNECTION = duckdb.connect()
NAMES = ["user", "item", "time"]
COLUMNS = {"user_id": "user", "item_id": "item", "timestamp": "time"}
LETTERS = "ab0Zé京 \"',;|:.\t\n\\{[%#"
IDS = st.text(LETTERS, min_size=1, max_size=6) | st.integers(-(2**40), 2**40).map(str) | st.sampled_from(MISSING_IDS)
MOMENTS = st.integers(1_000_000_000, 1_700_000_000)
ROWS = st.lists(st.tuples(IDS, IDS, MOMENTS), min_size=1, max_size=12)


def _frame(rows: list[tuple[str, str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES)


def _by_csv_module(rows: list[tuple], path: Path, separator: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows([NAMES, *rows])


def _by_duckdb(rows: list[tuple], path: Path, separator: str) -> None:
    options = {".csv": f"header, delimiter '{separator}'", ".json": "format json", ".parquet": "format parquet"}
    CONNECTION.register("rows", pa.Table.from_pandas(_frame(rows)))
    CONNECTION.execute(f"copy rows to '{path}' ({options[path.suffix]})")


def _by_pandas(rows: list[tuple], path: Path, separator: str) -> None:
    frame = _frame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False, sep=separator)
    elif path.suffix == ".json":
        frame.to_json(path, orient="records", lines=True, date_format="epoch", date_unit="s")
    else:
        frame.to_parquet(path, index=False)


def _by_pyarrow(rows: list[tuple], path: Path, separator: str) -> None:
    table = pa.Table.from_pandas(_frame(rows))
    if path.suffix == ".csv":
        pacsv.write_csv(table, path, pacsv.WriteOptions(delimiter=separator))
    else:
        pq.write_table(table, path)


def _by_json_module(rows: list[tuple], path: Path, separator: str) -> None:
    path.write_text(json.dumps([dict(zip(NAMES, row, strict=True)) for row in rows], ensure_ascii=separator == ","))


WRITERS = [
    *((_by_csv_module, ".csv"), (_by_duckdb, ".csv"), (_by_pandas, ".csv"), (_by_pyarrow, ".csv")),
    *((_by_json_module, ".json"), (_by_duckdb, ".json"), (_by_pandas, ".json")),
    *((_by_pyarrow, ".parquet"), (_by_duckdb, ".parquet"), (_by_pandas, ".parquet")),
]  # fmt: skip


@pytest.mark.parametrize(("write", "ending"), WRITERS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.sampled_from(",;\t|"), st.booleans())
def test_what_is_written_is_read(write, ending, tmp_path, rows, separator, dates) -> None:
    """Ids keep every character but surrounding blanks; a missing id or an id of blanks is an error with its row."""
    path, fault, found = tmp_path / f"table{ending}", "", dict[str, Any]()
    if dates:
        write([(user, item, _moment(time, write is _by_json_module)) for user, item, time in rows], path, separator)
    else:
        write(rows, path, separator)
    layout = Layout(columns=COLUMNS, missing_ids="keep" if ending == ".csv" else None)
    try:
        found = open_table(SourceFile(path), layout, optional=()).read_all()
    except DataError as error:
        fault = str(error)
    if fault:
        assert re.search(rf"table\{ending}(, (line|row) \d+|:)", fault), fault
        assert any(not text.strip() for row in rows for text in row[:2]), (rows, fault)
        return
    read = list(zip(found["user_id"].to_pylist(), found["item_id"].to_pylist(), found["timestamp"], strict=True))
    wanted = [(user.strip(), item.strip(), time) for user, item, time in rows]
    assert read == [row for row in wanted if all(row[:2])]


def _moment(time: int, as_text: bool) -> Any:
    moment = datetime.datetime.fromtimestamp(time, datetime.UTC).replace(tzinfo=None)
    return moment.isoformat() if as_text else moment
