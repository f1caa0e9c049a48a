"""Unreadable lines, and records that are the same wherever blocks end."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recbole_hyper.data.tables import parsers
from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Format, Layout
from recbole_hyper.data.tables.guess import quoted
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.errors import DataError
from tests.data.tables.raw import CASES, ROWS, Row, T, amazon_json, expected, lines, prepared, read_back, write_part
from tests.raising import refused


@pytest.mark.parametrize("size", [60, 1 << 20])
def test_values_over_several_lines(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes that do not open a value are text, and two in a row stand for one; records are counted, not lines."""
    lines = ['a,i,"x\ny, ""z""\n",1', 'b,"j\n",5 pipe,2', "c,k,,noon", '"d",l,"",4', "e,m", "f,n,,6"]
    raw = tmp_path / "my.csv"
    raw.write_text("user,item,text,time\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr(parsers, "BLOCK_BYTES", size)
    result = prepare("mine", source=raw, output=tmp_path, max_malformed=0.5)
    assert read_back(result) == [("a", "i", "1"), ("b", "j", "2"), ("d", "l", "4"), ("f", "n", "6")]
    assert [(line, reason.split(" in ")[0]) for line, reason, _ in result.malformed.examples] == [
        (4, "no time"),
        (6, "2 values instead of 4"),
    ]


@pytest.mark.parametrize("text", [b"\0", b'"', b"x"])
def test_a_record_without_an_end_is_refused_before_it_fills_the_memory(text: bytes, tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv.gz"
    raw.write_bytes(gzip.compress(b"user,item,time\n" + text * (40 << 20)))
    with refused(DataError, "raw.csv.gz"):
        prepare("mine", source=raw, output=tmp_path, layout=Layout(quoting="csv"), format="csv")


# line number -> line, for a file of which every other line is good
BROKEN: dict[str, tuple[Callable[[list[Row]], str], dict[int, str]]] = {
    "movielens-tab": (CASES["movielens-tab"][0], {2: "1\t2\t3", 3: "1\t2\t5\tx", 5: "\t2\t3\t978300760"}),
    "movielens-dat": (CASES["movielens-dat"][0], {1: "1::2::3::4::5", 4: "1::2::3::noon"}),
    "amazon-json": (amazon_json, {2: '{"reviewerID": "A1", "asin"', 4: "[1]", 6: '{"reviewerID": "A", "asin": "B"}'}),
    "gowalla": (CASES["gowalla"][0], {3: "u\t2010-13-19T23:55:27Z\t1\t2\tp"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_lines_are_counted_numbered_and_left_out(name: str, tmp_path: Path) -> None:
    write, broken = BROKEN[name]
    lines = write(ROWS).splitlines()
    for number, line in broken.items():
        lines.insert(number - 1, line)
    raw = tmp_path / "raw"
    raw.write_text("\n".join(lines) + "\n")
    result = prepare("mine", source=raw, format=name, output=tmp_path, max_malformed=0.5)
    assert result.malformed.count == len(broken)
    assert sorted(number for number, _, _ in result.malformed.examples) == sorted(broken)
    assert read_back(result) == expected(ROWS, CASES[name][2])
    with refused(DataError, f"{len(broken)} of {len(lines)} lines", "line "):
        prepare("mine", source=raw, format=name, output=tmp_path, max_malformed=0.01)


@pytest.mark.parametrize(("line", "named"), [("a,b,c,1", "no column 2"), ("a\tb\t1\tnoon", "line 1: no time")])
def test_a_file_of_another_format_is_refused(line: str, named: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text(f"{line}\n" * 30_000)
    with refused(DataError, named):
        prepare("mine", source=raw, format="movielens-tab", output=tmp_path)


def test_rows_that_cannot_be_read_are_named_with_their_part(tmp_path: Path) -> None:
    write_part(tmp_path / "in" / "0.parquet", ["a", None, "b"], ["x", "y", "z"], [1, 2, 3])
    write_part(tmp_path / "in" / "1.parquet", ["a", "b"], ["x", " "], ["5", "6"])
    result = prepare("mine", source=tmp_path / "in", output=tmp_path, max_malformed=0.5)
    assert lines(result) == ["a\tx\t1", "a\tx\t5", "b\tz\t3"]
    assert [(line, reason.split(" in ")[0]) for line, reason, _ in result.malformed.examples] == [
        (2, "0.parquet: no user"),
        (2, "1.parquet: no item"),
    ]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_quote_inside_a_value_does_not_swallow_lines(separator: str, tmp_path: Path) -> None:
    lines = ["user,item,time", f'a,5" disk,{T}', f'"b,c,{T}', f"d,e,{T}", f"h,i,{T}"]
    rows, said = prepared("\n".join(lines).replace(",", separator) + "\n", tmp_path)
    assert [row[1] for row in rows] == ['5" disk', "c", "e", "i"]
    assert "--quoting=none" in said[0]


def test_quoting_can_be_set(tmp_path: Path) -> None:
    text = f'user,item,time\n"a",b,{T}\n'
    assert prepared(text, tmp_path)[0][0][0] == "a"
    assert prepared(text, tmp_path, format="csv", layout=Layout(quoting="none"))[0][0][0] == '"a"'
    with refused(DataError, "'some'", "quoting="):
        prepared(text, tmp_path, format="csv", layout=Layout(quoting="some"))
    with refused(DataError, "--quoting=none"):
        prepared(f'user,item,time\n"a,b,{T}\nc,d,{T}\n', tmp_path, format="csv", layout=Layout(quoting="csv"))


def test_carriage_returns(tmp_path: Path) -> None:
    rows, _ = prepared(f"user,item,time\ra,x,{T}\rb,y,{T}\r", tmp_path)
    assert [row[0] for row in rows] == ["a", "b"]
    with refused(DataError, r"the id 'x\ny'"):
        prepared(f'user,item,time\ra,"x\ny",{T}\rb,y,{T}\r', tmp_path)
    with refused(DataError, "line 2", "values instead of 3"):
        prepared(f"user,item,time\na\rb,x,{T}\n", tmp_path)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(st.text('a,\n"\r', max_size=5), min_size=2, max_size=2), min_size=1, max_size=5))
def test_records_are_those_of_the_csv_module(rows: list[list[str]], tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    form = Format(kind="csv", separator=",", names=["a", "b"], columns={"a": "a", "b": "b"}, quoting="csv")
    found = [record for batch in parsers.pieces(SourceFile(tmp_path / "x.csv"), form) for record in zip(
        *(batch.columns[name].to_pylist() for name in "ab"), strict=True)]  # fmt: skip
    assert [[value.decode() for value in record] for record in found[1:]] == rows
    assert quoted((tmp_path / "x.csv").read_bytes(), ",", complete=True)


@pytest.mark.parametrize("text", ['a,"b c\n', 'a,b\nc,"d\ne"f,g\n'])
def test_quotes_that_are_text(text: str) -> None:
    assert not quoted(text.encode(), ",", complete=True)


def test_the_share_of_unreadable_rows_is_among_those_that_meet_the_condition(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    rows = ["u,i,1700000000,view"] * 300 + ["u,i,noon,buy", "u,i,1700000000,buy", "u,j,1700000000,buy"]
    raw.write_text("user,item,time,event\n" + "\n".join(rows))
    with refused(DataError, "33%"):
        prepare("mine", source=raw, output=tmp_path, where="event = 'buy'", max_malformed=0.1)
    assert prepare("mine", source=raw, output=tmp_path, where="event = 'view'", max_malformed=0.0).malformed.count == 0
    raw.write_text("user,item,time,event\n" + "\n".join([*rows[:300], "u,i", *rows[-2:]]))  # a line without an event
    assert prepare("mine", source=raw, output=tmp_path, where="event = 'buy'", max_malformed=0.1).malformed.count == 1
