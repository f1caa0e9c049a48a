"""Parsers: every published raw format, written small and read back; lists, nested values and folders of parts."""

import gzip
import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Layout, formats
from recbole_hyper.data.tables.inputs import read_history_file
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.data.tables.table import read_columns
from recbole_hyper.errors import DataError
from tests.data.tables.raw import (
    CASES,
    CSV_LAYOUT,
    ROWS,
    T,
    date,
    expected,
    lines,
    lines_of,
    prepared,
    read_back,
    write_part,
)
from tests.raising import refused


@pytest.mark.parametrize("name", CASES)
def test_format_is_read_as_published(name: str, tmp_path: Path) -> None:
    write, rows, rated = CASES[name]
    raw = tmp_path / "raw.gz"
    raw.write_bytes(gzip.compress(write(rows).encode()))
    result = prepare("mine", source=raw, format=name, output=tmp_path)
    assert result.malformed.count == 0
    assert read_back(result) == expected(rows, rated)


def test_every_format_has_a_case_here() -> None:
    assert set(formats()) == {*CASES, "yambda", "csv", "jsonl", "parquet", "sequences", "atomic"}


def test_csv_with_named_columns_quotes_and_dates(tmp_path: Path) -> None:
    raw = tmp_path / "my.csv"
    body = "".join(f'{i},"{u}","two\nlines, ""quoted""",{r},{date(t, "%d.%m.%Y")}\n' for u, i, r, t in ROWS)
    raw.write_text("what,who,text,stars,when\n" + body)
    layout = Layout(columns=CSV_LAYOUT.columns, time_format="%d.%m.%Y")
    result = prepare("mine", source=raw, format="csv", layout=layout, output=tmp_path)
    assert read_back(result) == expected(ROWS, True)


def test_csv_without_header_by_column_number(tmp_path: Path) -> None:
    raw = tmp_path / "my.tsv"
    raw.write_text("".join(f"x;{u};{i};{t * 1000}\n" for u, i, _, t in ROWS))
    columns = {"user_id": "2", "item_id": "3", "timestamp": "4"}
    layout = Layout(columns=columns, separator=";", header=False, time_format="unix_ms")
    result = prepare("mine", source=raw, format="csv", layout=layout, output=tmp_path)
    assert read_back(result) == expected(ROWS, False)


@pytest.mark.parametrize("unit", ["s", "ns", None])
def test_parquet_with_timestamps_numbers_and_categories(unit: str | None, tmp_path: Path) -> None:
    users, items, ratings, times = zip(*ROWS, strict=True)
    when = pa.array(times) if unit is None else pa.array(times, pa.timestamp("s")).cast(pa.timestamp(unit))
    table = pa.table(
        {
            "who": pa.array(users).dictionary_encode(),
            "what": pa.array(items, pa.large_string()),
            "stars": ratings,
            "when": when,
        }
    )
    pq.write_table(table, tmp_path / "my.parquet")
    result = prepare("mine", source=tmp_path / "my.parquet", format="parquet", layout=CSV_LAYOUT, output=tmp_path)
    assert read_back(result) == expected(ROWS, True)


def test_sequences_get_positions_as_times(tmp_path: Path) -> None:
    raw = tmp_path / "beauty.txt"
    raw.write_text("7 30 10 20\n\n3 10\n5 20 30 \n")
    result = prepare("mine", source=raw, format="sequences", output=tmp_path)
    assert result.clock == "positions"
    assert read_back(result) == [
        ("7", "30", "1"),
        ("7", "10", "2"),
        ("7", "20", "3"),
        ("3", "10", "1"),
        ("5", "20", "1"),
        ("5", "30", "2"),
    ]


@pytest.mark.parametrize("size", [300, 5000])
@pytest.mark.parametrize("name", ["amazon-json", "beeradvocate-csv", "movielens-dat"])
def test_rows_do_not_depend_on_the_block_size(name, size, tmp_path, monkeypatch) -> None:
    write, rows, rated = CASES[name]
    raw = tmp_path / "raw"
    raw.write_text(write(rows * 9))
    monkeypatch.setattr("recbole_hyper.data.tables.parsers.BLOCK_BYTES", size)
    result = prepare("mine", source=raw, format=name, output=tmp_path)
    assert read_back(result) == expected(rows * 9, rated)


