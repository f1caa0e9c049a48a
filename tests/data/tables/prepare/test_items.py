"""The table of items, and returns."""

import datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.data.tables.prepare.items import read_items
from recbole_hyper.data.tables.prepare.pipeline import Prepared, prepare
from recbole_hyper.errors import DataError
from tests.raising import refused

T = 1_600_000_000


RAW = "user,item,time,qty\n" + "".join(f"{u},{i},{T + n},1\n" for n, (u, i) in enumerate(["ax", "bx", "ay"]))


def prepared(folder: Path, raw: str = RAW, changes: dict[str, object] | None = None, **options: object) -> Prepared:
    (folder / "raw.csv").write_text(raw)
    return prepare("mine", source=folder / "raw.csv", output=folder / "out", changes=changes, **options)  # type: ignore[arg-type]


def test_an_item_file_has_the_items_of_the_interactions_and_guessed_types(tmp_path: Path) -> None:
    raw = RAW + f'a,"q""z",{T},1\n'
    items = tmp_path / "items.csv"
    items.write_text(
        "sku,title,genres,price,vector,made,new\n"
        'x,"The Matrix, 1999",Action|Science Fiction,3.5,0.1 0.2,2019-01-31,yes\n'
        "x,second line,,,,,\n"
        '"q""z",A ""Toy"",Action|Drama,,1 2,2019-02-01,no\n'
        "other,Heat,Drama,1,,,no\n"
    )
    said: list[str] = []
    prepared(tmp_path, raw, items=items, say=said.append)
    lines = (tmp_path / "out" / "mine" / "mine.item").read_text().splitlines()
    assert lines == [
        "item_id:token\ttitle:token\tgenres:token_seq\tprice:float\tvector:float_seq\tmade:float\tnew:token",
        "x\tThe Matrix, 1999\tAction Science_Fiction\t3.5\t0.1 0.2\t1548892800\tyes",
        'q"z\tA Toy\tAction Drama\t\t1 2\t1548979200\tno',
    ]
    assert any("mine.item has 2 of 3 items" in line for line in said)
    assert "1 rows of items.csv repeat an item: its first row counts" in said


def test_columns_of_a_parquet_file_keep_their_types(tmp_path: Path) -> None:
    days = [datetime.date(1970, 1, 2), None]
    frame = pd.DataFrame({"item": ["x", "y"], "tags": [["a b", "c"], []], "vec": [[1.0, 2.0], None], "day": days})
    frame.to_parquet(tmp_path / "items.parquet")
    found = read_items(tmp_path / "items.parquet")
    assert found.columns == {
        "tags:token_seq": ["a_b c", ""],
        "vec:float_seq": ["1.0 2.0", ""],
        "day:float": ["86400", ""],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,price\nx,1\ny,2\n", "no column of item ids; its columns: name, price"),
        ("item,price\nother,1\nmore,2\n", "none of its ids occurs"),
        ("item,property,value\nx,brand,1\nx,color,2\n", "one row per item"),
        ("item,key,val\nx,brand,1\nx,color,2\n", "one row per item"),
    ],
)
def test_an_unusable_table_of_items(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text(text)
    with refused(DataError, message):
        prepared(tmp_path, items=tmp_path / "items.csv")
    with refused(DataError, "does not exist"):
        prepared(tmp_path, items=tmp_path / "nothing.csv")
    assert not (tmp_path / "out" / "mine" / "mine.inter").exists()


def test_an_item_file_of_others_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,price\nx,1\ny,2\n")
    (tmp_path / "out" / "mine").mkdir(parents=True)
    (tmp_path / "out" / "mine" / "mine.item").write_text("mine")
    with refused(DataError, "mine.item"):
        prepared(tmp_path, items=tmp_path / "items.csv")


def columns_of(path: Path, text: str) -> dict[str, list[str]]:
    path.write_text(text)
    return read_items(path).columns


def test_commas_that_may_be_decimal_make_no_pairs(tmp_path: Path) -> None:
    """19,99 was written as two numbers, and so was a whole column of prices with a point for the thousands."""
    text = 'sku,price\nx,"1,000"\ny,"-12,345.50"\n'
    assert columns_of(tmp_path / "x.csv", text) == {"price:token": ["1,000", "-12,345.50"]}
    text = 'sku,price,vector\nx,"19,99","0.5,1,2"\ny,"1.234,50","1,2,3"\nz,5,"0,0,1"\n'
    found = columns_of(tmp_path / "y.csv", text)
    assert found == {"price:token": ["19,99", "1.234,50", "5"], "vector:float_seq": ["0.5 1 2", "1 2 3", "0 0 1"]}
    # points alone are decimal
    assert columns_of(tmp_path / "z.csv", "sku;price\nx;1.234\ny;2.5\n") == {"price:float": ["1.234", "2.5"]}


def test_numbers_and_codes_of_items_are_written_as_they_are(tmp_path: Path) -> None:
    text = f"sku;price;code;big;pair;\nx;1.5;01234;{2**60 + 1};1,2;a\ny;NA;1234;3;x;b\nz;143.79;7;4;;c\n"
    assert columns_of(tmp_path / "x.csv", text) == {
        "price:float": ["1.5", "", "143.79"],
        "code:token": ["01234", "1234", "7"],
        "big:token": [str(2**60 + 1), "3", "4"],
        "pair:token": ["1,2", "x", ""],
        "column_6:token": ["a", "b", "c"],
    }


def test_declared_types_of_an_item_file_are_kept(tmp_path: Path) -> None:
    text = "item_id:token\tyear:token\tgenre:token_seq\tscore:float\nx\t1999\ta b\t1.50\ny\t2001\tc\t2\n"
    assert columns_of(tmp_path / "x.item", text) == {
        "year:token": ["1999", "2001"],
        "genre:token_seq": ["a b", "c"],
        "score:float": ["1.50", "2"],
    }


def test_lists_of_json_items_are_sequences(tmp_path: Path) -> None:
    text = '{"sku": 1, "tags": ["a b", "c"], "new": true}\n{"sku": 2, "tags": null, "new": false, "rare": "q"}\n'
    text = text.replace('"tags": [', '"about": {"brand": "x y", "upc": 1}, "path": [["p", "q"], ["r"]], "tags": [', 1)
    assert columns_of(tmp_path / "x.jsonl", text) == {
        "about:token": ["{ brand : x y , upc :1}", ""],
        "path:token_seq": ["p q r", ""],
        "tags:token_seq": ["a_b c", ""],
        "new:token": ["true", "false"],
        "rare:token": ["", "q"],
    }


def test_two_columns_that_get_one_name_are_refused(tmp_path: Path) -> None:
    with refused(DataError, "'a:b'", "'a_b'"):
        columns_of(tmp_path / "x.csv", "sku,a b,a:b\nx,1,2\ny,3,4\n")


def test_ids_of_items_beside_gaps_are_those_of_the_interactions(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("sku,year\n1.0,1999\n,2000\n2.0,2001\n")
    said: list[str] = []
    raw = f"user,sku,time\na,1,{T}\na,2,{T}\n"
    prepared(tmp_path, raw, items=tmp_path / "items.csv", say=said.append)
    assert "mine.item has 2 of 2 items, and the columns year:float" in said


def test_lists_of_booleans_are_words(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item_id": ["x", "y"], "flags": [[True, False], [False, True]]}), tmp_path / "i.parquet")
    assert read_items(tmp_path / "i.parquet").columns == {"flags:token_seq": ["True False", "False True"]}
