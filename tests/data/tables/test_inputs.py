"""Ids and histories from callers: lists, columns and files."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.inputs import read_boosts, read_histories, read_history_file, read_id_file, read_ids
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import SequenceDataset
from tests.data.tables.raw import T, lines_of
from tests.raising import refused

NULLS: dict[str, Any] = {
    "nullable": pd.Series([100, None], dtype="Int64"),
    "arrow": pd.Series([100, None], dtype="int64[pyarrow]"),
    "array": pd.array([100, None]),
    "masked": np.ma.array([100, 200], mask=[False, True]),
    "floats": np.array([100.0, np.nan]),
    "arrow column": pa.array([100, None]),
    "list": [100, None],
    "table": pa.table({"user_id": ["a", None]}),
}


@pytest.mark.parametrize("values", NULLS.values(), ids=NULLS)
def test_an_id_that_is_null_is_refused(values: Any) -> None:
    """They were taken for other users: as floats, or as the first characters of ids."""
    with refused(ValueError, "users", "is not an id"):
        read_ids("users", values)
    with refused(ValueError, "users, 'utf-8' codec"):
        read_ids("users", ["\ud83d"])


def test_nullable_ids_without_nulls_are_whole_numbers() -> None:
    for values in (pd.Series([7, 8], dtype="Int64"), pd.array([7, 8]), np.array([7.0, 8.0]), pa.array([7, 8])):
        assert read_ids("users", values).tolist() == [7, 8]


@pytest.mark.parametrize(
    ("name", "data", "ids"),
    [
        ("x.csv", b"u1\nu2\n", ["u1", "u2"]),  # the first one was lost
        ("x.csv", b"user_id\nu1\nu2\n", ["u1", "u2"]),
        ("x.csv", b"user_id:token\nu1\n", ["u1"]),
        ("x.csv", b'"customerId"\n"u1"\n', ["u1"]),
        ("x.csv", b"shopper_no\n7\n", ["7"]),
        ("x.txt", b"\xef\xbb\xbf7\r\n\r\n8\n", ["7", "8"]),
        ("x.txt", "a\u2028b\nc\x85d\n".encode(), ["a\u2028b", "c\x85d"]),  # two ids, not four
        ("x.txt", b"a,b\nc,d\n", ["a,b", "c,d"]),
        ("x.csv", b"item;user\n1;u1\n2;u2\n", ["u1", "u2"]),
        ("x.csv", b"u1\rshort\ru3", ["u1", "short", "u3"]),
    ],
)
def test_a_file_of_ids(name: str, data: bytes, ids: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert read_id_file(tmp_path / name, {"user_id": {"shopper_no"}}, "user_id").tolist() == ids


def test_a_parquet_file_of_ids_with_a_null_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"whoever": pa.array([100, None])}), tmp_path / "x.parquet")
    with refused(DataError, "'whoever'", "1)"):
        read_id_file(tmp_path / "x.parquet", {}, "user_id")


def test_missing_ids_of_a_csv_file_are_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.csv").write_text("user,item\nu1,a\nNA,b\n,c\n")
    with caplog.at_level(logging.WARNING, "recbole_hyper"):
        found = read_history_file(tmp_path / "x.csv", {})
    assert found.names.tolist() == ["u1"]
    assert "skipped 2 rows without an id (the first: line 3)" in caplog.text


def test_the_column_of_time_that_the_run_was_prepared_with_is_known(tmp_path: Path) -> None:
    """Rows were taken in the order of the file, without a word."""
    (tmp_path / "raw.csv").write_text(f"who,what,moment\na,x,{T + 5}\na,y,{T}\nb,x,{T}\nb,y,{T + 9}\n")
    columns = {"user_id": "who", "item_id": "what", "timestamp": "moment"}
    prepare("mine", source=tmp_path / "raw.csv", format="csv", layout=Layout(columns=columns), output=tmp_path)
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})).store
    store.save(tmp_path / "kept")
    kept = SequenceStore.load(tmp_path / "kept")
    own = {field: [kept.columns[field]] for field in columns}
    assert own == {field: [column] for field, column in columns.items()}
    found = read_history_file(tmp_path / "raw.csv", own)
    assert found.order == "by the column 'moment'"
    assert found.tokens[found.codes].tolist() == ["y", "x", "x", "y"]
    (tmp_path / "other.csv").write_text("user,item\na,x\na,y\n")
    assert "like the rows" in read_history_file(tmp_path / "other.csv", {}).order
    layout = Layout(columns={"user_id": "who", "item_id": "what", "timestamp": "moment"})
    assert read_history_file(tmp_path / "raw.csv", {}, layout).order == "by the column 'moment'"


def test_histories_in_columns_of_lists(tmp_path: Path) -> None:
    table = pa.table({"user_id": ["a", "b"], "item_id": [["x", "y"], ["z"]], "timestamp": [[T + 1, T], [T]]})
    pq.write_table(table, tmp_path / "x.parquet")
    found = read_history_file(tmp_path / "x.parquet", {})
    assert (found.names.tolist(), found.offsets.tolist()) == (["a", "b"], [0, 2, 3])
    assert found.tokens[found.codes].tolist() == ["y", "x", "z"]
    frame = table.drop(["timestamp"]).to_pandas().assign(user_id=[7, 8])
    found = read_histories(frame, {})
    assert (found.names.tolist(), found.tokens[found.codes].tolist()) == ([7, 8], ["x", "y", "z"])
    pq.write_table(table.set_column(2, "timestamp", pa.array([[T], [T]])), tmp_path / "y.parquet")
    with refused(DataError, "item_id"):
        read_history_file(tmp_path / "y.parquet", {})


def test_lines_of_items_are_histories_too(tmp_path: Path) -> None:
    """Their positions are no times of a run, and they have no columns to name."""
    (tmp_path / "raw.txt").write_text("ann lamp desk\nbob desk\n")
    found = read_history_file(tmp_path / "raw.txt", {}, unit="unix")
    assert found.names.tolist() == ["ann", "bob"]
    assert found.tokens[found.codes].tolist() == ["lamp", "desk", "desk"]
    assert (found.times, found.order) == (None, "like the rows, which have no times")
    (tmp_path / "items.csv").write_text("sku,price\nlamp,20\n")
    lines_of(tmp_path / "raw.txt", tmp_path, order="file", items=tmp_path / "items.csv")
    (item_file,) = tmp_path.rglob("*.item")
    assert item_file.read_text() == "item_id:token\tprice:float\nlamp\t20\n"


def test_dates_as_text_beside_histories() -> None:
    for days in (["2024-01-05", "2024-01-06"], ["Jan 5, 2024", "Jan 6, 2024"], ["05.01.2024", "16.01.2024"]):
        found = read_histories([["a", "b"]], {}, [days], "unix").times
        assert found is not None
        assert found[0] == 1_704_412_800
    with refused(DataError, "03/04/2024"):
        read_histories([["a", "b"]], {}, [["03/04/2024", "05/06/2024"]], "unix")


def test_a_boost_that_is_no_number_is_shown(tmp_path: Path) -> None:
    (tmp_path / "boosts.csv").write_text("item_id,boost\na,1\nb,high\n")
    with refused(DataError, "'high'"):
        read_boosts(tmp_path / "boosts.csv", {})