def test_nested_json_lists_and_arrays(tmp_path: Path) -> None:
    sessions = [{"session": n, "events": [{"aid": 3, "ts": T + 1}, {"aid": 5, "ts": T}]} for n in (1, 2)]
    layout = Layout(columns={"user_id": "session", "item_id": "events.aid", "timestamp": "events.ts"})
    expected = [f"1\t5\t{T}", f"1\t3\t{T + 1}", f"2\t5\t{T}", f"2\t3\t{T + 1}"]
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, sessions)))
    assert lines_of(tmp_path / "raw.jsonl", tmp_path, format="jsonl", layout=layout) == expected
    for indent in (None, 2):
        (tmp_path / "raw.json").write_text(json.dumps(sessions, indent=indent))
        assert lines_of(tmp_path / "raw.json", tmp_path, format="jsonl", layout=layout) == expected
    pq.write_table(pa.Table.from_pylist(sessions), tmp_path / "raw.parquet")
    assert lines_of(tmp_path / "raw.parquet", tmp_path, format="parquet", layout=layout) == expected
    broken = {"session": 1, "events": [{"aid": 3}], "times": [1, 2]}
    (tmp_path / "raw.jsonl").write_text(json.dumps(broken))
    layout = Layout(columns={"user_id": "session", "item_id": "events.aid", "timestamp": "times"})
    with refused(DataError, "lists", "entries"):
        lines_of(tmp_path / "raw.jsonl", tmp_path, format="jsonl", layout=layout)


def test_json_lines_that_break_parsers_are_counted(tmp_path: Path) -> None:
    good = [f'{{"user": "u{n}", "item": "x", "time": {T}}}' for n in range(3)]
    for bad, reason in (
        ("[" * 100_000, "not a JSON object"),
        ('{"user": "\\ud800", "item": "y", "time": 5}', "not a JSON object"),
    ):
        raw = tmp_path / "raw.jsonl"
        raw.write_text("\n".join([*good, bad]) + "\n")
        result = prepare("mine", source=raw, output=tmp_path, max_malformed=0.5)
        assert [example[:2] for example in result.malformed.examples] == [(4, reason)]


def test_ids_that_are_numbers_in_one_part_and_text_in_another_become_text(tmp_path: Path) -> None:
    write_part(tmp_path / "in" / "0.parquet", [7, 8], [1.0, 2.5], [1, 2])
    write_part(tmp_path / "in" / "1.parquet", ["7", "x"], ["1", "2"], [3.5, 4.0])
    write_part(tmp_path / "in" / "2.parquet", pa.array(["8"]).dictionary_encode(), pa.array([2], pa.int8()), [5])
    result = prepare("mine", source=tmp_path / "in", format="parquet", output=tmp_path)
    assert lines(result) == ["7\t1\t1", "7\t1\t3.5", "8\t2.5\t2", "8\t2\t5", "x\t2\t4"]


def test_a_part_without_a_column_is_named(tmp_path: Path) -> None:
    write_part(tmp_path / "in" / "0.parquet", ["a"], ["x"], [1])
    pq.write_table(pa.table({"user": ["a"], "thing": ["x"], "time": [1]}), tmp_path / "in" / "1.parquet")
    with refused(DataError, "1.parquet"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_condition_on_a_list_keeps_each_interaction_once(tmp_path: Path) -> None:
    rows = [{"user": "a", "item": "x", "time": T, "tags": ["new", "red"], "bot": True},
            {"user": "b", "item": "y", "time": T, "tags": [], "bot": None},
            {"user": "c", "item": "z", "time": T}]  # fmt: skip
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = partial(lines_of, tmp_path / "x.jsonl", tmp_path)
    assert read(where="list_contains(tags, 'new') or list_contains(tags, 'red')") == [f"a\tx\t{T}"]
    assert [line[0] for line in read(where="tags is null or len(tags) = 0")] == ["b", "c"]
    assert [line[0] for line in read(where="bot is null")] == ["b", "c"]
    assert [line[0] for line in read(where="bot = true")] == ["a"]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, [*rows[1:] * 99, rows[0]])))  # a key that is rare
    assert [line[0] for line in read(where="bot = true")] == ["a"]
    with refused(DataError, "no column bit"):
        read(where="bit = true")
    events = [{"user": "a", "events": [{"id": n, "at": T + n, "kind": kind} for n, kind in enumerate("vbv")]}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, events)))
    layout = Layout(columns={"item_id": "events.id", "timestamp": "events.at"})
    assert read(layout=layout, where="events.kind = 'v'") == [f"a\t0\t{T}", f"a\t2\t{T + 2}"]


