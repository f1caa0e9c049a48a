"""Atomic files: any text comes back unchanged, or one error names the file and the line."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.data.tables.atomic import read_atomic
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import FeatureDataset, SequenceDataset
from tests.conftest import HEADER, SMALL, cycle_rows, write_inter
from tests.raising import refused

COLUMNS = {"user_id": "token", "item_id": "token", "timestamp": "float"}
IDS = ("user_id", "item_id")
ITEMS = "item_id:token\tkind:token\twords:token_seq\tprice:float\n"

# what readers of text are known to take for something else
AWKWARD = [
    "NA",
    "null",
    "nan",
    "None",
    "-nan",
    '"',
    '"a',
    'a"',
    "''",
    "\\",
    "\\N",
    "#",
    "#a",
    " ",
    " a ",
    "é",
    "\ufeff",
]
AWKWARD += ["\u2028", "\u2029", "\x85", "a\x0bb", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "0", "00", "1.0", "9" * 40]
REFUSED = ["", "a\tb", "a\rb", "\r", "a\x00", "[PAD]"]
token = st.one_of(st.text(st.characters(codec="utf-8"), max_size=6), st.sampled_from(AWKWARD + REFUSED))
good = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1, max_size=6),
    st.sampled_from(AWKWARD),
).filter(lambda text: text != "[PAD]")


def written(path: Path, rows: Sequence[tuple], first: str = HEADER, end: str = "\n") -> Path:
    """Write rows as another program would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(first.replace("\n", end) + "".join("\t".join(map(str, row)) + end for row in rows))
    return path


def dataset(path: Path, **keys: object) -> SequenceDataset:
    """Read path/d/d.inter with the features of path/d/d.item, where they are wanted."""
    return SequenceDataset(Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(path), **keys}))


def with_items(path: Path, text: str) -> SequenceDataset:
    write_inter(path, "d", cycle_rows())
    (path / "d" / "d.item").write_text(text, encoding="utf-8", newline="")
    columns = {"inter": list(COLUMNS), "item": ["item_id", "kind", "words", "price"]}
    return FeatureDataset(Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(path), "load_col": columns}))


def stored(data: SequenceDataset) -> list[tuple[str, str, float]]:
    """Return the interactions of a store, user by user in order of appearance."""
    store = data.store
    users = store.user_tokens[store.users[store.row_of]]
    return list(zip(users.tolist(), store.item_tokens[store.items].tolist(), store.times.tolist(), strict=True))


def sequences(rows: Sequence[tuple]) -> list[tuple]:
    """Return rows user by user in order of appearance, each user's in stable time order."""
    users = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: (users.index(row[0]), row[2]))


