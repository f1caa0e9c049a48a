"""Statistics of a prepared data set."""

import pytest

from recbole_hyper.data.tables.prepare.cleaning import Cleaning, apply
from recbole_hyper.data.tables.prepare.statistics import Published, describe, notes, rows
from tests.data.tables.raw import CODED, interactions


def test_statistics_by_hand() -> None:
    data, _ = apply(interactions(CODED), Cleaning())
    found = describe(data)
    assert (found.users, found.items, found.interactions, found.repeated) == (3, 3, 6, 1)
    assert found.density == pytest.approx(6 / 9)
    assert (found.mean_length, found.min_length, found.max_length) == (2.0, 1, 3)
    # neighbours of one user: (0,0) tied, (1,1) twice not
    assert found.tied == pytest.approx(1 / 3)
    assert (found.first_time, found.last_time) == (0.0, 30.0)
    same = Published("same", users=3, items=3, interactions=6)
    other = Published("other", users=4, note="misprint")
    assert notes(found, [same]) == []
    assert notes(found, [same, other]) == ["* differs from this file", "other: misprint"]
    users, items, *_, first, last = rows(found, [same, other])
    assert users == {"": "users", "this file": "3", "same": "3", "other": "4 *"}
    assert items == {"": "items", "this file": "3", "same": "3", "other": None}
    assert (first["this file"], last["this file"]) == ("1970-01-01", "1970-01-01 00:00:30")
    assert [row["this file"] for row in rows(found, [], clock="steps")[-2:]] == ["step 0", "step 30"]
    assert rows(found, [], clock="positions")[-1] == {"": "times", "this file": "positions"}
