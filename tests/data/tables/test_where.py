"""Conditions on columns: against Python's comparison of each row, and errors."""

import datetime
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.tables import engine
from recbole_hyper.data.tables.where import parse_where
from recbole_hyper.errors import DataError
from tests.data.tables.raw import T, prepared
from tests.raising import refused

MOMENTS = pa.timestamp("ms", "Asia/Tokyo")
TABLE = pa.table(
    {
        "event": ["view", "buy", None, "", "view"],
        "price": [1.5, 0.0, 3.0, None, float("nan")],
        "text price": ["1.5", "0", " 3", "", "2"],
        "count": pa.array([1, 2, None, 2**60, 2**60 + 1]),
        "genres": [["a", "b"], ["b"], [], None, ["c", "a"]],
        "new": [True, False, None, True, False],
        "day": pa.array([datetime.date(2019, 1, day) for day in (1, 2, 3, 4)] + [None]),
        "moment": pa.array([*(datetime.datetime(2019, 1, 1, hour) for hour in (1, 2, 3, 4)), None], MOMENTS),
        "word": pa.array([b"x", b"y", b"", None, b"x"]).dictionary_encode(),
        "digits": ["10", "9", "2", None, "100"],
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("event = 'view'", [0, 4]),
        ("not event = 'view'", [1]),
        ("event is not null and not (count = 2 or new = true)", [4]),
        ("event not in ('buy', 'sell')", [0, 4]),
        ("price is null", [3, 4]),
        ('"text price" > 1', [0, 2, 4]),
        ('"text price" is null', [3]),
        ("count = 1152921504606846977", [4]),
        ("count in (1, 2.0)", [0, 1]),
        ('digits > "text price"', [0, 1, 4]),  # numbers, although both are text
        ('digits > "text price" and "text price" > 1', [0, 4]),
        ("digits ** 2 > 90", [0, 4]),
        ("digits like '1%' and length(digits) = 3", [4]),
        ("count / price > 0", [0]),  # a division by zero is a missing value
        ("count % price >= 0", [0]),
        ("list_contains(genres, 'a')", [0, 4]),
        ('round("text price") = 2', [0, 4]),
        ("event similar to 'v.*w' and left(event, 1) = 'v'", [0, 4]),
        ("year(moment) = 2019 and moment - to_days(1) < '2018-12-31 03:30+02:00'", [0]),
        ("moment < '2019-01-01 04:00+02:00'", [0]),
        ("year(to_timestamp(digits)) = 1970", [0, 1, 2, 4]),
        ("new = true or new = false", [0, 1, 3, 4]),
        ("day > '2019-01-02'", [2, 3]),
        ("moment <= '2019-01-01 02:00:00'", [0, 1]),
        ("moment > '2019-01-01T03:00:00Z'", [3]),
        ("event = 'view' or event = 'buy' and price > 100", [0, 4]),
        ("price between 1 and 2", [0]),
        ("lower(event) like 'V%' or event like 'v%'", [0, 4]),
        ("count > price", [1]),
        ("count = '2'", [1]),
        ("count = '1.5'", []),
        ("price > '1'", [0, 2]),
        ("\"text price\" < '10'", [0, 1, 2, 4]),
        ("\"text price\" = '1.5'", [0]),
        ("count = 123456789012345678901234567890", []),
        ("day = '2019-01-01 05:00'", []),
        ("moment = '2019-01-01 01:00'", [0]),
    ],
)
def test_rows_that_fulfil_a_condition(text: str, rows: list[int]) -> None:
    assert np.flatnonzero(parse_where(text).mask(TABLE)).tolist() == rows


def test_many_conditions_need_no_deep_stack() -> None:
    assert parse_where(" or ".join(["count = 1"] * 2000)).mask(TABLE).tolist() == [True, False, False, False, False]


def test_the_columns_of_a_condition_are_distinct_and_in_order() -> None:
    assert parse_where("b = 1 and (a > 2 or b is null)").columns == ("b", "a")
    assert parse_where('"review/time" > 3 and item.price = 1').columns == ("review/time", "item.price")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("event = ", ")"),
        ("event = ''", "is null"),
        ("event = null", "is null"),
        ("event in ()", "row"),
        ("event = ('a', 'b')", "row"),
        ("event = 'view' price > 0", "price"),
        ("event = 'view", "unterminated"),
        ("1 < price < 3", "AND"),
        ("price > 0; import os", "near"),
        ("price > 3x", "near"),
        ("price > (select 3)", "3"),
        ("exists(from read_text('/etc/passwd'))", "subquery"),
        ("price = 1) from x where (price = 2", "more than one expression"),
        ("price = $1", "parameter"),
        ("event = $$view$$", "single quotes"),
        ("sum(price) over () > 1", "window"),
        ("1 = 1", "no column"),
        ("", "row"),
        *(("lower(" * n + "a" + ")" * n + " = '1'", "depth limit") for n in (200, 900)),
        ("not " * 20_000 + "a = 1", "depth limit"),
        ("event || event > 'a'", "'||'"),
        ("not " * 100_000 + "a = 1", "100,000"),
        *((f"{call} > price", call.partition("(")[0]) for call in (
            "now()", "today()", "random()", "sleep_ms(250)", "unnest(genres)", "sum(price)", "range(9)",
            "getenv('HOME')", "__import__('os')", "list_transform(genres, lambda x: x)", "main.sum(price)",
            "replace(event, 'e', 'eee')", "concat(event, event)", "strftime(event, '%c%c%c')",
        )),
    ],
)  # fmt: skip
def test_invalid_conditions_are_refused(text: str, named: str) -> None:
    with refused(DataError, named):
        parse_where(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("evnt = 'view'", "did you mean event"),
        ("event = view", "single quotes"),
        ("day > now", "'now'"),
        ("price + 1", "true or false"),
        ("event > 3", "event"),
        ("digits > event", "event"),
        ("day > 'soon'", "soon"),
        ("day > 'now'", "now"),
        ("day > 20190101", "compare"),
        ("event = true", "view"),
        ("price > '6,5'", "'6,5'"),
        ("price > '$3'", "'$3'"),
        ("\"text price\" > '6 EUR'", "'6 EUR'"),
        ("digits >= '2024-01-31 10:00'", "'2024-01-31 10:00'"),
        ("genres = 'a'", "list_contains"),
    ],
)
def test_values_that_do_not_compare_are_refused(text: str, named: str) -> None:
    with refused(DataError, named):
        parse_where(text).mask(TABLE)


