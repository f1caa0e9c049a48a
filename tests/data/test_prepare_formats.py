"""Every published raw format, written small and read back; malformed lines; archives; names of published files."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data import blocks as blocks_module
from recbole_hyper.data.blocks import Malformed, blocks
from recbole_hyper.data.formats import Format, Layout, find, formats
from recbole_hyper.data.ids import Tokens
from recbole_hyper.data.interactions import joined
from recbole_hyper.data.parsers import PARSERS, Rows
from recbole_hyper.data.prepare import public
from recbole_hyper.data.prepare.pipeline import Prepared, choose, prepare
from recbole_hyper.data.tables import check
from recbole_hyper.errors import DataError

Row = tuple[str, str, float, int]

DAY = 86_400
# midnights, so that formats with dates alone hold them too; users and items as awkward as the sources have them
ROWS: list[Row] = [
    ("A1REVIEWER0001", "B00AAAAAAA", 5.0, 17_000 * DAY),
    ("A2REVIEWER0002", "B00BBBBBBB", 3.5, 16_999 * DAY),
    ("A1REVIEWER0001", "B00CCCCCCC", 4.0, 16_998 * DAY),
    ("A2REVIEWER0002", "B00AAAAAAA", 1.0, 16_999 * DAY),
    ("A3REVIEWER0003", "0001234567", 2.0, 16_000 * DAY),
    ("A1REVIEWER0001", "B00BBBBBBB", 4.5, 16_998 * DAY),
]
NAMES = ["o'neil", 'the "best"', "Zoë", "back\\slash", "NA", "null"]
AWKWARD: list[Row] = [(NAMES[n % 6], f"{n % 4}", 1.0 + n % 5, (15_000 + n * 7 % 5) * DAY) for n in range(24)]


def date(time: int, form: str = "%Y-%m-%d") -> str:
    return datetime.datetime.fromtimestamp(time, datetime.UTC).strftime(form)


def python_line(row: dict[str, object]) -> str:
    """The old Python 2 way of printing a dictionary: u'...' for text."""
    return "{" + ", ".join(f"u{k!r}: " + ("u" if isinstance(v, str) else "") + repr(v) for k, v in row.items()) + "}"


def amazon_json(rows: list[Row]) -> str:
    lines = []
    for user, item, rating, time in rows:
        review = {"reviewerID": user, "asin": item, "helpful": [0, 1], "reviewText": 'said "no"\n{', "overall": rating}
        lines.append(json.dumps({**review, "style": {"Size:": " 5"}, "unixReviewTime": time}))
    return "\n".join(lines) + "\n"


def yelp(rows: list[Row]) -> str:
    forms = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d"]
    return "".join(
        json.dumps({"review_id": "r", "user_id": u, "business_id": i, "stars": r, "text": "é", "date": date(t, form)})
        + "\n"
        for (u, i, r, t), form in zip(rows, forms * len(rows), strict=False)
    )


def beer(u: str, i: str, r: float, t: int) -> dict[str, str]:
    text = "{'review/time': '1', 'beer/beerId': '2'}, it's \"so\" good"
    head = {"beer/name": "Zoë's", "beer/beerId": i, "beer/ABV": "", "review/overall": f"{r}", "review/time": f"{t}"}
    return {**head, "review/profileName": u, "review/text": text}


def beer_txt(rows: list[Row]) -> str:
    records = ("".join(f"{key}: {value}\n" for key, value in beer(*row).items()) for row in rows)
    return "\n".join(records) + "\n"


def beer_csv(rows: list[Row]) -> str:
    head = "brewery_id,brewery_name,review_time,review_overall,review_profilename,beer_beerid\n"
    quoted = ((u.replace('"', '""'), i, r, t) for u, i, r, t in rows)
    return head + "".join(f'1,"A, ""B""\nC",{t},{r},"{u}",{i}\n' for u, i, r, t in quoted)


def steam(rows: list[Row]) -> str:
    def line(u: str, i: str, t: int) -> str:
        early = {"username": u, "hours": 0.1, "products": 41, "product_id": i, "page_order": 0, "date": date(t)}
        return python_line({**early, "text": "u'product_id': u'9', \"x\" it's", "early_access": False, "page": 1})

    return "".join(line(u, i, t) + "\n" for u, i, _, t in rows)


CASES: dict[str, tuple[Callable[[list[Row]], str], list[Row], bool]] = {
    "movielens-tab": (lambda rows: "".join(f"{u}\t{i}\t{r:g}\t{t}\n" for u, i, r, t in rows), ROWS, True),
    "movielens-dat": (lambda rows: "".join(f"{u}::{i}::{r:g}::{t}\n" for u, i, r, t in rows), ROWS, True),
    "movielens-csv": (
        lambda rows: "userId,movieId,rating,timestamp\r\n" + "".join(f"{u},{i},{r},{t}\r\n" for u, i, r, t in rows),
        ROWS,
        True,
    ),
    "amazon-json": (amazon_json, ROWS, True),
    "amazon-ratings-2014": (lambda rows: "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows), ROWS, True),
    "amazon-ratings-2018": (lambda rows: "".join(f"{i},{u},{r},{t}\n" for u, i, r, t in rows), ROWS, True),
    "yelp": (yelp, AWKWARD, True),
    "gowalla": (
        lambda rows: "".join(f"{u}\t{date(t, '%Y-%m-%dT%H:%M:%SZ')}\t30.23\t-97.79\t{i}\n" for u, i, _, t in rows),
        ROWS,
        False,
    ),
    "behance": (lambda rows: "".join(f"{u} {i} {t}\n" for u, i, _, t in rows), ROWS, False),
    "beeradvocate": (lambda rows: "".join(f"{beer(*row)!r}\n" for row in rows), AWKWARD, True),
    "beeradvocate-txt": (beer_txt, AWKWARD, True),
    "beeradvocate-csv": (beer_csv, AWKWARD, True),
    "steam": (steam, AWKWARD, False),
}


def read_back(result: Prepared) -> list[tuple[str, ...]]:
    header, *lines = result.path.read_text().splitlines()
    fields = [field.split(":")[0] for field in header.split("\t")]
    assert fields == ["user_id", "item_id", "rating", "timestamp"] or fields == ["user_id", "item_id", "timestamp"]
    return [tuple(line.split("\t")) for line in lines]


def escaped(token: str) -> str:
    return {"NA": "%4EA", "null": "%6Eull"}.get(token, token.replace('"', "%22"))


def expected(rows: list[Row], rated: bool) -> list[tuple[str, ...]]:
    """Users in order of appearance, times in order within each, ties in the file's order."""
    users = list(dict.fromkeys(row[0] for row in rows))
    ordered = sorted(rows, key=lambda row: (users.index(row[0]), row[3]))
    return [(escaped(u), i, *([f"{r:g}"] if rated else []), str(t)) for u, i, r, t in ordered]


