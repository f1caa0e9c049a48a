"""Orders, ties, and quantities that are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.errors import DataError
from tests.data.tables.raw import CODED, interactions, prepared
from tests.raising import refused

T0 = 1577836800


def test_items_of_an_order_get_its_time_and_orders_stay_apart(tmp_path: Path) -> None:
    rows = ["a,x,7,2020-01-01 00:00:05", "a,y,8,2020-01-01 00:00:05", "a,z,7,2020-01-01 00:00:09",
            "b,x,8,2020-01-01"]  # fmt: skip
    text = "user,item,order,time\n" + "\n".join(rows) + "\n"
    written, said = prepared(text, tmp_path, changes={"basket": "order"})
    assert written == [
        ["a", "x", str(T0 + 5)], ["a", "z", str(T0 + 5)], ["a", "y", str(T0 + 6)], ["b", "x", str(T0)],
    ]  # fmt: skip
    assert any(line.startswith("1 orders begin at the time") for line in said)


def test_a_row_without_an_order_is_an_error(tmp_path: Path) -> None:
    with refused(DataError, "--basket=order"):
        prepared("user,item,order,time\na,x,,2020-01-01\na,y,8,2020-01-02\n", tmp_path, changes={"basket": "order"})
    with refused(DataError, "column", "basket"):
        prepared("user,item,order,time\na,x,7,2020-01-01\n", tmp_path, changes={"basket": "basket"})


def test_baskets_against_a_loop() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        data = interactions(CODED)
        n = 40
        data.users, data.items = (draw.integers(0, 3, n).astype(np.int32) for _ in range(2))
        data.ratings, data.times = None, draw.integers(0, 9, n).astype(float)
        baskets, users, times = draw.integers(0, 6, n), data.users.tolist(), data.times.copy()
        moved = data.group_baskets(baskets)
        expected, count = np.zeros(n), 0
        for user in sorted(set(users)):
            rows = [row for row in range(n) if users[row] == user]
            begins = {b: min((times[row], row) for row in rows if baskets[row] == b) for b in {*baskets[rows]}}
            first = {b: min(row for row in rows if baskets[row] == b) for b in begins}
            last = -np.inf
            for basket in sorted(begins, key=lambda b: (begins[b][0], first[b])):
                at = max(begins[basket][0], last + 1)
                count += at > begins[basket][0]
                last = at
                for row in rows:
                    if baskets[row] == basket:
                        expected[row] = at
        assert data.times.tolist() == expected.tolist()
        assert moved == count


@pytest.mark.parametrize("name", ["Quantity", "qty"])
def test_returns_that_count_as_purchases_are_named(name: str, tmp_path: Path) -> None:
    text = f"user,item,{name},time\na,x,2,2020-01-01\na,x,-2,2020-01-02\nb,x,1,2020-01-02\n"
    rows, said = prepared(text, tmp_path)
    assert len(rows) == 3
    assert any(line.startswith(f"the column {name} is not read") and "--where=" in line for line in said)
    rows, said = prepared(text, tmp_path, where=f"{name} > 0")
    assert [row[0] for row in rows] == ["a", "b"]
    assert not any(line.startswith(f"the column {name}") for line in said)


def test_ties_stay_in_the_order_of_the_file_and_get_advice(tmp_path: Path) -> None:
    text = "user,item,date,step\na,x,2024-01-01,2\na,y,2024-01-01,1\na,z,2024-01-01,3\n"
    rows, said = prepared(text, tmp_path)
    assert [row[1] for row in rows] == ["x", "y", "z"]
    assert any("have equal times" in line for line in said)
    with refused(DataError, "date+step", "examples/convert/times.py"):
        prepared(text, tmp_path, layout=Layout(columns={"timestamp": "date+step"}))
