"""Interactions: order, returns, and the file that is written."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.tables import interactions as writer
from recbole_hyper.data.tables.interactions import Interactions, write_interactions
from recbole_hyper.errors import DataError
from tests.data.tables.raw import interactions
from tests.raising import refused


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 400), st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_sort_equals_numpys_lexsort(rows: int, users: int, times: int, seed: int) -> None:
    """With short and long histories, ties, and users without any row."""
    generator = np.random.default_rng(seed)
    data = [(int(generator.integers(users)), row, float(row), float(generator.normal())) for row in range(rows)]
    some = interactions([(1, 0, 0.0, 0.0), *data])
    some.times = np.round(some.times * times)
    expected = np.lexsort((some.times, some.users))
    columns = [some.users[expected], some.items[expected], some.times[expected], some.ratings[expected]]
    some.sort()
    for column, wanted in zip((some.users, some.items, some.times, some.ratings), columns, strict=True):
        assert column.tolist() == wanted.tolist()


def one(user: str, item: str, time: float, rating: float | None = None) -> Interactions:
    ratings = None if rating is None else np.asarray([rating], np.float32)
    code = np.zeros(1, np.int32)
    return Interactions(code, code, np.asarray([time]), ratings, pa.array([user]), pa.array([item]))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (one("1", "2", 978_300_760.0), "1\t2\t978300760"),
        (one("1", "2", 978_300_760.25, 4.6), "1\t2\t4.6\t978300760.25"),
        (one("1", "2", 978_300_760.25, np.nan), "1\t2\t\t978300760.25"),
        (one("NaN", 'say "x" %', 1.5e18), 'NaN\tsay "x" %\t1.5e+18'),
    ],
)
def test_values_as_text(data: Interactions, line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.inter"
    write_interactions(data, path)
    assert path.read_text().splitlines()[1] == line


def test_an_id_that_no_atomic_file_can_have(tmp_path: Path) -> None:
    with refused(DataError, r"'a\tb'"):
        write_interactions(one("a\tb", "x", 1.0), tmp_path / "x.inter")


def test_large_files_are_written_in_pieces_that_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS", 7)
    codes = np.arange(50, dtype=np.int32)
    tokens = pa.array([f"x{n}" for n in range(50)])
    write_interactions(Interactions(codes, codes, codes.astype(float), None, tokens, tokens), tmp_path / "x.inter")
    lines = (tmp_path / "x.inter").read_text().splitlines()[1:]
    assert lines == [f"x{n}\tx{n}\t{n}" for n in range(50)]