@pytest.mark.parametrize("name", CASES)
def test_format_is_read_as_published(name: str, tmp_path: Path) -> None:
    write, rows, rated = CASES[name]
    raw = tmp_path / "raw.gz"
    raw.write_bytes(gzip.compress(write(rows).encode()))
    result = prepare("mine", source=raw, format=name, output=tmp_path)
    assert result.malformed.count == 0
    assert read_back(result) == expected(rows, rated)


def test_every_format_has_a_case_here() -> None:
    assert set(formats()) == {*CASES, "mind", "csv", "jsonl", "parquet", "sequences", "atomic"}


def test_tokens_that_recbole_would_misread_survive_its_reader(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    raw = tmp_path / "raw"
    raw.write_text(steam(AWKWARD))
    path = prepare("mine", source=raw, format="steam", output=tmp_path).path
    # RecBole's own call
    frame = pd.read_csv(path, delimiter="\t", dtype={"user_id:token": str}, engine="python")
    assert not frame["user_id:token"].isna().any()
    assert sorted(frame["user_id:token"].unique()) == sorted({escaped(name) for name in NAMES})


def test_prepared_names_come_back_in_the_store(tmp_path: Path) -> None:
    from recbole_hyper.config import Config
    from recbole_hyper.data.dataset import SequenceDataset

    names = [*NAMES, "[PAD]", "None", "#", "a\u2028b", "a\x85b", "\\"]
    raw = tmp_path / "raw"
    raw.write_text("".join(python_line({"username": n, "product_id": n, "date": date(DAY)}) + "\n" for n in names))
    prepare("mine", source=raw, format="steam", output=tmp_path)
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})).store
    # all but the name of padding
    assert store.item_tokens[1:].tolist() == [{"[PAD]": "%5BPAD]"}.get(name, name) for name in names]