def test_a_condition_is_stopped_after_its_bound() -> None:
    table = {"text": pa.array(["ab" * 500] * 40_000)}
    where = parse_where("regexp_matches(text, '(a|b|ab)*c(a|b)*d')")
    started = time.monotonic()
    with pytest.raises(engine.TooSlowError):
        where.mask(table, seconds=0.1)
    assert time.monotonic() - started < 5
    ended = threading.Event()

    def keep_interrupting() -> None:
        while not ended.wait(0.05):
            engine.interrupt()

    thread = threading.Thread(target=keep_interrupting)
    thread.start()
    with pytest.raises(engine.TooSlowError):
        where.mask(table)
    ended.set()
    thread.join()
    assert not parse_where("text = 'a'").mask(table).any()


def test_moments_are_in_utc_whatever_the_zone_of_the_machine() -> None:
    zone = engine.query("select current_setting('TimeZone') from rows", {"c0": pa.array([0])})
    assert zone[0].to_pylist() == ["UTC"]


def test_names_that_sql_reserves_are_columns() -> None:
    table = {name: pa.array([1, 2]) for name in ("at", "user", "order", "desc", "Group", "time", "date")}
    for name in table:
        assert parse_where(f'"{name}" > 1').mask(table).tolist() == [False, True], name
    assert parse_where("date > '1970-01-01'").columns == ("date",)


def test_a_condition_on_text_keeps_the_type_that_it_was_settled_with() -> None:
    """A quoted number compares with numbers in a file of numbers, whatever its later parts hold."""
    first, later = {"price": pa.array(["5", "10"])}, {"price": pa.array(["9", "free"])}
    where = parse_where("price < '6'").settled(first)
    assert where.mask(first).tolist() == [True, False]
    with refused(DataError, "row 1 (from 0): 'free' in 'price'"):
        where.mask(later)
    codes = {"sku": pa.array(["0012", "12"])}
    assert parse_where("sku = '12'").settled(codes).mask(codes).tolist() == [False, True]
    assert parse_where("sku = '0012'").mask(codes).tolist() == [True, False]


ATOMS = [
    *("n > 1", "n <= '10'", "n != 2.0", "f < 10.25", "f = '1.50'", "s = 'view'", "s <> 'a'", "b = true", "b != true"),
    *("n in (1, 2)", "n not in (1, 2)", "s not in ('a')", "n between 1 and 9", "n is null", "s is not null"),
    *("n > f", "f >= m", "m < n", "n / m > 0.1", "n + f > 3", "m / (n - 1) > 2", "m % 2 = 0", "-n > 0", "n - m < -5"),
    "s like 'v%'",
]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(*map(st.sampled_from, ([1, 2, 10, -3, None], [1.5, 2.0, 10.25, None], ["a", "view", None],
                                              [True, False, None], [7, 8, 100]))), min_size=1, max_size=8),
    st.recursive(st.sampled_from(ATOMS), lambda part: st.one_of(
        st.builds("not ({})".format, part), st.builds("({}) and ({})".format, part, part),
        st.builds("({}) or ({})".format, part, part)), max_leaves=4),
)  # fmt: skip
def test_a_table_of_text_meets_a_condition_as_one_with_types_does(rows: list[tuple], condition: str) -> None:
    columns = dict(zip("nfsbm", map(list, zip(*rows, strict=True)), strict=True))
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.int64())
    typed = {name: pa.array(values, kind) for (name, values), kind in zip(columns.items(), kinds, strict=True)}
    texts = {name: pa.array(["" if one is None else str(one) for one in values]) for name, values in columns.items()}
    where = parse_where(condition)
    assert where.mask(texts).tolist() == where.mask(typed).tolist()


def test_blanks_around_the_text_of_csv_are_left_out(tmp_path: Path) -> None:
    rows, _ = prepared(
        f"user, item, event, time\nann, lamp, view, {T}\nann, sofa, buy, {T}\n", tmp_path, where="event != 'view'"
    )
    assert rows == [["ann", "sofa", str(T)]]
