"""What people with real files need: conditions, files without times, nested json, folders of parts, sessions; and that
any table, written by any program, comes back equal or is one error."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.data import cache
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.dataset import stored
from recbole_hyper.data.formats import Layout
from recbole_hyper.data.ids import MISSING_IDS
from recbole_hyper.data.inputs import read_history_file
from recbole_hyper.data.parsers import Frame
from recbole_hyper.data.prepare.pipeline import prepare
from recbole_hyper.data.tables import open_table, read_columns
from recbole_hyper.errors import DataError

T = 1_600_000_000


def rows(source: Path, tmp_path: Path, **options: Any) -> list[str]:
    options = {"output": tmp_path / "out", "overwrite": True, **options}
    return prepare("mine", source=source, **options).path.read_text().splitlines()[1:]


def test_rows_are_chosen_by_a_condition(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    lines = [f"a,x,view,1.5,{T}", f"a,,search,,{T}", f"b,y,buy,3,{T}", f"b,z,view,,{T}"]
    raw.write_text("user,item,event,price,time\n" + "\n".join(lines) + "\n")
    # a row that is not chosen may lack what it likes
    assert rows(raw, tmp_path, where="event = 'view' and price > 0") == [f"a\tx\t{T}"]
    assert len(rows(raw, tmp_path, where="event in ('view', 'buy')")) == 3
    with pytest.raises(DataError, match="has no column prize; its columns: user, item, event"):
        rows(raw, tmp_path, where="prize > 1")
    with pytest.raises(DataError, match="which is no number"):
        rows(raw, tmp_path, where="event > 1")
    frame = pd.read_csv(raw)
    frame.to_json(tmp_path / "raw.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "raw.parquet")
    for name in ("raw.jsonl", "raw.parquet"):
        assert rows(tmp_path / name, tmp_path, where="event = 'view' and price > 0") == [f"a\tx\t{T}"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("raw.csv", "user,item\na,x\nb,y\na,z\na,x\n"),
        ("raw.txt", "a x\nb y\na z x\n"),
        ("raw.csv", "user,item,when\na,x,9\nb,y,8\na,z,7\na,x,6\n"),
    ],
)
def test_without_times_the_order_is_that_of_the_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found = [line.split("\t")[:2] for line in rows(tmp_path / name, tmp_path, order="file")]
    assert found == [["a", "x"], ["a", "z"], ["a", "x"], ["b", "y"]]


def test_lines_of_items_are_histories_too(tmp_path: Path) -> None:
    """Their positions are no times of a run, and they have no columns to name."""
    (tmp_path / "raw.txt").write_text("ann lamp desk\nbob desk\n")
    found = read_history_file(tmp_path / "raw.txt", {}, unit="unix")
    assert found.names.tolist() == ["ann", "bob"]
    assert found.tokens[found.codes].tolist() == ["lamp", "desk", "desk"]
    assert (found.times, found.order) == (None, "as the rows are: no column of times")
    (tmp_path / "items.csv").write_text("sku,price\nlamp,20\n")
    rows(tmp_path / "raw.txt", tmp_path, order="file", items=tmp_path / "items.csv")
    (item_file,) = tmp_path.rglob("*.item")
    assert item_file.read_text() == "item_id:token\tprice:float\nlamp\t20\n"


def test_models_without_sequences_need_no_times_in_random_order(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    lines = [f"u{n % 7}\ti{n % 5}" for n in range(70)]
    (tmp_path / "mine" / "mine.inter").write_text("user_id:token\titem_id:token\n" + "\n".join(lines) + "\n")
    keys = {"data_path": str(tmp_path), "eval_args": {"order": "RO", "split": {"RS": [8, 1, 1]}, "mode": "full"}}
    assert len(stored(Config("BPR", "mine", config_dict=keys)).items) == 70
    with pytest.raises(DataError, match="has no column 'timestamp'"):
        stored(Config("BPR", "mine", config_dict={"data_path": str(tmp_path)}))


def test_nested_json_lists_and_arrays(tmp_path: Path) -> None:
    sessions = [{"session": n, "events": [{"aid": 3, "ts": T + 1}, {"aid": 5, "ts": T}]} for n in (1, 2)]
    layout = Layout(columns={"user_id": "session", "item_id": "events.aid", "timestamp": "events.ts"})
    expected = [f"1\t5\t{T}", f"1\t3\t{T + 1}", f"2\t5\t{T}", f"2\t3\t{T + 1}"]
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, sessions)))
    assert rows(tmp_path / "raw.jsonl", tmp_path, format="jsonl", layout=layout) == expected
    for indent in (None, 2):
        (tmp_path / "raw.json").write_text(json.dumps(sessions, indent=indent))
        assert rows(tmp_path / "raw.json", tmp_path, format="jsonl", layout=layout) == expected
    pq.write_table(pa.Table.from_pylist(sessions), tmp_path / "raw.parquet")
    assert rows(tmp_path / "raw.parquet", tmp_path, format="parquet", layout=layout) == expected
    broken = {"session": 1, "events": [{"aid": 3}], "times": [1, 2]}
    (tmp_path / "raw.jsonl").write_text(json.dumps(broken))
    layout = Layout(columns={"user_id": "session", "item_id": "events.aid", "timestamp": "times"})
    with pytest.raises(DataError, match="line 1: lists of 1 and 2 entries"):
        rows(tmp_path / "raw.jsonl", tmp_path, format="jsonl", layout=layout)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_folder_of_parts_is_one_table(ending: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        frame = pd.DataFrame({"user": [f"u{part}", "u"], "item": ["x", f"i{part}"], "time": [T + part] * 2})
        path = tmp_path / "in" / f"part-{part}.{ending}"
        if ending == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
    assert len(rows(tmp_path / "in", tmp_path)) == 6
    (tmp_path / "in" / f"part-1.{ending}").write_text("user,item,time\nu,x\n" if ending == "csv" else '{"user": 1}\n')
    with pytest.raises(DataError, match=f"part-1.{ending}"):
        rows(tmp_path / "in", tmp_path)


def test_clicks_of_mind(tmp_path: Path) -> None:
    shown = ["1\tU1\t11/15/2019 8:55:22 AM\tN1 N2\tN3-0 N4-1 N5-1", "2\tU2\t11/15/2019 9:00:00 PM\t\tN3-1", "3\tU2\tx"]
    (tmp_path / "behaviors.tsv").write_text("\n".join(shown))
    assert rows(tmp_path / "behaviors.tsv", tmp_path, max_malformed=0.5) == [
        "U1\tN4\t1573808122", "U1\tN5\t1573808122", "U2\tN3\t1573851600",
    ]  # fmt: skip


def test_sessions_and_exact_copies(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    times = [0, 600, 3000, 3000, 3000, 5000]
    raw.write_text(
        "user,item,time\n" + "".join(f"a,i{n // 3},{T + time}\n" for n, time in enumerate(times)) + f"b,x,{T}\n"
    )
    found = [line.split("\t")[:2] for line in rows(raw, tmp_path, changes={"session_gap": "30min"})]
    assert found == [["a#1", "i0"], ["a#1", "i0"], *[["a#2", "i0"]], *[["a#2", "i1"]] * 2, ["a#3", "i1"], ["b#1", "x"]]
    found = rows(raw, tmp_path, changes={"duplicates": "exact"})
    assert [line.split("\t")[1] for line in found] == ["i0", "i0", "i0", "i1", "i1", "x"]
    with pytest.raises(DataError, match="session_gap='soon' is no duration"):
        rows(raw, tmp_path, changes={"session_gap": "soon"})


def test_all_columns_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("item_id,price,name\n007, 1.5 ,NA\n8,,x\n")
    found = read_columns(SourceFile(tmp_path / "x.csv")).to_pydict()
    assert found == {"item_id": ["007", "8"], "price": ["1.5", ""], "name": ["NA", "x"]}


def test_a_wrong_name_of_the_bundled_data_and_a_path_are_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["run", "--model=Pop", "--dataset=ml100k", f"--data_path={tmp_path}", "--offline=True"]) == 1
    assert "Did you mean 'ml-100k'?" in capsys.readouterr().err
    (tmp_path / "my orders.csv").write_text("user,item,time\n")
    dataset = str(tmp_path / "my orders.csv")
    assert main(["run", "--model=Pop", f"--dataset={dataset}", "--offline=True"]) == 1
    assert f"recbole-hyper prepare mine --source='{dataset}', and then --dataset=mine" in capsys.readouterr().err


# --- the cache -------------------------------------------------------------------------------------------------------
@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, Path, str]:
    """A data set that is in the cache: its configuration, the folder of the store, and its fingerprint."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST", 0)
    (tmp_path / "mine").mkdir()
    lines = [f"u{n % 97}\ti{n % 89}\t{n}" for n in range(20_000)]
    header = "user_id:token\titem_id:token\ttimestamp:float\n"
    (tmp_path / "mine" / "mine.inter").write_text(header + "\n".join(lines) + "\n")
    config = Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})
    fingerprint = stored(config).fingerprint()
    (folder,) = (tmp_path / "cache" / "recbole_hyper" / "stores").iterdir()
    return config, folder, fingerprint