CSV_LAYOUT = Layout(columns={"user_id": "who", "item_id": "what", "timestamp": "when", "rating": "stars"})


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
    assert result.positions
    assert read_back(result) == [
        ("7", "30", "1"),
        ("7", "10", "2"),
        ("7", "20", "3"),
        ("3", "10", "1"),
        ("5", "20", "1"),
        ("5", "30", "2"),
    ]


def test_a_user_with_two_sequences_is_refused(tmp_path: Path) -> None:
    raw = tmp_path / "my.txt"
    raw.write_text("7 30 10\n3 10\n7 40\n")
    with pytest.raises(DataError, match="user '7' has more than one line"):
        prepare("mine", source=raw, format="sequences", output=tmp_path)


def test_atomic_file_is_checked_and_copied(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    body = "".join(f"{t}\t{i}\t{u}\n" for u, i, _, t in ROWS)
    (folder / "amazon-beauty.inter").write_text("timestamp:float\titem_id:token\tuser_id:token\r\n" + body)
    result = prepare("amazon-beauty", source=folder, output=tmp_path / "dataset")
    assert result.path == tmp_path / "dataset" / "amazon-beauty" / "amazon-beauty.inter"
    assert read_back(result) == expected(ROWS, False)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("user_id\titem_id\ttimestamp", "header entry 'user_id' is not 'name:type'"),
        ("user_id:token\titem_id:token\twhen:float", "no column timestamp; its columns: user_id, item_id, when"),
        (
            "user_id:token\titem_id:token\titem_id:token\ttimestamp:float",
            "line 1: two columns have the same name, 'item_id'",
        ),
        ("user_id:token\titem_id:token\ttimestamp:token", "'timestamp' is of type 'token'; expected 'float'"),
    ],
)
def test_a_wrong_atomic_header_is_refused(header: str, message: str, tmp_path: Path) -> None:
    raw = tmp_path / "x.inter"
    raw.write_text(f"{header}\n1\t2\t3\n")
    with pytest.raises(DataError, match=message):
        prepare("mine", source=raw, output=tmp_path)


