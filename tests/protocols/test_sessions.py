"""Held-out sessions: every prefix is a case, the newest training sessions validate, and a session is never cut."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.protocols.base import ProtocolError, make_split
from tests.protocols.splits import config_of, store_of

TRIPLES = [
    *(("a", "1", 0), ("a", "2", 1), ("a", "1", 2)),
    *(("b", "3", 1), ("b", "2", 9)),  # begins before the point, ends after it: trains
    *(("c", "2", 3), ("c", "3", 4)),
    *(("d", "1", 6), ("d", "3", 7), ("d", "1", 8)),
]


def cases_by_loops(triples: list, users: list[str]) -> list[tuple[list[str], str]]:
    found = []
    for user in users:
        items = [item for name, item, _ in sorted(triples, key=lambda one: one[2]) if name == user]
        found += [(items[:end], items[end]) for end in range(1, len(items))]
    return found


def as_tokens(cases: object) -> list[tuple[list[str], str]]:
    store = cases.store
    return [
        (
            [str(store.item_tokens[item]) for item in store.items[store.offsets[row] :][:end]],
            str(store.item_tokens[target]),
        )
        for row, end, target in zip(cases.rows, cases.ends, cases.targets, strict=True)
    ]


def test_by_hand() -> None:
    split = make_split(store_of(TRIPLES), config_of({"SE": {"test": "1970-01-01 00:00:05", "valid": 0.7}}))
    # a ends at 2, c at 4, b at 9: the newest of three validates
    assert as_tokens(split.valid) == cases_by_loops(TRIPLES, ["b"])
    assert as_tokens(split.test) == cases_by_loops(TRIPLES, ["d"])
    assert split.train_lengths.sum() == 5
    assert split.counts["training sessions"] == 2
    assert split.refit_lengths is None
    alone = make_split(store_of([*TRIPLES, ("e", "1", 9)]), config_of({"SE": {"test": "1970-01-01 00:00:05"}}))
    assert alone.counts["held-out sessions of one item, left out"] == 1


def test_a_refit_trains_on_validation_too(tmp_path: Path) -> None:
    listed = tmp_path / "test_sessions.txt"
    listed.write_text("c\na\n")
    config = {**config_of({"SE": {"test": str(listed), "valid": 0.5}}), "refit": True}
    split = make_split(store_of(TRIPLES), config)
    assert sorted(as_tokens(split.test)) == sorted(cases_by_loops(TRIPLES, ["a", "c"]))
    assert as_tokens(split.valid) == cases_by_loops(TRIPLES, ["b"])
    assert split.refit_lengths.sum() == 5


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ({"test": 0.9, "share": 1}, "valid"),
        ({"test": 0.9, "valid": 2}, "valid=2"),
        ("1970-01-01 00:00:07", "0 are tested"),
        ("1971-01-01", "outside the data"),
    ],
)
def test_what_is_wrong_is_named(argument: object, named: str) -> None:
    with pytest.raises(ProtocolError) as error:
        make_split(store_of(TRIPLES), config_of({"SE": argument}))
    assert named in str(error.value)


def test_an_unknown_session_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "sessions.txt"
    listed.write_bytes(b"\xef\xbb\xbfa\nnob\xe9dy\n")
    with pytest.raises(ProtocolError) as error:
        make_split(store_of(TRIPLES), config_of({"SE": {"test": str(listed)}}))
    assert "1 of 2 ids" in str(error.value)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 6), min_size=8, max_size=12), st.floats(0.5, 0.8))
def test_every_interaction_of_a_session_is_on_one_side(lengths: list[int], point: float) -> None:
    triples, clock = [], 0
    for number, length in enumerate(lengths):
        triples += [(f"u{number:02}", str(place % 3), clock + place) for place in range(length)]
        clock += length
    split = make_split(store_of(triples), config_of({"SE": {"test": point, "valid": 0.5}}))
    held = set(split.valid.rows) | set(split.test.rows)
    assert not held & set(np.flatnonzero(split.train_lengths))
    assert not set(split.valid.rows) & set(split.test.rows)
    counted = split.train_lengths.sum() + len(split.valid) + len(split.test) + len(held)
    assert counted == sum(lengths)
    assert split.test.times.min() > split.valid.times.max()
