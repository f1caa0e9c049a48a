"""What public files hold and readers got wrong: nulls, quotes, times, odd ids; each is read right or one error."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.formats import Layout
from recbole_hyper.data.ids import Ids, text_array
from recbole_hyper.data.inputs import read_histories, read_history_file, read_id_file, read_ids
from recbole_hyper.data.prepare.pipeline import Prepared, prepare
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables import open_table
from recbole_hyper.data.times import in_unit
from recbole_hyper.errors import ConfigError, DataError
from tests.data.test_prepare_frames import interactions_of

T = 1_600_000_000


def prepared(
    text: str | bytes, tmp_path: Path, name: str = "raw.csv", **options: Any
) -> tuple[list[list[str]], list[str]]:
    """Return the rows that are written of a file, and what was said."""
    raw, said = tmp_path / name, []
    raw.write_bytes(text if isinstance(text, bytes) else text.encode())
    result: Prepared = prepare("mine", source=raw, output=tmp_path / "out", overwrite=True, say=said.append, **options)
    return [line.split("\t") for line in result.path.read_text().splitlines()[1:]], said


# --- ids ------------------------------------------------------------------------------------------
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
    with pytest.raises(ValueError, match="which is no id"):
        read_ids("users", values)


def test_nullable_ids_without_nulls_are_whole_numbers() -> None:
    for values in (pd.Series([7, 8], dtype="Int64"), pd.array([7, 8]), np.array([7.0, 8.0]), pa.array([7, 8])):
        assert read_ids("users", values).tolist() == [7, 8]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([1e19, 2.0]), "row 0 .*2\\*\\*53"),
        (np.array([1.0, 9007199254740993.0]), "row 1 .*2\\*\\*53"),
        ([4.0, "4"], "row 0 .*the float 4.0 stands beside texts"),
        (["a", "a\0"], "row 1 .*NUL"),
        ([None, "a"], "row 0 .*null"),
        ([["a"], "b"], "row 0 .*neither text"),
    ],
)
def test_ids_that_would_become_one_are_refused(ids: Any, message: str) -> None:
    frame = pd.DataFrame({"user_id": pd.Series(list(ids), dtype=None if isinstance(ids, np.ndarray) else object)})
    with pytest.raises(DataError, match=message):
        interactions_of(frame.assign(item_id="i", timestamp=T))


def test_words_for_no_id_in_a_csv_file_are_counted_and_kept_only_when_asked_for(tmp_path: Path) -> None:
    text = "user,item,time\n" + f"NA,a,{T}\n,b,{T}\n\\N,c,{T}\nnull,d,{T}\nu,e,{T}\nNancy,f,{T}\n"
    with pytest.raises(DataError, match=r"4 of 6 lines cannot be read(?s:.*)line 2: no user .--missing_ids=keep"):
        prepared(text, tmp_path)
    rows, said = prepared(text, tmp_path, max_malformed=0.9)
    assert [row[1] for row in rows] == ["e", "f"]
    assert any("4 lines could not be read" in line for line in said)
    rows, said = prepared(text, tmp_path, max_malformed=0.9, format="csv", layout=Layout(missing_ids="keep"))
    assert [row[1] for row in rows] == ["a", "c", "d", "e", "f"]
    assert any("2 user ids hold what RecBole's reader would lose" in line for line in said)


def test_ids_that_are_escaped_in_the_file_come_back_as_they_were(tmp_path: Path) -> None:
    """They left by ``recommend`` as %22, so that a join with the shop's table missed."""
    names = ['5" disk', "NA", "%22", "a%2525b", "tab\there", "plain"]
    frame = pa.table({"user_id": names, "item_id": names[::-1], "timestamp": [T] * 6})
    pq.write_table(frame, tmp_path / "raw.parquet")
    said: list[str] = []
    path = prepare("mine", source=tmp_path / "raw.parquet", output=tmp_path, say=said.append).path
    assert "%22" in path.read_text()
    assert sum("written with %XX; runs read them back" in line for line in said) == 2
    keys: dict[str, Any] = {"data_path": str(tmp_path)}
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict=keys)).store
    assert sorted(store.user_tokens[1:].tolist()) == sorted(store.item_tokens[1:].tolist()) == sorted(names)
    kept = SequenceDataset(
        Config("SASRecCE", "mine", config_dict={**keys, "val_interval": {"item_id": ["NA", '5" disk']}})
    )
    assert sorted(kept.store.item_tokens[1:].tolist()) == ['5" disk', "NA"]


