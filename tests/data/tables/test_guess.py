"""Guesses: the format, the columns, the times and the encoding of a file are found and printed."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.cli import main
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.errors import DataError
from tests.data.tables.raw import T, lines_of, prepared
from tests.raising import refused

DAY = 86_400


ROWS = [("u1", "i1", 17_000 * DAY), ("u2", "i2", 16_999 * DAY), ("u1", "i2", 16_998 * DAY + 3_661)]


LINES = ["u1\ti2\t1468630861", "u1\ti1\t1468800000", "u2\ti2\t1468713600"]


DATES = ["2016-07-18", "2016-07-17 00:00:00", "2016-07-16T01:01:01Z"]


def guessed(raw: Path, output: Path, **options: Any) -> tuple[list[str], list[str]]:
    """Return the lines written and what was said to be guessed."""
    said: list[str] = []
    result = prepare("mine", source=raw, output=output, say=said.append, **options)
    return result.path.read_text().splitlines()[1:], [line for line in said if line.startswith("guessed: ")]


def table(names: str, separator: str, times: list[Any], quote: str = "") -> str:
    rows = [["x", item, user, str(time)] for (user, item, _), time in zip(ROWS, times, strict=True)]
    body = [separator.join(f"{quote}{value}{quote}" for value in row) for row in rows]
    return "\n".join([separator.join(names.split()), *body]) + "\n"


SECONDS = [time for _, _, time in ROWS]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        (
            "my.csv",
            table("text item_id user_id timestamp", ",", SECONDS),
            "--columns=user_id=user_id,item_id=item_id,timestamp=timestamp --separator=, --time_format=unix",
        ),
        (
            "my.tsv",
            table("text asin reviewerID unixReviewTime", "\t", [time * 1000 for time in SECONDS]),
            "--columns=user_id=reviewerID,item_id=asin,timestamp=unixReviewTime "
            "'--separator=\\t' --time_format=unix_ms",
        ),
        (
            "orders",
            table("text movieId USER Date", ";", DATES, quote='"'),
            "--columns=user_id=USER,item_id=movieId,timestamp=Date '--separator=;' --time_format=iso",
        ),
        (
            "my.dat",
            table("text product_id customer_id time", "::", SECONDS),
            "--columns=user_id=customer_id,item_id=product_id,timestamp=time --separator=:: --time_format=unix",
        ),
        (
            "ratings.csv",  # the name of MovieLens' file with other columns
            table("text item uid datetime", "|", DATES),
            "--columns=user_id=uid,item_id=item,timestamp=datetime '--separator=|' --time_format=iso",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_table_with_a_header_needs_no_options(name, text, options, packed, tmp_path) -> None:
    raw = tmp_path / (name + ".gz" * packed)
    raw.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    lines, said = guessed(raw, tmp_path)
    assert lines == LINES
    assert said == [f"guessed: --format=csv {options}"]


def test_a_comma_is_the_decimal_point_between_semicolons(tmp_path: Path) -> None:
    text = "user;item;rating;time\nu1;i1;4,5;1468800000,25\nu2;i,2; 3,0;1468713600\nu1;i2;2;1468630861\n"
    (tmp_path / "my.csv").write_text(text)
    lines, _ = guessed(tmp_path / "my.csv", tmp_path)
    assert lines == ["u1\ti2\t2\t1468630861", "u1\ti1\t4.5\t1468800000.25", "u2\ti,2\t3\t1468713600"]
    (tmp_path / "my.csv").write_text('user,item,rating,time\nu1,i1,"4,500",1468800000\nu1,i1,4,1468800000\n')
    assert guessed(tmp_path / "my.csv", tmp_path)[0][0] == "u1\ti1\t\t1468800000"  # it may be four thousand


def objects(*keys: str, times: list[Any] = SECONDS, number: bool = False) -> list[dict[str, Any]]:
    names = [(int(user[1:]), int(item[1:])) if number else (user, item) for user, item, _ in ROWS]
    return [dict(zip(keys, (*name, time), strict=True)) for name, time in zip(names, times, strict=True)]


@pytest.mark.parametrize("name", ["my.jsonl", "my.json", "my.ndjson.gz", "events"])
def test_json_lines_need_no_options(name: str, tmp_path: Path) -> None:
    rows = [{"nested": {"user": 1}, **row, "text": 'a "b"\n'} for row in objects("userId", "itemId", "ts", times=DATES)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    lines, said = guessed(tmp_path / name, tmp_path)
    assert lines == LINES
    assert said == ["guessed: --format=jsonl --columns=user_id=userId,item_id=itemId,timestamp=ts --time_format=iso"]


def test_an_array_may_begin_with_blanks(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("\ufeff  " + json.dumps(objects("user", "item", "time")))
    assert len(guessed(tmp_path / "x.json", tmp_path)[0]) == len(LINES)


def test_parquet_and_atomic_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    users, items, times = (list(column) for column in zip(*ROWS, strict=True))
    pq.write_table(pa.table({"uid": users, "sku": items, "time": times}), tmp_path / "table")
    lines, said = guessed(tmp_path / "table", tmp_path)
    assert lines == LINES
    assert said == ["guessed: --format=parquet --columns=user_id=uid,item_id=sku,timestamp=time --time_format=unix"]
    header = "user_id:token\titem_id:token\ttimestamp:float\n"
    (tmp_path / "atomic").write_text(header + "".join(f"{u}\t{i}\t{t}\n" for u, i, t in ROWS))
    assert guessed(tmp_path / "atomic", tmp_path) == (LINES, ["guessed: --format=atomic"])


@pytest.mark.parametrize(("text", "message"), [
    ("user_id,uid,item,time\n", None),  # the field's own name comes first
    ("user,uid,item,time\na,b,c,1\n", ": user and uid may both be user_id; .*=user_id=user"),
    ("user,name,time\na,b,1\n", "no column item_id; its columns: user, name, time"),
    ("user,item,time\na,b,noon\nc,d,night\n", "times in 'time', such as noon, are neither dates .*--time_format"),
    ('[["a", "b"], ["b"]]', "has no column user_id"),
    ("[1, 2]\n", "cannot guess the format from its name or its first line.*--format=NAME"),
    ("", "raw is empty"),
    ('{"user": "a", "item": "b", "time": {"$date": 1}}', "'time' has no times; .*is written as time.date"),
    ('{"user": {"x": "a"}, "item": "b", "time": 1700000000}', "no user in 'user': .*is written as user.id"),
    (f"user,item,time\na,8.71E+12,{T}\n", "'8.71E.12' in 'item' has lost digits"),
    ('[{"user": "a", "item": "b", "time": 1}, {"user": 2}, {"user": 3, "item": 4, "time": 5}]', "1 of 3 lines"),
    ("a,b,c\n1,2,3\n", "no column user_id, .*its columns: a, b, c; .*without a header: --no_header"),
    ("user,item,time\n".encode("utf-16-le"), "raw, line 1: a NUL .* not UTF-8 text"),
    # without the time in its header: pytest names the case by these bytes, the same in every worker
    (gzip.compress(b"user,item,time\na,b,1\n", mtime=0), "raw, line 1: a NUL .* not UTF-8 text"),
    ("user,item,time\nZoë,b,1\n".encode() + b"ren\xe9,b,1\n", r"line 3: .*not UTF-8.*'ren\\\\xe9\\tb\\t1'"),
])  # fmt: skip
def test_what_cannot_be_guessed_is_one_error(text: str | bytes, message: str | None, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message or "has no interactions"):
        prepare("mine", source=raw, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_long_values_in_the_first_lines_are_read(tmp_path: Path) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text("user,item,text,time\na,b," + "x" * 200_000 + ",1\n")
    assert guessed(raw, tmp_path)[0] == ["a\tb\t1"]


def test_options_are_not_guessed(tmp_path: Path) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text(table("stars item other time", ",", [5, 6, 7]))
    layout = Layout(columns={"user_id": "other"}, time_format="unix_ms")
    lines, said = guessed(raw, tmp_path, format="csv", layout=layout)
    assert lines == ["u1\ti1\t0.005", "u1\ti2\t0.007", "u2\ti2\t0.006"]
    assert said == ["guessed: --format=csv --columns=user_id=other,item_id=item,timestamp=time --separator=,"]
    with refused(DataError, "has no column item.x; its columns: stars, item"):
        guessed(raw, tmp_path, layout=Layout(columns={"user_id": "other", "item_id": "item.x"}))


@pytest.mark.parametrize(("name", "written"), [("rating", True), ("Stars", True), ("price", False)])
def test_a_rating_is_read_where_one_is_found(name: str, written: bool, tmp_path: Path) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text(f"user,item,{name},time\na,b,4.5,1\n")
    assert guessed(raw, tmp_path)[0] == ["a\tb\t4.5\t1" if written else "a\tb\t1"]


def test_the_command_prints_guesses_as_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text(table("text item user time", "\t", SECONDS))
    assert main(["prepare", "mine", f"--source={raw}", f"--output={tmp_path / 'a'}"]) == 0
    options = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("guessed: "))
    again = shlex.split(options.removeprefix("guessed: "))
    assert main(["prepare", "mine", f"--source={raw}", f"--output={tmp_path / 'b'}", *again]) == 0
    assert "guessed" not in capsys.readouterr().out
    written = [(tmp_path / out / "mine" / "mine.inter").read_bytes() for out in "ab"]
    assert written[0] == written[1]


@pytest.mark.parametrize(("header", "message"), [
    ("user_id\titem_id\ttimestamp", "header entry 'user_id' is not 'name:type'"),
    ("user_id:token\titem_id:token\twhen:float", "no column timestamp; its columns: user_id, item_id, when"),
    (
        "user_id:token\titem_id:token\titem_id:token\ttimestamp:float",
        "line 1: two columns have the same name, 'item_id'",
    ),
    ("user_id:token\titem_id:token\ttimestamp:token", "'timestamp' is of type 'token'; expected 'float'"),
])  # fmt: skip
def test_a_wrong_atomic_header_is_refused(header: str, message: str, tmp_path: Path) -> None:
    raw = tmp_path / "x.inter"
    raw.write_text(f"{header}\n1\t2\t3\n")
    with refused(DataError, message):
        prepare("mine", source=raw, output=tmp_path)


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
def test_the_guessed_encoding_is_printed(encoding: str, guess: str | None, tmp_path: Path) -> None:
    text = f"user,item,time\nrené,café,{T}\n".encode(encoding)
    rows, said = prepared(text, tmp_path)
    assert rows[0][:2] == ["rené", "café"]
    assert (f"--encoding={guess}" in said[0]) == (guess is not None)
    assert prepared(text, tmp_path, format="csv", layout=Layout(encoding=encoding))[0] == rows


@pytest.mark.parametrize(("header", "columns"), [
    ("Customer Email,Lineitem sku,Created at", "user_id=Customer Email,item_id=Lineitem sku,timestamp=Created at"),
    ("Name,Email,Lineitem sku,Created at", "user_id=Email,item_id=Lineitem sku,timestamp=Created at"),
    ("InvoiceNo,StockCode,InvoiceDate,CustomerID", "user_id=CustomerID,item_id=StockCode,timestamp=InvoiceDate"),
    ("user_id,product_id,order_number", "user_id=user_id,item_id=product_id,timestamp=order_number"),
    ("session,email,sku,ts", "user_id=session,item_id=sku,timestamp=ts"),
    ("id_customer,product_id,date_add", "user_id=id_customer,item_id=product_id,timestamp=date_add"),
])  # fmt: skip
def test_columns_of_shops_are_guessed(header: str, columns: str, tmp_path: Path) -> None:
    row = ",".join("2020-01-01" if one in columns.rpartition("=")[2] else one for one in header.split(","))
    (tmp_path / "raw.csv").write_text(f"{header}\n{row}\n")
    _, (said,) = guessed(tmp_path / "raw.csv", tmp_path / "out")
    assert f"--columns={columns} " in " ".join(shlex.split(said))


def test_the_encoding_is_used_for_the_guess_of_the_format(tmp_path: Path) -> None:
    text = "user,item,time\nJosé,x,2020-01-01\n"
    (tmp_path / "raw.csv").write_bytes(text.encode("utf-16-le"))  # no byte order mark
    written, _ = guessed(tmp_path / "raw.csv", tmp_path / "out", layout=Layout(encoding="utf-16-le"))
    assert written == ["José\tx\t1577836800"]


def test_yambda_and_other_files_of_its_name(tmp_path: Path) -> None:
    """Times of Yambda are seconds from 0: steps for this package."""
    columns = {
        "uid": [1, 1, 2],
        "timestamp": [25_000_005, 25_000_000, 5],
        "item_id": [7, 8, 7],
        "is_organic": [1, 0, 1],
    }
    pq.write_table(pa.table({**columns, "played_ratio_pct": [60, 70, 10]}), tmp_path / "listens.parquet")
    written, (said,) = guessed(tmp_path / "listens.parquet", tmp_path / "out")
    assert written == ["1\t8\t25000000", "1\t7\t25000005", "2\t7\t5"]
    assert "--format=yambda" in said


def test_blanks_separate_columns_too(tmp_path: Path) -> None:
    raw, rows = tmp_path / "raw.txt", f"a x 5 {T}\na y 4 {T + 1}\n"
    raw.write_text("user item rating time\n" + rows)
    assert lines_of(raw, tmp_path) == [f"a\tx\t5\t{T}", f"a\ty\t4\t{T + 1}"]
    assert lines_of(raw, tmp_path, order="file") == ["a\tx\t5\t1", "a\ty\t4\t2"]
    raw.write_text(rows)
    with refused(DataError, "' '", "--separator=", "--no_header", "--format=sequences"):
        prepare("mine", source=raw, output=tmp_path, order="file")
    for first, second in (("2 x y", "1 z"), ("a 2 x y", "b 1 z")):
        raw.write_text(f"{first}\n{second}\n")
        with refused(DataError, repr(first), "number of its items", "--format=sequences"):
            prepare("mine", source=raw, output=tmp_path, order="file")


def test_the_only_column_of_dates_is_the_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows, said = prepared("user,item,when,price\na,x,2024-01-31,5\n", tmp_path)
    assert rows == [["a", "x", "1706659200"]]
    assert "timestamp=when" in said[0]
    with refused(DataError, "timestamp", "when", "changed"):  # two columns of dates are a question
        prepared("user,item,when,changed\na,x,2024-01-31,2024-02-01\n", tmp_path)
    rows, _ = prepared(f"user,item,date,ms\na,x,2020-09-13,{T}000\n", tmp_path)
    assert rows == [["a", "x", "1599955200"]]
    assert "--columns=timestamp=ms" in caplog.text


@pytest.mark.parametrize(("header", "kind"), [("user,item_id,o,time", "item"), ("o,user_id,item,time", "user")])
def test_a_column_that_numbers_the_rows_is_named(header: str, kind: str, tmp_path: Path) -> None:
    rows = "".join(f"u{n % 3},{n},sku{n % 4},2024-01-01\n" for n in range(30))
    _, said = prepared(f"{header}\n{rows}", tmp_path)
    assert any(line.startswith(f"each row has another {kind} (column {kind}_id)") and "are o;" in line for line in said)


def test_placeholders_and_conditions_on_missing_values_are_named(tmp_path: Path) -> None:
    rows = [f"{n if n % 3 else '(not set)'},s{n % 31},{'paid' if n % 2 else ''},2024-01-01\n" for n in range(180)]
    _, said = prepared("user,Product Id,status,time\n" + "".join(rows), tmp_path, where="status = 'paid'")
    assert said[2].startswith("90 rows lack a value that --where compares")
    assert said[3].startswith("33% of the rows have the user '(not set)'")
    assert said[3].endswith("""--where="user != '(not set)'\"""")
    rows = [f"u{n % 7},{n if n % 4 else '$it'},2024-01-01\n" for n in range(60)]
    _, said = prepared("user,Product Id,time\n" + "".join(rows), tmp_path)
    assert r"""--where="\"Product Id\" != '\$it'""" in said[2]


