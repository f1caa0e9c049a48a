"""Texts against a dictionary, records of a csv file against the csv module."""

import csv
import io

import numpy as np
import pytest

from recbole_hyper.kernels import tokens


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
        known = tokens.number(offsets, np.frombuffer(data, np.uint8), slots, starts, names, known, numbers)
        codes += numbers.tolist()
        larger = np.zeros(1 << 13, np.uint64)
        tokens.rehash(slots, larger)
        slots = larger
    expected = list(dict.fromkeys(texts))
    assert known == len(expected)
    assert codes == [expected.index(text) for text in texts]
    found = [names[starts[code] : starts[code + 1]].tobytes().decode() for code in range(known)]
    assert found == expected


def test_records_are_those_of_the_csv_module() -> None:
    text = 'a,"b\nc",d\n"e ""f"" g",h,"i"\nj"k,l,m\n"",n,o\n'
    ends, (closed, unclean, quoted, _), first = tokens.record_ends(np.frombuffer(text.encode(), np.uint8), ord(","))
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
    _, counts, _ = tokens.record_ends(np.frombuffer(text.encode(), np.uint8), ord(","))
    assert tuple(counts) == expected


def test_the_first_value_over_a_line_end_that_closes_badly() -> None:
    text = b'a,b\nc,"d\ne"f,g\n'
    assert tokens.record_ends(np.frombuffer(text, np.uint8), ord(","))[2] == text.index(b'"')