def test_one_long_id_does_not_make_all_ids_long(tmp_path: Path) -> None:
    tokens = text_array(["[PAD]", *(f"i{n}" for n in range(20_000)), "x" * 20_000])
    assert tokens.dtype == object
    users = text_array(["[PAD]", "u"])
    store = SequenceStore.from_interactions([1, 1], [1, 20_001], [1.0, 2.0], users, tokens)
    store.save(tmp_path / "store")
    assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < 1 << 20
    again = SequenceStore.load(tmp_path / "store")
    assert again.item_tokens.tolist() == tokens.tolist()
    assert again.fingerprint() == store.fingerprint()
    assert Ids(tokens).find(np.array(["i7", "x" * 20_000, "x" * 19_999, "i"])).tolist() == [8, 20_001, 0, 0]
    assert text_array(["a", "bc"]).dtype.kind == "U"


# --- files of ids ---------------------------------------------------------------------------------
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
    with pytest.raises(DataError, match=r"x.parquet, row 2 \(from 1\): the id in 'whoever' is null or empty"):
        read_id_file(tmp_path / "x.parquet", {}, "user_id")


def test_missing_ids_of_a_csv_file_are_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.csv").write_text("user,item\nu1,a\nNA,b\n,c\n")
    with caplog.at_level(logging.WARNING, "recbole_hyper"):
        found = read_history_file(tmp_path / "x.csv", {})
    assert found.names.tolist() == ["u1"]
    assert "2 rows without an id are left out (the first: line 3)" in caplog.text


# --- histories ------------------------------------------------------------------------------------
def test_the_column_of_time_that_the_run_was_prepared_with_is_known(tmp_path: Path) -> None:
    """Rows were taken in the order of the file, without a word."""
    (tmp_path / "raw.csv").write_text(f"who,what,moment\na,x,{T + 5}\na,y,{T}\nb,x,{T}\nb,y,{T + 9}\n")
    columns = {"user_id": "who", "item_id": "what", "timestamp": "moment"}
    prepare("mine", source=tmp_path / "raw.csv", format="csv", layout=Layout(columns=columns), output=tmp_path)
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})).store
    store.save(tmp_path / "kept")
    kept = SequenceStore.load(tmp_path / "kept")
    own = {field: kept.columns_of(field) for field in columns}
    assert own == {field: [column] for field, column in columns.items()}
    found = read_history_file(tmp_path / "raw.csv", own)
    assert found.order == "by the column 'moment'"
    assert found.tokens[found.codes].tolist() == ["y", "x", "x", "y"]
    (tmp_path / "other.csv").write_text("user,item\na,x\na,y\n")
    assert "as the rows are" in read_history_file(tmp_path / "other.csv", {}).order
    layout = Layout(columns={"user_id": "who", "item_id": "what", "timestamp": "moment"})
    assert read_history_file(tmp_path / "raw.csv", {}, layout).order == "by the column 'moment'"


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