@pytest.mark.parametrize("name", ["ratings_mine.csv", "reviews_shop.json"])
def test_a_table_with_the_name_of_a_known_one(name: str, tmp_path: Path) -> None:
    """Amazon's files of this name have no header: users were read as items."""
    row = {"item_id": "i", "user_id": "u", "rating": 5, "timestamp": T}
    table = f"{','.join(row)}\ni,u,5,{T}\n"
    (tmp_path / name).write_text(table if name.endswith("csv") else json.dumps(row) + "\n")
    assert guessed(tmp_path / name, tmp_path)[0] == [f"u\ti\t5\t{T}"]


def test_whole_numbers_with_a_point_in_one_part_only(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.csv").write_text(f"user,item,time\n17850,a,{T}\n")
    (tmp_path / "parts" / "2.csv").write_text(f"user,item,time\n17850.0,c,{T + 1}\n,d,{T}\n")
    found = lines_of(tmp_path / "parts", tmp_path, max_malformed=1.0)
    assert found == [f"17850\ta\t{T}", f"17850\tc\t{T + 1}"]


def test_times_that_lost_seconds_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = {"user": ["a", "a"], "item": ["x", "y"], "time": np.float32([T, T + 9])}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    prepare("d", source=tmp_path / "x.parquet", output=tmp_path)
    assert "times of float lose seconds in 'time'" in caplog.text
