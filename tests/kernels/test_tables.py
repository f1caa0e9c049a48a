"""Texts against a dictionary, records of a csv against the csv module, pairs against numpy's sorts and plain lists."""

import csv
import io

import numpy as np
import pytest

from recbole_hyper.kernels import tables
from tests.reference import filters

USERS, ITEMS, ROWS = 12, 9, 150


def test_texts_are_numbered_by_first_appearance() -> None:
    generator = np.random.default_rng(0)
    # lengths below, at and above the eight bytes of a word
    texts = ["", *("x" * int(length) + str(number) for length, number in generator.integers(0, 25, (500, 2)))]
    texts = [texts[place] for place in generator.integers(0, len(texts), 2000)]
    names, starts = np.zeros(100_000, np.uint8), np.zeros(4001, np.int64)
    slots, known, codes = np.zeros(1 << 12, np.uint64), 0, []
    for part in (texts[:700], texts[700:]):
        lengths = [len(text) for text in part]
        offsets, data = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), "".join(part).encode()
        numbers = np.empty(len(part), np.int32)
        known = tables.number(offsets, np.frombuffer(data, np.uint8), slots, starts, names, known, numbers)
        codes += numbers.tolist()
        larger = np.zeros(1 << 13, np.uint64)
        tables.rehash(slots, larger)
        slots = larger
    expected = list(dict.fromkeys(texts))
    assert known == len(expected)
    assert codes == [expected.index(text) for text in texts]
    found = [names[starts[code] : starts[code + 1]].tobytes().decode() for code in range(known)]
    assert found == expected


def test_records_are_those_of_the_csv_module() -> None:
    text = 'a,"b\nc",d\n"e ""f"" g",h,"i"\nj"k,l,m\n"",n,o\n'
    ends, (closed, unclean, quoted, _), first = tables.record_ends(np.frombuffer(text.encode(), np.uint8), ord(","))
    pieces = np.split(np.frombuffer(text.encode(), np.uint8), ends)[:-1]
    found = [next(csv.reader(io.StringIO(piece.tobytes().decode(), newline=""))) for piece in pieces]
    assert found == list(csv.reader(io.StringIO(text, newline="")))
    assert (closed, unclean, bool(quoted), first) == (4, 0, False, -1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,"b c\n', (0, 0, True, 2)),  # never closed
        ('a,"b" c\n', (0, 1, False, 2)),  # closed inside a value
    ],
)
def test_quotes_that_do_not_close_a_value(text: str, expected: tuple[int, int, bool, int]) -> None:
    _, counts, _ = tables.record_ends(np.frombuffer(text.encode(), np.uint8), ord(","))
    assert tuple(counts) == expected


def test_the_first_value_over_a_line_end_that_closes_badly() -> None:
    text = b'a,b\nc,"d\ne"f,g\n'
    assert tables.record_ends(np.frombuffer(text, np.uint8), ord(","))[2] == text.index(b'"')


def random_rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    users, items, times = (generator.integers(0, high, ROWS) for high in (USERS, ITEMS, 40))
    return users.astype(np.int32), items.astype(np.int32), times, generator.random(ROWS)


@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_grouped_by_user_and_sorted_by_time(seed: int, rated: bool) -> None:
    users, items, times, ratings = random_rows(seed)
    ratings = ratings if rated else ratings[:0]
    columns = (times, items, ratings)
    grouped = tuple(np.empty_like(column) for column in columns)
    starts = np.concatenate(([0], np.bincount(users, minlength=USERS).cumsum()))
    for low, high in ((0, 5), (5, USERS)):
        tables.group(users, columns, starts, low, high, grouped)
    order = np.lexsort((times, users))  # stable, so ties keep their order
    for column, found in zip(columns, grouped, strict=True):
        np.testing.assert_array_equal(found, column[order] if len(column) else column)


@pytest.mark.parametrize("seed", range(3))
def test_repeats(seed: int) -> None:
    users, items, *_ = random_rows(seed)
    users, items = np.sort(users), items
    rows = list(zip(users.tolist(), items.tolist(), strict=True))
    for backward, keep in ((False, "first"), (True, "last")):
        found = tables.repeated(users, items, ITEMS, backward)
        assert np.flatnonzero(found).tolist() == filters.repeated(rows, keep)


@pytest.mark.parametrize(("min_user", "min_item"), [(0, 0), (10, 17), (14, 10), (1000, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_core(seed: int, min_user: int, min_item: int) -> None:
    users, items, *_ = random_rows(seed)
    alive = tables.core(users, items, USERS, ITEMS, min_user, min_item)
    rows = list(zip(users.tolist(), items.tolist(), strict=True))
    assert np.flatnonzero(alive).tolist() == filters.k_core(rows, min_user, min_item)