def test_histories_in_columns_of_lists(tmp_path: Path) -> None:
    table = pa.table({"user_id": ["a", "b"], "item_id": [["x", "y"], ["z"]], "timestamp": [[T + 1, T], [T]]})
    pq.write_table(table, tmp_path / "x.parquet")
    found = read_history_file(tmp_path / "x.parquet", {})
    assert (found.names.tolist(), found.offsets.tolist()) == (["a", "b"], [0, 2, 3])
    assert found.tokens[found.codes].tolist() == ["y", "x", "z"]
    pq.write_table(table.set_column(2, "timestamp", pa.array([[T], [T]])), tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet, row 1: the lists of item_id and timestamp have 2 and 1 entries"):
        read_history_file(tmp_path / "y.parquet", {})


# --- quotes ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_quote_inside_a_value_does_not_swallow_lines(separator: str, tmp_path: Path) -> None:
    lines = ["user,item,time", f'a,5" disk,{T}', f'"b,c,{T}', f"d,e,{T}", f"h,i,{T}"]
    rows, said = prepared("\n".join(lines).replace(",", separator) + "\n", tmp_path)
    assert [row[1] for row in rows] == ["5%22 disk", "c", "e", "i"]
    assert "--quoting=none" in said[0]


def test_quoting_can_be_said(tmp_path: Path) -> None:
    text = f'user,item,time\n"a",b,{T}\n'
    assert prepared(text, tmp_path)[0][0][0] == "a"
    assert prepared(text, tmp_path, format="csv", layout=Layout(quoting="none"))[0][0][0] == "%22a%22"
    with pytest.raises(DataError, match="quoting='some' is unknown; allowed: none, csv"):
        prepared(text, tmp_path, format="csv", layout=Layout(quoting="some"))
    with pytest.raises(DataError, match=r"raw.csv, line 2: a double quote opens a value .* --quoting=none"):
        prepared(f'user,item,time\n"a,b,{T}\nc,d,{T}\n', tmp_path, format="csv", layout=Layout(quoting="csv"))


# --- times ----------------------------------------------------------------------------------------
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


# --- columns that nobody asked for ----------------------------------------------------------------
def test_a_rating_that_nobody_asked_for_does_not_reject_rows(tmp_path: Path) -> None:
    rows, said = prepared(f"user,item,rating,time\na,x,4,{T}\na,y,,{T + 1}\na,z,good,{T + 2}\n", tmp_path)
    assert [row[2] for row in rows] == ["4", "", ""]
    assert "2 ratings are no numbers and are left blank" in said
    rows, _ = prepared(f"user,item,rating,time\na,x,bad,{T}\na,y,good,{T}\n", tmp_path)
    assert [len(row) for row in rows] == [3, 3]
    with pytest.raises(DataError, match="no rating"):
        prepared(f"user,item,rating,time\na,x,4,{T}\na,y,,{T}\n", tmp_path, changes={"threshold": 3.0})


@pytest.mark.parametrize("name", ["raw.csv", "raw.jsonl"])
def test_a_byte_of_another_encoding_in_a_text_rejects_no_row(name: str, tmp_path: Path) -> None:
    rows = [
        {"user": "Zoë", "item": "x", "time": T, "text": "fine"},
        {"user": "b", "item": "y", "time": T, "text": "caf?"},
    ]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    if name.endswith("csv"):
        text = "\n".join(["user,item,time,text", *(",".join(map(str, row.values())) for row in rows)])
    found, _ = prepared(text.encode().replace(b"caf?", b"caf\xe9"), tmp_path, name)
    assert [row[0] for row in found] == ["Zoë", "b"]


@pytest.mark.parametrize(("encoding", "guess"), [("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-8", None)])
def test_the_encoding_is_guessed_and_said(encoding: str, guess: str | None, tmp_path: Path) -> None:
    text = f"user,item,time\nrené,café,{T}\n".encode(encoding)
    rows, said = prepared(text, tmp_path)
    assert rows[0][:2] == ["rené", "café"]
    assert (f"--encoding={guess}" in said[0]) == (guess is not None)
    assert prepared(text, tmp_path, format="csv", layout=Layout(encoding=encoding))[0] == rows


# --- odd files ------------------------------------------------------------------------------------
def test_carriage_returns(tmp_path: Path) -> None:
    rows, _ = prepared(f"user,item,time\ra,x,{T}\rb,y,{T}\r", tmp_path)
    assert [row[0] for row in rows] == ["a", "b"]
    with pytest.raises(DataError, match=r"raw.csv, line 2: there is a carriage return inside the line"):
        prepared(f"user,item,time\na\rb,x,{T}\n", tmp_path)


def test_one_column_is_not_read_as_two_fields(tmp_path: Path) -> None:
    layout = Layout(columns={"user_id": "user", "item_id": "user"})
    with pytest.raises(DataError, match="'user' is named for user_id and for item_id"):
        prepared(f"user,item,time\na,x,{T}\n", tmp_path, format="csv", layout=layout)


def test_json_lines_that_break_parsers_are_counted(tmp_path: Path) -> None:
    good = [f'{{"user": "u{n}", "item": "x", "time": {T}}}' for n in range(3)]
    for bad, reason in (("[" * 100_000, "no JSON object"), ('{"user": "\\ud800", "item": "y", "time": 5}', "no user")):
        raw = tmp_path / "raw.jsonl"
        raw.write_text("\n".join([*good, bad]) + "\n")
        result = prepare("mine", source=raw, output=tmp_path, max_malformed=0.5)
        assert [example[:2] for example in result.malformed.examples] == [(4, reason)]


def test_hive_folders_are_decoded(tmp_path: Path) -> None:
    for value, user in (("a%20b%3D", "u"), ("__HIVE_DEFAULT_PARTITION__", "v")):
        (tmp_path / "in" / f"item_id={value}").mkdir(parents=True)
        pq.write_table(
            pa.table({"user_id": [user], "timestamp": [T]}), tmp_path / "in" / f"item_id={value}" / "0.parquet"
        )
    result = prepare("mine", source=tmp_path / "in", output=tmp_path, max_malformed=0.5)
    assert result.path.read_text().splitlines()[1:] == [f"u\ta b=\t{T}"]
    assert result.malformed.count == 1


def test_padding_in_lists_of_split_files_is_no_item(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    header = "user_id:token\titem_id_list:token_seq\titem_id:token\n"
    for part in ("train", "valid", "test"):
        (tmp_path / "mine" / f"mine.{part}.inter").write_text(header + "a\t0 0 x y\tz\nb\t0 0 0 z\tx\n")
    keys = {"data_path": str(tmp_path), "benchmark_filename": ["train", "valid", "test"]}
    with caplog.at_level(logging.WARNING, "recbole_hyper"):
        store = SequenceDataset(Config("SASRecCE", "mine", config_dict=keys)).store
    assert sorted(store.item_tokens[1:].tolist()) == ["x", "y", "z"]
    assert "taken for padding" in caplog.text


# --- keys -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"val_interval": {"timestamp": ">5"}}, "val_interval: timestamp='>5' is no interval"),
        ({"val_interval": {"item_id": "1234567890"}}, "val_interval: item_id='1234567890': .*a list is needed"),
        ({"unload_col": True}, "unload_col=True: a mapping is needed"),
        ({"field_separator": ""}, "field_separator=.*: a text that is not empty"),
        ({"LIST_SUFFIX": ""}, "LIST_SUFFIX=.*: a text that is not empty"),
        ({"USER_ID_FIELD": "item_id"}, "three different columns are needed"),
    ],
)
def test_keys_that_cannot_be_right_are_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SequenceDataset(Config("SASRecCE", "ml-100k", config_dict=keys))