@pytest.mark.parametrize("damage", ["zeroed page", "swapped blocks", "one byte"])
def test_a_damaged_store_is_made_anew(
    damage: str, kept: tuple[Config, Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    config, folder, fingerprint = kept
    data = bytearray((folder / "times.npy").read_bytes())
    if damage == "zeroed page":
        data[40_960:45_056] = bytes(4096)
    elif damage == "one byte":
        data[70_001] ^= 1
    else:
        data[8192:12_288], data[40_960:45_056] = data[40_960:45_056], data[8192:12_288]
    state = (folder / "times.npy").stat()
    (folder / "times.npy").write_bytes(data)
    os.utime(folder / "times.npy", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert stored(config).fingerprint() == fingerprint
    assert np.array_equal(stored(config).times, np.load(folder / "times.npy"))
    assert "cannot be used" in caplog.text


def test_an_edit_of_the_same_size_and_time_is_seen(kept: tuple[Config, Path, str], tmp_path: Path) -> None:
    config, _, fingerprint = kept
    path = tmp_path / "mine" / "mine.inter"
    state = path.stat()
    path.write_text(path.read_text().replace("u5\ti5\t5\n", "u5\ti6\t5\n"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    assert stored(config).fingerprint() != fingerprint


# --- any table comes back equal --------------------------------------------------------------------------------------
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=8)
IDS = st.one_of(TEXT, st.sampled_from(["007", '5"', '"', "a,b", "1e5", "a\nb", "true", "x\u2028y"])).map(str.strip)
IDS = IDS.filter(lambda text: text and text not in MISSING_IDS and not text.isspace())
ROWS = st.lists(st.tuples(IDS, IDS, st.integers(T - 10**8, T)), min_size=1, max_size=8)


KINDS = ("pandas csv", "arrow csv", "csv module", "json", "json array", "parquet", "frame", "arrow")


def written(kind: str, table: list[tuple[str, str, int]], path: Path) -> None:
    frame = pd.DataFrame(table, columns=["user_id", "item_id", "timestamp"])
    if kind == "pandas csv":
        frame.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    elif kind == "arrow csv":
        pacsv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif kind == "csv module":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([frame.columns, *table])
        path.write_text(text.getvalue(), encoding="utf-8")
    elif kind == "json":
        path.write_text("\n".join(json.dumps(row) for row in frame.to_dict("records")), encoding="utf-8")
    elif kind == "json array":
        path.write_text(json.dumps(frame.to_dict("records"), indent=1), encoding="utf-8")
    elif kind == "parquet":
        frame.to_parquet(path)


@pytest.mark.parametrize(
    "kind", ["pandas csv", "arrow csv", "csv module", "json", "json array", "parquet", "frame", "arrow"]
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=ROWS)
def test_any_table_comes_back_equal(kind: str, table: list[tuple[str, str, int]], tmp_path: Path) -> None:
    users, items, times = (list(column) for column in zip(*table, strict=True))
    frame = pd.DataFrame(table, columns=["user_id", "item_id", "timestamp"])
    if kind == "frame":
        source: Any = Frame(frame)
    elif kind == "arrow":
        source = Frame(pa.Table.from_pandas(frame))
    else:
        written(kind, table, tmp_path / "x")
        source = SourceFile(tmp_path / "x")
    forms = {"json": "jsonl", "json array": "jsonl", "parquet": "parquet", "frame": None, "arrow": None}
    found = open_table(source, format=forms.get(kind, "csv")).read_all()
    ids = [found[name].to_pylist() for name in ("user_id", "item_id")]
    assert (*ids, found["timestamp"].tolist()) == (users, items, times)
