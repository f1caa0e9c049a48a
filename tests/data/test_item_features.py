"""Columns of .item files: against a line-by-line reader, against RecBole, and errors."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.item_features import ItemFeatures
from recbole_hyper.data.tables.inputs import read_table
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import FeatureDataset, SequenceDataset
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.data.tables.raw import T
from tests.raising import refused

NAMES = ["genres", "year", "price", "text"]
HEADER = "item_id:token\tgenres:token_seq\tyear:token\tprice:float\ttext:float_seq\n"
# i3 has no line, i4 no values, i1 has two lines, and other is no item of the interactions
LINES = """other\tx y z\t1900\t900\t9 9
i2\tb a\t1999\t2.5\t1 0.5
i1\ta\t2001\t1\t-1 2
i1\tb\t1999\t7\t0 0
i4\t\t\t\t
i0\ta c b\t1999\t4\t0.25 0
""" + "".join(f"i{item}\tc\t2001\t{item}\t{item} 1\n" for item in range(5, 12))


def features_of(folder: Path, names: list[str], text: str | None = HEADER + LINES, **keys: object) -> ItemFeatures:
    write_inter(folder, "cycle", cycle_rows())
    if text is not None:
        (folder / "cycle" / "cycle.item").write_text(text)
    settings = {**SMALL, "data_path": str(folder), "selected_features": names, **keys}
    found = SequenceDataset(Config("SASRecCE", "cycle", config_dict=settings))
    assert found.item_features is not None
    return found.item_features


def plain_rows(tokens: np.ndarray) -> list[list[str]]:
    """Return the line of each item number, [] where there is none: the first one counts."""
    lines = [line.split("\t") for line in LINES.splitlines()]
    return [next((line for line in lines if line[0] == token), []) for token in tokens]


def test_columns_equal_the_lines(tmp_path: Path) -> None:
    found = features_of(tmp_path, NAMES, feature_standardize=False)
    tokens = SequenceDataset(
        Config("SASRecCE", "cycle", config_dict={**SMALL, "data_path": str(tmp_path)})
    ).store.item_tokens
    rows = plain_rows(tokens)
    genres, year, price, text = (column.values for column in found.columns)
    names: dict[int, str] = {}
    for number, row in enumerate(rows):
        said = row[1].split() if row else []
        codes = [code for code in genres[number].tolist() if code]
        assert len(codes) == len(said)
        for code, name in zip(codes, said, strict=True):
            assert names.setdefault(code, name) == name  # one code for each name
        assert price[number, 0] == (float(row[3]) if row and row[3] else 0)
        assert text[number].tolist() == ([float(part) for part in row[4].split()] if row and row[4] else [0, 0])
    assert sorted(names.values()) == ["a", "b", "c"]
    said_years = [row[2] if row else "" for row in rows]
    assert [(one == other) for one in said_years for other in said_years] == [
        (one == other) for one in year[:, 0].tolist() for other in year[:, 0].tolist()
    ]
    assert {code == 0 for code, said in zip(year[:, 0], said_years, strict=True) if not said} == {True}
    assert [column.size for column in found.columns] == [4, 3, 1, 2]


def test_floats_are_standardized_over_the_items_with_a_value(tmp_path: Path) -> None:
    (price,) = features_of(tmp_path, ["price"]).columns
    rows = plain_rows(
        SequenceDataset(Config("Pop", "cycle", config_dict={"data_path": str(tmp_path)})).store.item_tokens
    )
    there = np.array([bool(row and row[3]) for row in rows])
    assert price.values[there].mean() == pytest.approx(0, abs=1e-6)
    assert price.values[there].std() == pytest.approx(1, abs=1e-6)
    assert not price.values[~there].any()


def test_codes_follow_the_items_and_not_the_lines(tmp_path: Path) -> None:
    lines = LINES.splitlines(keepends=True)
    other = "".join([lines[0], *[line for line in lines[:0:-1] if not line.startswith("i1\tb")]])
    first, second = features_of(tmp_path / "a", NAMES), features_of(tmp_path / "b", NAMES, HEADER + other)
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != features_of(tmp_path / "c", NAMES[:3]).fingerprint()
    assert first.fingerprint() != features_of(tmp_path / "d", NAMES, HEADER + LINES.replace("2.5", "2.6")).fingerprint()


def test_tokens_are_those_that_recbole_reads(tmp_path: Path) -> None:
    """RecBole numbers values in its own order: two items share a value in both or in none."""
    found = features_of(tmp_path, ["genres", "year"])
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "genres", "year"]}
    config = Config("SASRecF", "cycle", config_dict={"data_path": str(tmp_path), "load_col": columns})
    theirs = FeatureDataset(config)
    ours = SequenceDataset(Config("SASRecCE", "cycle", config_dict={**SMALL, "data_path": str(tmp_path)})).store
    for column in found.columns:
        values = theirs.item_feat[column.name].tolist()
        read = {token: values[number] for number, token in enumerate(theirs.field2id_token["item_id"]) if number}
        pairs = set()
        for number, token in enumerate(ours.item_tokens.tolist()):
            if token in read and number and plain_rows(np.array([token]))[0]:
                codes = [code for code in column.values[number].tolist() if code]
                said = np.atleast_1d(read[token]).tolist()
                pairs |= set(zip(codes, [code for code in said if code], strict=True))
        assert len(pairs) == column.size - 1 == len({one for one, _ in pairs}) == len({other for _, other in pairs})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    found = features_of(tmp_path / "data", NAMES)
    found.save(tmp_path / "kept")
    again = ItemFeatures.load(tmp_path / "kept")
    assert again.fingerprint() == found.fingerprint()
    assert [column.name for column in again.columns] == NAMES
    assert again.n_items == 13


@pytest.mark.parametrize(
    ("names", "text", "named"),
    [
        (["genre"], HEADER + LINES, "has no feature 'genre'; did you mean 'genres'?"),
        (["year", "year"], HEADER + LINES, "names a feature twice"),
        (["year"], None, "cycle.item does not exist"),
        (["year"], "movie:token\tyear:token\n", "no column item_id:token"),
        (["year"], "item_id:token\tyear:token\nother\t1\n", "no line of any of the 12 items"),
        (["year"], "item_id:token\tyear:token\n" + "".join(f"i{i}\t1999\n" for i in range(12)), "has 1 value over"),
        (["price"], "item_id:token\tprice:float\ni1\tnan\ni2\t\n", "fewer than two distinct values"),
        (["text"], "item_id:token\ttext:float_seq\ni1\t1 2\ni2\t1\n", "line 3"),
        (["text"], "item_id:token\ttext:float_seq\ni1\t1 nan\ni2\t1 2\n", "not a sequence of finite numbers"),
        (["price"], "item_id:token\tprice:float\ni1\t1.7e308\ni2\t-1.7e308\n", "too large for float32"),
    ],
)
def test_unusable_features_are_refused(names: list[str], text: str | None, named: str, tmp_path: Path) -> None:
    with refused(DataError, named):
        features_of(tmp_path, names, text)


def test_new_items_may_come_in_the_table_that_prepare_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,item,time\n" + "".join(f"u,i{n},{T + n}\n" for n in range(4)))
    rows = [
        "i0,Light|Dark Blue,A  B,0.5 1,2024-01-01",
        "i1,Light|Red,C,1 2,2024-01-02",
        "i2,Red|Dark Blue,C,1 3,",
        "i3,Red,,,",
    ]
    head = "item,tags,title,vector,day\n"
    (tmp_path / "items.csv").write_text(head + "\n".join(rows) + "\n")
    prepare("shop", source=tmp_path / "x.csv", items=tmp_path / "items.csv", output=tmp_path)
    settings = {**SMALL, "data_path": str(tmp_path), "selected_features": ["tags", "title", "vector", "day"]}
    features = SequenceDataset(Config("SASRecCE", "shop", config_dict=settings)).item_features
    assert features is not None
    again = features.extended(table := read_table(tmp_path / "items.csv"), " ")
    with refused(DataError, "'title' of type token needs one value"):
        features.extended(table.set_column(2, "title", pa.array([["a"]] * 4)), " ")
    for before, after in zip(features.columns, again.columns, strict=True):
        np.testing.assert_array_equal(after.values[5:], before.values[1:], before.name)