def test_an_array_with_more_behind_it_is_refused(tmp_path: Path) -> None:
    array = json.dumps([{"user": "a", "item": "x", "time": T}])
    for rest in ("garbage", "\n" + array):
        (tmp_path / "x.json").write_text(array + rest)
        with refused(DataError, "x.json", "convert/rows_in_object.py"):
            lines_of(tmp_path / "x.json", tmp_path)


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        (f"{{u'user': u'a', u'item': 'it\\'s', 'time': {T}}}\n" * 2, "dictionaries"),
        ("1:\n7,3,2005-09-06\n8,5,2005-09-05\n", "netflix"),
        ("1\tU1\t11/15/2019 8:55:22 AM\tN1 N2\tN3-0 N4-1\n", "mind"),
        ("beer/name: Ale\nbeer/beerId: 1\n\n", "records"),
        ('{"info": {}, "playlists": [{"pid": 7, "tracks": [{"uri": "a"}]}]}', "rows_in_object"),
    ],
)
def test_a_file_that_needs_a_recipe_names_it(text: str, recipe: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    for order in ("time", "file"):
        with refused(DataError, "x.json", f"examples/convert/{recipe}.py"):
            lines_of(tmp_path / "x.json", tmp_path, order=order)


def test_all_columns_of_json_keep_lists_bools_objects_and_rare_keys(tmp_path: Path) -> None:
    rows = [{"sku": n, "price": 143.79, "new": n % 2 == 0, "tags": ["a b", "c"][: n % 3]} for n in range(6)]
    rows[5] |= {"rare": "x", "size": {"w": 1}}
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_columns(SourceFile(tmp_path / "x.jsonl")).to_pydict()
    assert found == {
        "sku": [str(n) for n in range(6)],
        "price": ["143.79"] * 6,
        "new": ["true", "false"] * 3,
        "tags": [[], ["a b"], ["a b", "c"]] * 2,
        "rare": [None] * 5 + ["x"],
        "size": [None] * 5 + ['{"w":1}'],
    }


def test_lines_of_one_user_are_joined_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("ann lamp desk\nbob desk\nann chair\nbob lamp\n")
    expected = ["ann\tlamp\t1", "ann\tdesk\t2", "ann\tchair\t3", "bob\tdesk\t1", "bob\tlamp\t2"]
    assert lines_of(tmp_path / "lines.txt", tmp_path, order="file") == expected
    found = read_history_file(tmp_path / "lines.txt", {}, None)
    assert found.tokens[found.codes].tolist() == ["lamp", "desk", "chair", "desk", "lamp"]


@pytest.mark.parametrize("lists", ['"[1, 2]"', "1|2", '"1,2"'])
def test_texts_that_are_lists_are_refused_with_the_recipe(lists: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"user,items,time\na,{lists},{T}\nb,{lists},{T}\n")
    with refused(DataError, "'items'", "examples/convert/lists.py"):
        lines_of(tmp_path / "x.csv", tmp_path)


def test_line_ends_inside_quotes_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two inches in two titles, and all lines between them were one value."""
    prepared(f"user,item,time,title\na,x,{T},1\n" + f'b,y,{T},"\n' * 2, tmp_path)
    assert "1 line ends are inside double quotes" in caplog.text
