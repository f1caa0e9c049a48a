"""Parsers: every published raw format, written small and read back; lists, nested values and folders of parts."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.formats import Layout, formats
from recbole_hyper.data.inputs import read_history_file
from recbole_hyper.data.parsers import _at_keys
from recbole_hyper.data.prepare.pipeline import prepare
from recbole_hyper.data.tables import read_columns
from recbole_hyper.errors import DataError
from tests.data.raw import (
    AWKWARD,
    CASES,
    CSV_LAYOUT,
    ROWS,
    T,
    beer_txt,
    date,
    expected,
    lines,
    lines_of,
    parsed,
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
    assert set(formats()) == {
        *CASES,
        "mind",
        "netflix",
        "python-dictionaries",
        "yambda",
        "csv",
        "jsonl",
        "parquet",
        "sequences",
        "atomic",
    }


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


@pytest.mark.parametrize("size", [1, 100, 5000])
@pytest.mark.parametrize("name", ["amazon-json", "steam", "beeradvocate-txt", "sequences"])
def test_parsers_do_not_depend_on_the_block_size(name: str, size: int) -> None:
    rows = AWKWARD * 3
    if name == "sequences":
        data, step = "".join(f"{n} {row[1]}\n" for n, row in enumerate(rows)), 1
        rows = [(str(n), row[1], row[2], row[3]) for n, row in enumerate(rows)]
    else:
        data, step = CASES[name][0](rows), 8 if name == "beeradvocate-txt" else 1
    found, malformed = parsed(name, data, size)
    assert found == [(row[0], row[1], 1 + step * n) for n, row in enumerate(rows)]
    assert malformed.count == 0


def test_records_with_more_blank_lines_between_keep_their_line_numbers() -> None:
    text = beer_txt(AWKWARD[:3]).replace("\n\n", "\n\n\n\n")
    rows, _ = parsed("beeradvocate-txt", "\n" + text, 1 << 20)
    assert [line for _, _, line in rows] == [2, 12, 22]


def test_dictionaries_that_the_patterns_do_not_match_are_evaluated_in_order(tmp_path: Path) -> None:
    """Nested values before a key, other order of blanks, blank lines; what is not a dictionary is named as such."""
    lines = [
        "{u'username': u'a', u'product_id': u'1', u'date': u'2019-01-03'}",
        "{u'found': [1, {'product_id': 9}], u'username': u'a', u'product_id': u'2', u'date': u'2019-01-01'}",
        "  ",
        "{'username':'b','product_id':3,'date':'2019-01-02'}",
        "{u'username': u'a', u'product_id': 4.0, u'date': u'2019-01-02'}",
        "__import__('os')",
    ]
    (tmp_path / "raw").write_text("\n".join(lines))
    result = prepare("mine", source=tmp_path / "raw", format="steam", output=tmp_path, max_malformed=0.5)
    assert [line[:2] for line in read_back(result)] == [("a", "2"), ("a", "4"), ("a", "1"), ("b", "3")]
    assert [example[:2] for example in result.malformed.examples] == [(6, "not a dictionary")]


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


def test_clicks_of_mind(tmp_path: Path) -> None:
    shown = ["1\tU1\t11/15/2019 8:55:22 AM\tN1 N2\tN3-0 N4-1 N5-1", "2\tU2\t11/15/2019 9:00:00 PM\t\tN3-1", "3\tU2\tx"]
    (tmp_path / "behaviors.tsv").write_text("\n".join(shown))
    assert lines_of(tmp_path / "behaviors.tsv", tmp_path, max_malformed=0.5) == [
        "U1\tN4\t1573808122", "U1\tN5\t1573808122", "U2\tN3\t1573851600",
    ]  # fmt: skip


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


def test_hive_folders_are_decoded(tmp_path: Path) -> None:
    for value, user in (("a%20b%3D", "u"), ("__HIVE_DEFAULT_PARTITION__", "v")):
        (tmp_path / "in" / f"item_id={value}").mkdir(parents=True)
        pq.write_table(
            pa.table({"user_id": [user], "timestamp": [T]}), tmp_path / "in" / f"item_id={value}" / "0.parquet"
        )
    result = prepare("mine", source=tmp_path / "in", output=tmp_path, max_malformed=0.5)
    assert result.path.read_text().splitlines()[1:] == [f"u\ta b=\t{T}"]
    assert result.malformed.count == 1


def test_folders_called_key_value_give_their_value_to_all_rows(tmp_path: Path) -> None:
    write_part(tmp_path / "in" / "date=2019-01-02" / "shop=a" / "part-0.parquet", ["b"], ["x"], [None])
    write_part(tmp_path / "in" / "date=2019-01-01" / "shop=b" / "part-0.parquet", ["b"], ["y"], [None])
    layout = Layout(columns={"timestamp": "date", "item_id": "shop"})
    result = prepare("mine", source=tmp_path / "in", layout=layout, output=tmp_path)
    assert lines(result) == ["b\tb\t1546300800", "b\ta\t1546387200"]


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


def test_a_file_of_two_arrays_is_read_whole_and_garbage_is_refused(tmp_path: Path) -> None:
    one, other = ([{"user": user, "item": "x", "time": T}] for user in "ab")
    (tmp_path / "x.json").write_text(json.dumps(one) + "\n" + json.dumps(other))
    assert [line[0] for line in lines_of(tmp_path / "x.json", tmp_path)] == ["a", "b"]
    (tmp_path / "x.json").write_text(json.dumps(one) + "garbage")
    with refused(DataError, "'garbage'"):
        lines_of(tmp_path / "x.json", tmp_path)


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


LISTS = [f"a\t1\t{T}", f"a\t2\t{T + 9}", f"b\t2\t{T}"]


@pytest.mark.parametrize(
    ("rows", "separator"),
    [
        (f'a,"1,2","{T},{T + 9}"\nb,2,{T}\n', ","),
        (f"a,\"['1', '2']\",\"[{T}, {T + 9}]\"\nb,[2],{T}\nc,,{T}\n", ","),
        (f"a,1 2,{T} {T + 9}\nb, 2 ,{T}\n", " "),
        (f"a,1|2,{T}|{T + 9}\nb,2,{T}\n", "|"),
    ],
)
def test_texts_that_are_lists_are_split(rows: str, separator: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,items,times\n" + rows)
    assert lines_of(tmp_path / "x.csv", tmp_path, layout=Layout(seq_separator=separator)) == LISTS
    history = read_history_file(tmp_path / "x.csv", {}, Layout(seq_separator=separator), "unix")
    assert history.tokens[history.codes].tolist() == ["1", "2", "2"]


def test_lists_without_their_separator_are_refused_with_it(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,items\na,1|2\nb,2\n")
    with refused(DataError, "'items'", "'1|2'", "'|'", "--seq_separator="):
        lines_of(tmp_path / "x.csv", tmp_path, order="file")


def test_values_in_brackets_are_refused_and_lines_may_have_lists(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f'user,item,time\na,"[1, 2]",{T}\nb,[3],{T}\n')
    with refused(DataError, "'item'", "'[1, 2]'", "','", "--seq_separator="):
        lines_of(tmp_path / "x.csv", tmp_path)
    (tmp_path / "x.txt").write_text("ann\tlamp,desk\nbob\tdesk\n")
    layout = Layout(separator="\t", seq_separator=",")
    found = lines_of(tmp_path / "x.txt", tmp_path, format="sequences", layout=layout, order="file")
    assert found == ["ann\tlamp\t1", "ann\tdesk\t2", "bob\tdesk\t1"]


def test_one_time_and_rating_beside_a_list_count_for_all_its_items(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f'user,items,score,time\na,"1,2","5,4",{T}\nb,"1,3",2,{T}\n')
    found = lines_of(tmp_path / "x.csv", tmp_path, layout=Layout(seq_separator=","), where="score != '2'")
    assert found == [f"a\t1\t5\t{T}", f"a\t2\t4\t{T}"]
    bad = f'user,items,time\na,"1,2",{T}\nb,"1,2,3","{T},{T}"\nc,1,{T}\n'
    (tmp_path / "x.csv").write_text(bad)
    with refused(DataError, "lines", "cannot"):
        lines_of(tmp_path / "x.csv", tmp_path, layout=Layout(seq_separator=","))


def test_lists_of_an_atomic_file_are_histories(tmp_path: Path) -> None:
    (tmp_path / "x.inter").write_text("user_id:token\titem_id_list:token_seq\na\t1 2\nb\t2\n")
    history = read_history_file(tmp_path / "x.inter", {})
    assert history.tokens[history.codes].tolist() == ["1", "2", "2"]
    assert history.offsets.tolist() == [0, 2, 3]


@pytest.mark.parametrize("indent", [None, 1])
def test_playlists_are_the_list_of_one_object(indent: int | None, tmp_path: Path) -> None:
    lists = [{"pid": 7, "tracks": [{"uri": "a"}, {"uri": "b"}]}, {"pid": 8, "tracks": [{"uri": "b"}]}]
    whole = {"info": {"version": "v1"}, "playlists": lists, **({"end": 1} if indent else {})}
    (tmp_path / "x.json").write_text(json.dumps(whole, indent=indent))
    layout = Layout(columns={"user_id": "pid", "item_id": "tracks.uri"})
    found = [line.split("\t")[:2] for line in lines_of(tmp_path / "x.json", tmp_path, layout=layout, order="file")]
    assert found == [["7", "a"], ["7", "b"], ["8", "b"]]


KEYS = st.sampled_from(["a", "b", "a.b", 'it"s', "o'x", "x/y", "~", "*", "0"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.sampled_from(["null", 'é\n"q', ""])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
OBJECT = st.dictionaries(KEYS, JSON, max_size=3)


def at(value: Any, key: str, *, entry: bool = False) -> Any:
    """Return the value at a dotted key; of a list, the values of its entries, which are objects."""
    if isinstance(value, list) and not entry:
        return [at(one, key, entry=True) for one in value]
    if not isinstance(value, dict):
        return None
    first, _, rest = key.partition(".")
    found = value.get(key)
    return at(value.get(first), rest) if found is None and rest else found


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.dictionaries(KEYS, JSON, max_size=3), min_size=1, max_size=4), st.lists(KEYS, min_size=2, max_size=3)
)
def test_dotted_keys_of_json_against_a_loop(objects: list[dict[str, Any]], keys: list[str]) -> None:
    """The whole key counts if an object has it, and then no part of it does."""
    key = ".".join(keys)
    found = _at_keys(pa.array([json.dumps(one) for one in objects]), {"item_id": key})[key].to_pylist()
    wanted = [one.get(key) for one in objects]
    if not any(value is not None for value in wanted):
        first, _, rest = key.partition(".")
        wanted = [at(one.get(first), rest) for one in objects]
    assert [None if text is None else json.loads(text) for text in found] == wanted
