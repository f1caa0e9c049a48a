"""The recipes of examples/convert/ make tables that prepare reads."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.tables.raw import lines_of

FOLDER = Path(__file__).parents[2] / "examples" / "convert"
BEER = "beer/beerId: {0}\nreview/time: {1}\nreview/profileName: {2}\nreview/overall: 4\n\n"
T = 1_600_000_000


@pytest.mark.parametrize(
    ("recipe", "text", "between", "target", "expected"),
    [
        ("dictionaries", f"{{u'user': u'it\\'s', u'item': 'x', 'time': {T}}}\n", [], "x.jsonl", [f"it's\tx\t{T}"]),
        ("records", BEER.format(7, T, "ann") + BEER.format(8, T, "bob"), [], "beeradvocate.jsonl",
         [f"ann\t7\t4\t{T}", f"bob\t8\t4\t{T}"]),
        ("mind", "1\tU1\t11/15/2019 8:55:22 AM\tN1\tN3-0 N4-1 N5-1\n2\tU2\t11/15/2019 9:00:00 PM\t\tN3-0\n", [],
         "x.csv", ["U1\tN4\t1573808122", "U1\tN5\t1573808122"]),
        ("rows_in_object", f'{{"info": {{}}, "rows": [{{"user": 1, "item": "x", "time": {T}}}]}}', ["rows"], "x.jsonl",
         [f"1\tx\t{T}"]),
        ("rows_in_object", f'[{{"user": 1, "item": "x", "time": {T}}}]\n[{{"user": 2, "item": "x", "time": {T}}}]',
         ["-"], "x.jsonl", [f"1\tx\t{T}", f"2\tx\t{T}"]),
    ],
)  # fmt: skip
def test_recipes(recipe: str, text: str, between: list[str], target: str, expected: list[str], tmp_path: Path) -> None:
    source = tmp_path / ("x.gz" if recipe in ("dictionaries", "records") else "x.txt")
    source.write_bytes(gzip.compress(text.encode()) if source.suffix == ".gz" else text.encode())
    convert(recipe, source, *between, tmp_path / target)
    assert lines_of(tmp_path / target, tmp_path) == expected


def convert(recipe: str, *arguments: object) -> None:
    assert len((FOLDER / f"{recipe}.py").read_text().splitlines()) <= 15
    subprocess.run([sys.executable, FOLDER / f"{recipe}.py", *map(str, arguments)], check=True)


def test_lists(tmp_path: Path) -> None:
    rows = [f"a,\"['1', '2']\",\"[{T}, {T + 9}]\"", f"b,[2],{T}"]
    (tmp_path / "raw.csv").write_text("user,items,times\n" + "\n".join(rows) + "\n")
    convert("lists", tmp_path / "raw.csv", tmp_path / "x.csv", ",", "items", "times")
    assert lines_of(tmp_path / "x.csv", tmp_path) == [f"a\t1\t{T}", f"a\t2\t{T + 9}", f"b\t2\t{T}"]


def test_netflix(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("1:\n7,3,2005-09-06\n8,5,2005-09-05\n")
    (tmp_path / "2.txt").write_text("22:\n7,4,2005-09-04\n")
    convert("netflix", tmp_path / "x.csv", tmp_path / "1.txt", tmp_path / "2.txt")
    found = [line.split("\t")[:3] for line in lines_of(tmp_path / "x.csv", tmp_path)]
    assert found == [["7", "22", "4"], ["7", "1", "3"], ["8", "1", "5"]]


@pytest.mark.parametrize(
    ("columns", "values", "expression", "order", "seconds"),
    [
        ("Day,Clock", "2020-09-13,12:26:40", "Day || ' ' || Clock", [], T),
        ("year,month,day", "2020,9,14", "make_date(year, month, day)", ["year desc"], 1_600_041_600),
        ("ticks", "637355680000000000", "make_timestamp((ticks - 621355968000000000) // 10)", [], 1_599_971_200),
    ],
)
def test_times(columns: str, values: str, expression: str, order: list[str], seconds: int, tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(f"user,item,{columns}\na,x,{values}\n")
    convert("times", tmp_path / "raw.csv", tmp_path / "x.csv", expression, *order)
    assert lines_of(tmp_path / "x.csv", tmp_path) == [f"a\tx\t{seconds}"]


def test_one_time_for_an_order(tmp_path: Path) -> None:
    rows = [f"a,x,1,{T}", f"a,y,1,{T + 60}", f"a,z,2,{T + 90}"]
    (tmp_path / "raw.csv").write_text("user,item,order_id,clock\n" + "\n".join(rows) + "\n")
    convert("times", tmp_path / "raw.csv", tmp_path / "x.csv", "min(clock) over (partition by order_id)")
    assert lines_of(tmp_path / "x.csv", tmp_path) == [f"a\tx\t{T}", f"a\ty\t{T}", f"a\tz\t{T + 90}"]