def readable(token: str) -> bool:
    return token not in ("", "[PAD]") and not set(token) & set("\t\n\r\0")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Return the configuration of a data set "d" that every example writes again."""
    folder = write_inter(tmp_path_factory.mktemp("data"), "d", cycle_rows())
    return Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(folder)})


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(good, good, st.integers(0, 5)), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"])
)
@example(rows=[(name, name[::-1], 1) for name in AWKWARD], end="\n")
@example(rows=[("\ufeffu", "i", 1)], end="\n")
def test_any_ids_come_back_in_the_store(rows: list[tuple], end: str, config: Config) -> None:
    rows = [*rows, ("u", "i1", 1), ("u", "i2", 1)]
    written(Path(config["data_path"]) / "d.inter", rows, end=end)
    data = SequenceDataset(config)
    assert stored(data) == sequences(rows)
    order = list(dict.fromkeys(row[1] for row in rows))
    assert data.field2id_token["item_id"].tolist() == ["[PAD]", *order]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(token, token, token), min_size=1, max_size=5))
@example(rows=[("a", "b", "c\r")])
@example(rows=[("a", "b", "\n")])
@example(rows=[("a", "", "\n\tb\t1")])
def test_any_text_comes_back_or_is_one_error_with_a_line(rows: list[tuple], tmp_path: Path) -> None:
    columns = {"user_id": "token", "item_id": "token", "last": "token"}
    path = written(tmp_path / "d.inter", rows, "user_id:token\titem_id:token\tlast:token\n")
    if not all(readable(value) for row in rows for value in row):
        try:
            frame = read_atomic(path, columns, ids=columns)
        except DataError as error:
            message = str(error)
            assert re.search(r"d\.inter.* line \d+", message, re.DOTALL)
            return
    else:
        frame = read_atomic(path, columns, ids=columns)
    # the file's own lines and values: a token that holds a line feed or a tab is more than one
    lines = re.split("\r\n?|\n", "".join("\t".join(row) + "\n" for row in rows))
    rows = [tuple(line.split("\t")) for line in lines if line.strip("\t")]
    assert list(frame.itertuples(index=False, name=None)) == rows
    assert (frame.index + 2).tolist() == [number for number, line in enumerate(lines, start=2) if line.strip("\t")]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("u\ti\tx\t1", ("4 values",)),
        ("u\ti\t1\t", ("4 values",)),
        ("u\ti", ("2 values",)),
        ("i", ("1 values",)),
        ("\ti\t1", ("'user_id'", "null or empty")),
        ("u\t\t1", ("'item_id'", "null or empty")),
        ("u\t[PAD]\t1", ("'item_id'", "padding")),
        ("u\ti\r\t1", ("2 values",)),
        ("u\ti\0\t1", ("NUL",)),
        *(
            (f"u\ti\t{text}", (f"'{text}'", "'timestamp'"))
            for text in ("noon", "2019-01-02", "1_0", "inf", "1e999", "nan")
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: str, named: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path / "d" / "d.inter", cycle_rows())
    lines = path.read_text().split("\n")
    # a blank line before it is passed over and counted
    path.write_bytes("\n".join([*lines[:2], "", line, *lines[2:]]).encode())
    with refused(DataError, "d.inter", "line 4", *named):
        dataset(tmp_path)


def test_numbers_in_unusual_forms(tmp_path: Path) -> None:
    texts = ["+1", " 2", "3.", ".5", "1e3", "-0", "0.1", "", "null", "123456789012345678"]
    path = written(tmp_path / "d.inter", [("u", "i", text) for text in texts])
    expected = [1, 2, 3, 0.5, 1000, 0, 0.1, np.nan, np.nan, 123456789012345678.0]
    np.testing.assert_array_equal(read_atomic(path, COLUMNS, ids=IDS)["timestamp"], expected)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows(), "\ufeff" + HEADER)
    assert len(dataset(tmp_path).store.items) == 300


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "d" / "d.inter"
    path.parent.mkdir()
    path.write_bytes((HEADER + "Zoë\tä\t1\nZoë\tö\t2\n").encode(encoding))
    assert sorted(dataset(tmp_path, encoding=encoding).store.item_tokens[1:]) == ["ä", "ö"]
    assert sorted(dataset(tmp_path).store.item_tokens[1:]) == ["ä", "ö"]  # guessed
    with pytest.raises(DataError, match=r"d\.inter.*(--encoding|not 'name:type')"):
        dataset(tmp_path, encoding="utf-16" if encoding != "utf-16" else "ascii")


@pytest.mark.parametrize("text", ["", "\n", HEADER, HEADER + "\n\r\n"])
def test_a_file_without_interactions(text: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "d.inter").write_bytes(text.encode())
    with pytest.raises(DataError, match=r"d\.inter.*(first line is empty|has no interactions)"):
        dataset(tmp_path)


def test_a_separator_of_several_characters(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    text = HEADER + "".join(f"u\tx{n}\t{n}\n" for n in range(4))
    (tmp_path / "d" / "d.inter").write_text(text.replace("\t", "::"))
    store = dataset(tmp_path, field_separator="::").store
    assert store.item_tokens[1:].tolist() == [f"x{n}" for n in range(4)]


def test_quotation_marks_in_a_file_of_items_join_no_lines(tmp_path: Path) -> None:
    body = "".join(f'i{n}\t"kind {n % 2}\t"a b{n}\t{n}\n' for n in range(12))
    data = with_items(tmp_path, ITEMS + body)
    assert (data.item_feat["price"][1:] == np.arange(12)).all()
    assert data.field2id_token["kind"].tolist() == ["[PAD]", '"kind 0', '"kind 1']
    assert [len(words) for words in data.item_feat["words"]] == [0, *[2] * 12]


def test_features_that_are_missing_stay_missing_and_ids_are_text(tmp_path: Path) -> None:
    body = "".join(f"i{n}\t{['', 'NA', 'x'][n % 3]}\t{'' if n else 'null'}\t{n or ''}\n" for n in range(12))
    data = with_items(tmp_path, ITEMS + body + "NA\tx\tw\t1\n")
    assert data.item_feat["kind"].tolist() == [0, *[0, 0, 1] * 4, 1]
    assert data.item_feat["price"].iloc[1] == pytest.approx(np.mean([*range(1, 12), 1]))
    assert data.field2id_token["item_id"][13] == "NA"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("i1\tx", "line 3: 2 values instead of 4"),
        ("i1\tx\ty\tz\t1", "line 3: 5 values"),
        ("\tx\ty\t1", "line 3: '' in 'item_id' is null or empty"),
        ("i1\tx\ty\tdear", "line 3: 'dear' in 'price'"),
        ("i1\tx\ty\t-inf", "line 3: '-inf' in 'price'"),
    ],
)
def test_a_line_of_a_file_of_items_that_cannot_be_used(line: str, message: str, tmp_path: Path) -> None:
    with refused(DataError, "d.item", message):
        with_items(tmp_path, ITEMS + f"i0\tx\ty\t1\n{line}\n")


def test_sequences_of_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "d.item", [("a", "1 2.5"), ("b", ""), ("c", "3  4")], "item_id:token\tv:float_seq\n")
    columns = {"item_id": "token", "v": "float_seq"}
    assert [value.tolist() for value in read_atomic(path, columns)["v"]] == [[1, 2.5], [], [3, 4]]
    written(path, [("a", "1 2"), ("b", "1 two")], "item_id:token\tv:float_seq\n")
    with refused(DataError, "'1 two'", "'v'", "d.item"):
        read_atomic(path, columns)