# line number -> line, for a file of which every other line is good
BROKEN: dict[str, tuple[Callable[[list[Row]], str], dict[int, str]]] = {
    "movielens-tab": (CASES["movielens-tab"][0], {2: "1\t2\t3", 3: "1\t2\tx\t978300760", 5: "\t2\t3\t978300760"}),
    "movielens-dat": (CASES["movielens-dat"][0], {1: "1::2::3::4::5", 4: "1::2::3::noon"}),
    "amazon-json": (amazon_json, {2: '{"reviewerID": "A1", "asin"', 4: "[1]", 6: '{"reviewerID": "A", "asin": "B"}'}),
    "gowalla": (CASES["gowalla"][0], {3: "u\t2010-13-19T23:55:27Z\t1\t2\tp"}),
    "steam": (steam, {1: "not a dictionary", 5: "{u'username': u'x', u'date': u'2018-01-01'}"}),
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
    with pytest.raises(DataError, match=rf"{len(broken)} of {len(lines)} lines cannot be read.*(?s:.*)line "):
        prepare("mine", source=raw, format=name, output=tmp_path, max_malformed=0.01)


def test_bytes_that_are_no_utf8_count_as_malformed(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_bytes(b"u1\ti\t1\t1\nu\xff\ti\t1\t1\nu2\ti\t1\t1\n" + 2 * "é\té\t1\t1\n".encode())
    result = prepare("mine", source=raw, format="movielens-tab", output=tmp_path, max_malformed=0.5)
    assert [number for number, _, _ in result.malformed.examples] == [2]
    assert result.statistics.users == 3


@pytest.mark.parametrize(
    ("line", "reason"), [("a,b,c,1", "1 values instead of 4: 'a,b,c,1'"), ("a\tb\t1\tnoon", "no time: .*noon")]
)
def test_a_file_of_another_format_is_given_up_early(line: str, reason: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text(f"{line}\n" * 30_000)
    with pytest.raises(DataError, match=rf"lines cannot be read(?s:.*)line 1: {reason}"):
        prepare("mine", source=raw, format="movielens-tab", output=tmp_path)


def parsed(name: str, data: str, size: int) -> tuple[list[tuple[str, str, int]], Malformed]:
    """Return user, item and line of all rows of a text cut into blocks of ``size`` bytes."""
    form, rows, malformed = find(name), [], Malformed("raw")
    end = b"\n\n" if form.kind == "records" else b"\n"
    for block in blocks(io.BytesIO(data.encode()), "raw", end=end, quotes="," * (form.kind == "csv"), size=size):
        found = PARSERS[form.kind](block, form, malformed)
        columns = [found.columns[field].to_pylist() for field in ("user_id", "item_id")]
        texts = [[v.decode() if isinstance(v, bytes) else v for v in column] for column in columns]
        rows += [(u.strip(), i.strip(), int(n)) for u, i, n in zip(*texts, found.lines, strict=True)]
    return rows, malformed


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_small_blocks_give_the_same_rows_and_line_numbers(size: int) -> None:
    """Blocks end anywhere: in the middle of lines, values and double colons."""
    rows, malformed = parsed("movielens-dat", "1::10::5::100\n\nbad\n22::20::4::200\n1::30\n333::30::3::300\n", size)
    assert rows == [("1", "10", 1), ("22", "20", 4), ("333", "30", 6)]
    assert sorted(number for number, _, _ in malformed.examples) == [3, 5]


@pytest.mark.parametrize("size", [5, 64, 1 << 20])
def test_blocks_of_whole_lines_put_together_are_the_file(size: int) -> None:
    data = b"".join(b"%d:%s\n" % (n, b"x" * (n % 17)) for n in range(200)) + b"no end"
    seen = list(blocks(io.BytesIO(data), "raw", size=size))
    assert b"".join(block.data for block in seen) == data
    lines = [
        (number, line)
        for b in seen
        for number, line in zip(b.numbers(np.arange(999)), b.lines().to_pylist(), strict=False)
    ]
    assert lines == list(enumerate(data.split(b"\n"), start=1))


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


def test_dictionaries_that_the_patterns_do_not_fit_are_evaluated_and_stand_in_order(tmp_path: Path) -> None:
    """Nested values before a key, other order of blanks, blank lines; what is no dictionary is named as such."""
    lines = [
        "{u'username': u'a', u'product_id': u'1', u'date': u'2019-01-03'}",
        "{u'found': [1, {'product_id': 9}], u'username': u'a', u'product_id': u'2', u'date': u'2019-01-01'}",
        "  ",
        "{'username':'b','product_id':3,'date':'2019-01-02'}",
        "{u'username': u'a', u'product_id': u'4', u'date': u'2019-01-02'}",
        "__import__('os')",
    ]
    (tmp_path / "raw").write_text("\n".join(lines))
    result = prepare("mine", source=tmp_path / "raw", format="steam", output=tmp_path, max_malformed=0.5)
    assert [line[:2] for line in read_back(result)] == [("a", "2"), ("a", "4"), ("a", "1"), ("b", "3")]
    assert [example[:2] for example in result.malformed.examples] == [(6, "no dictionary")]


@pytest.mark.parametrize("size", [1, 30, 1 << 20])
def test_values_over_several_lines_keep_the_numbers_of_the_lines_they_start_on(size: int, tmp_path: Path) -> None:
    """Quotes that do not open a value are text, and two in a row stand for one."""
    lines = ['a,i,"x\ny, ""z""\n",1', 'b,"j\n",5" pipe,2', "c,k,,noon", '"d",l,"",4', "e,m", "f,n,,6"]
    raw = tmp_path / "my.csv"
    raw.write_text("user,item,text,time\n" + "\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "FIRST_BYTES", size)
        patch.setattr(blocks_module, "BLOCK_BYTES", size)
        result = prepare("mine", source=raw, output=tmp_path, max_malformed=0.5)
    assert read_back(result) == [("a", "i", "1"), ("b", "j", "2"), ("d", "l", "4"), ("f", "n", "6")]
    assert [(line, reason) for line, reason, _ in result.malformed.examples] == [
        (7, "no time"),
        (9, "2 values instead of 4"),
    ]


def _zip(path: Path, member: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("readme.txt", "nothing")
        target.writestr(member, data)


def _tar(path: Path, member: str, data: bytes) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as target:
        for name, content in (("./readme.txt", b"nothing"), (member, data)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize("kind", ["plain", "gz", "bz2", "zip", "zip of gz", "tar", "tar.gz", "folder", "folder of zip"])
def test_every_container_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    name, data = "loc-gowalla_totalCheckins.txt", CASES["gowalla"][0](ROWS).encode()
    source = tmp_path / "in"
    source.mkdir()
    (source / "notes.txt").write_text("other")
    if kind in ("plain", "folder"):
        (source / name).write_bytes(data)
    elif kind == "gz":
        (source / f"{name}.gz").write_bytes(gzip.compress(data))
    elif kind == "bz2":
        (source / f"{name}.bz2").write_bytes(bz2.compress(data))
    elif kind.startswith("tar"):
        _tar(source / f"all.{kind}", f"sub/{name}", data)
    elif kind == "zip of gz":
        _zip(source / "all.zip", f"sub/{name}.gz", gzip.compress(data))
    else:
        _zip(source / "all.zip", f"sub/{name}", data)
    given = source if kind.startswith("folder") else next(p for p in source.iterdir() if p.name != "notes.txt")
    changes = {"filter": "none", "min_user": 0, "min_item": 0}
    result = prepare("gowalla", source=given, output=tmp_path / "out", changes=changes, progress=True)
    assert read_back(result) == expected(ROWS, False)


def test_a_damaged_download_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(CASES["behance"][0](ROWS * 1000).encode())
    (tmp_path / "Behance_appreciate_1M.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut off, damaged"):
        prepare("behance", source=tmp_path, output=tmp_path / "out")
    (tmp_path / "x.zip").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"x\.zip is cut off, damaged"):
        prepare("behance", source=tmp_path / "x.zip", output=tmp_path / "out")


class Endless(io.RawIOBase):
    """A stream that repeats some bytes for ever."""

    def __init__(self, first: bytes, repeated: bytes) -> None:
        self._first, self._repeated = first, repeated

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = (self._first + self._repeated * (len(buffer) // len(self._repeated)))[: len(buffer)]
        buffer[: len(data)] = data
        self._first = b""
        return len(data)


@pytest.mark.parametrize("end", [b"\n", b"\n\n"])
@pytest.mark.parametrize("quotes", ["", ","])
@pytest.mark.parametrize("repeated", [b"\0", b'"', b"x"])
@pytest.mark.parametrize("first", [b"", b"a\tb\tc\n\n"])
def test_a_record_without_an_end_is_refused_before_it_fills_the_memory(
    first: bytes, repeated: bytes, quotes: str, end: bytes
) -> None:
    stream = io.BufferedReader(Endless(first, repeated))
    line, seen = 1 + first.count(b"\n"), []
    with pytest.raises(DataError, match=rf"raw\.gz, line {line}: no end within 16 MiB"):
        seen.extend(blocks(stream, "raw.gz", end=end, quotes=quotes))
    assert b"".join(block.data for block in seen) == first


@pytest.mark.parametrize(
    "format", ["movielens-tab", "movielens-dat", "amazon-json", "csv", "atomic", "sequences", "steam"]
)
@pytest.mark.parametrize("kind", ["gz", "zip"])
def test_zeros_that_were_compressed_are_one_error(kind: str, format: str, tmp_path: Path) -> None:
    zeros = bytes(40 << 20)
    raw = tmp_path / f"raw.{kind}"
    if kind == "gz":
        raw.write_bytes(gzip.compress(zeros, 1))
    else:
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("raw", zeros)
    with pytest.raises(DataError, match=rf"raw\.{kind}.*, line 1: no end within 16 MiB"):
        prepare("mine", source=raw, format=format, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _changed_header(path: Path, flags: int, method: int) -> None:
    """Write other flags and another method of compression into the headers of a zip file's only member."""
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.index(mark) + place
        data[start : start + 4] = flags.to_bytes(2, "little") + method.to_bytes(2, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("flags", "method", "message"),
    [(1, 8, ".*is encrypted"), (1, 99, ".*is encrypted"), (0, 98, ".*compression method is not supported")],
)
def test_a_zip_file_that_python_cannot_unpack(flags: int, method: int, message: str, tmp_path: Path) -> None:
    raw = tmp_path / "all.zip"
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("u.data", CASES["movielens-tab"][0](ROWS))
    _changed_header(raw, flags, method)
    with pytest.raises(DataError, match=rf"all\.zip:u\.data {message}.*unpack it by another program"):
        prepare("mine", source=raw, format="movielens-tab", output=tmp_path / "out")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_a_zip_file_with_damaged_bytes(method: int, tmp_path: Path) -> None:
    raw = tmp_path / "all.zip"
    with zipfile.ZipFile(raw, "w", method) as target:
        target.writestr("u.data", CASES["movielens-tab"][0](ROWS * 20))
    data = bytearray(raw.read_bytes())
    data[50:70] = b"\xff" * 20
    raw.write_bytes(data)
    with pytest.raises(DataError, match=r"all\.zip:u\.data is cut off, damaged"):
        prepare("mine", source=raw, format="movielens-tab", output=tmp_path / "out")


@pytest.mark.parametrize("format", [None, "csv"])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_source_without_files(kind: str, format: str | None, tmp_path: Path) -> None:
    source = tmp_path / ("in" if kind == "folder" else "in.zip")
    if kind == "folder":
        (source / "below").mkdir(parents=True)
    else:
        zipfile.ZipFile(source, "w").close()
    with pytest.raises(DataError, match=rf"is a {kind} without files"):
        prepare("mine", source=source, format=format, output=tmp_path / "out")


@pytest.mark.parametrize(
    ("dataset", "file", "format", "done"),
    [
        ("amazon-beauty", "reviews_Beauty_5.json.gz", "amazon-json", "filter"),
        ("amazon-beauty", "reviews_Beauty.json.gz", "amazon-json", "nothing"),
        ("amazon-toys", "ratings_Toys_and_Games.csv", "amazon-ratings-2014", "nothing"),
        ("grocery", "Grocery_and_Gourmet_Food_5.json.gz", "amazon-json", "filter"),
        ("kindle", "Kindle_Store.csv", "amazon-ratings-2018", "nothing"),
        ("yelp", "yelp_academic_dataset_review.json", "yelp", "nothing"),
        ("gowalla", "loc-gowalla_totalCheckins.txt.gz", "gowalla", "nothing"),
        ("beeradvocate", "beeradvocate.json.gz", "beeradvocate", "nothing"),
        ("beeradvocate", "Beeradvocate.txt.gz", "beeradvocate-txt", "nothing"),
        ("beeradvocate", "beer_reviews.csv", "beeradvocate-csv", "nothing"),
        ("behance", "Behance_appreciate_1M.gz", "behance", "nothing"),
        ("steam", "steam_reviews.json.gz", "steam", "nothing"),
        ("amazon-sports-sequences", "Sports_and_Outdoors.txt", "sequences", "all"),
        ("ml-100k", "u.data", "movielens-tab", "nothing"),
        ("office", "office.inter", "atomic", "all"),
    ],
)
def test_published_file_names_are_known(dataset: str, file: str, format: str, done: str, tmp_path: Path) -> None:
    for name in ("meta.json.gz", file):
        (tmp_path / name).write_bytes(b"")
    entry = public.entries()[dataset]
    assert entry is not None
    found, candidate = choose(entry, tmp_path, None)
    assert (found.name, candidate.format, candidate.done) == (file, format, done)


def test_amazon_ratings_with_exchanged_columns_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "Kindle_Store.csv"
    raw.write_text(CASES["amazon-ratings-2014"][0](ROWS))
    with pytest.raises(DataError, match="--format=amazon-ratings-2014"):
        prepare("kindle", source=raw, output=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "amazon-beuty"}, "no public data set.*Did you mean amazon-beauty"),
        ({"name": "yelp"}, "cannot be fetched by itself.*https://www.yelp.com/dataset"),
        ({"name": "../x", "source": "."}, "names a folder"),
        ({"name": "yelp", "source": "nowhere"}, "does not exist"),
        ({"name": "mine", "source": "raw.csv"}, "neither its name nor its first line tells the format.*--format=NAME"),
        ({"name": "yelp", "source": "raw.csv"}, "holds no file known for yelp; looked for.*--format"),
        ({"name": "mine", "source": "raw.csv", "format": "cvs"}, "'cvs' is unknown; known: .*csv"),
        ({"name": "mine", "source": "raw.csv", "format": "gowalla", "layout": Layout(separator=";")}, "own layout"),
        ({"name": "mine", "source": "raw.csv", "format": "csv"}, "no column timestamp; its columns: user_id, item_id"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "layout": Layout(header=False)}, "named by number"),
        (
            {"name": "mine", "source": "raw.csv", "format": "csv", "changes": {"filter": "kcore"}},
            "allowed: none, k_core",
        ),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "changes": {"duplicates": "sum"}}, "keep, first, last"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "changes": {"since": "2019"}}, "is no date"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "max_malformed": 5}, "not a share"),
        ({"name": "mine", "source": "raw.parquet", "format": "parquet"}, "raw.parquet is cut off, damaged"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(
    arguments: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.csv").write_text("user_id,item_id\n1,2\n")
    (tmp_path / "raw.parquet").write_text("no")
    with pytest.raises(DataError, match=message):
        prepare(**arguments, output=tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=6), st.sampled_from([0, 40, 10_000]))
def test_tokens_are_numbered_by_first_appearance_over_all_blocks(texts: list[list[str]], kernel_from: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recbole_hyper.data.ids._KERNEL_FROM", kernel_from)
        table = Tokens()
        for part in texts:
            table.add(pa.array(part, pa.string()))
        codes, tokens = table.joined()
    flat = [text for part in texts for text in part]
    names = list(dict.fromkeys(flat))
    assert codes.tolist() == [names.index(text) for text in flat]
    assert tokens.to_pylist() == names


@pytest.mark.parametrize("kernel_from", [0, 1 << 20])
def test_many_tokens_across_blocks_keep_one_number_each(kernel_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table grows several times, and blocks may be slices of longer arrays: compare with one dictionary."""
    monkeypatch.setattr("recbole_hyper.data.ids._KERNEL_FROM", kernel_from)
    generator = np.random.default_rng(0)
    blocks = []
    users, items = generator.integers(0, 300, 50_000).astype(str), generator.integers(0, 30_000, 50_000).astype(str)
    for part in np.array_split(np.arange(50_000), 13):
        columns = {"user_id": pa.array(users)[part[0] : part[-1] + 1], "item_id": pa.array(items[part])}
        rows = Rows(columns | {"timestamp": pa.array(part.astype(float))}, part)
        blocks.append(check(rows, Format(), Malformed("raw")))
    data = joined(iter(blocks))
    assert data.user_tokens.take(pa.array(data.users)).to_pylist() == users.tolist()
    assert data.item_tokens.take(pa.array(data.items)).to_pylist() == items.tolist()
    assert data.user_tokens.to_pylist() == list(dict.fromkeys(users.tolist()))