def test_a_folder_that_is_not_there_is_not_replaced_by_the_bundled_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; leave it out"):
        Config("SASRecCE", "ml-100k", config_dict={"data_path": str(tmp_path / "nothing")})


def test_the_same_reader_takes_a_table_of_any_kind(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": [T, T + 1]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "x.json", orient="records")
    for name in ("x.csv", "x.parquet", "x.jsonl", "x.json"):
        found = open_table(SourceFile(tmp_path / name)).read_all()
        assert found["user_id"].to_pylist() == ["a", "b"], name
        assert found["item_id"].to_pylist() == ["x", "y"], name
        assert found["timestamp"].tolist() == [T, T + 1], name


def test_a_folder_without_ml_100k_does_not_silently_give_the_copy_of_the_package(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Config("SASRecCE", "ml-100k", config_dict={"data_path": str(tmp_path)})
    assert "has no ml-100k: using the copy in the recbole package" in caplog.text


def test_an_encoding_that_was_guessed_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "d.inter"
    path.write_bytes(f"user_id:token\titem_id:token\ttimestamp:float\nZo\xeb\ti\t{T}\n".encode("cp1252"))
    assert open_table(SourceFile(path)).read_all()["user_id"].to_pylist() == ["Zo\xeb"]
    assert "is read as cp1252" in caplog.text


def test_ids_of_any_form_are_found() -> None:
    known = Ids(np.array(["[PAD]", "7", "a" * 20_000], dtype=object))
    for wanted in (np.array([7, 8]), pa.chunked_array([["7"], ["b"]]), np.array(["7", "x"]), pa.array([7, 9])):
        assert known.find(wanted).tolist() == [1, 0]
    assert known.find(pa.array(["a" * 20_000, "7"])).tolist() == [2, 1]
