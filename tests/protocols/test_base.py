"""Rules of every split: it is checked for leaks, wrong arguments are named, cases are drawn once."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from recbole_hyper.protocols.base import ProtocolError, check, make_split, repeated_targets
from recbole_hyper.types import Cases, Split
from tests.protocols.splits import BY_HAND, POINTS, Triple, config_of, store_of
from tests.raising import refused


def a_split() -> Split:
    return make_split(store_of(BY_HAND), config_of({"GT": POINTS}, eval_args={"successive": True}, refit=True))


def test_check_refuses_dishonest_splits() -> None:
    split = a_split()
    check(split)
    with refused(ProtocolError, "training", "interactions"):
        check(dataclasses.replace(split, train_lengths=np.array([3, 3, 0, 0])))
    with refused(ProtocolError, "interactions", "wrong"):
        check(dataclasses.replace(split, refit_lengths=np.array([5, 4, 0, 0])))
    ends = split.test.ends.copy()
    ends[0] = 0
    with refused(ProtocolError, "empty", "history"):
        check(dataclasses.replace(split, test=dataclasses.replace(split.test, ends=ends)))
    with refused(ProtocolError, "validation", "interactions"):
        check(dataclasses.replace(split, valid=split.test, test=split.test[:0]))
    plain = dataclasses.replace(split, points={}, valid=split.valid[:0])
    early = Cases.build(plain.store, [0], [1])
    with refused(ProtocolError, "targets", "training"):
        check(dataclasses.replace(plain, test=early))
    other = dataclasses.replace(split.store)  # another store with the same rows: only times can tell
    with refused(ProtocolError, "targets", "training"):
        check(dataclasses.replace(plain, test=Cases.build(other, [1], [1])))
    both = Cases.build(plain.store, [0], [5])
    with refused(ProtocolError, "validation", "earlier"):
        check(dataclasses.replace(plain, valid=both, test=both))


@pytest.mark.parametrize(
    ("split", "named"),
    [
        ({"GT": {"valid": "2031-01-01", "test": "2032-01-01"}}, "'2031-01-01'"),
        ({"GT": {"valid": "9 years", "test": 0.9}}, "'9 years'"),
        ({"GT": {"valid": "999999999999999 years", "test": 0.9}}, "outside every calendar"),
        ({"GT": {"valid": 1.5, "test": 0.9}}, "between 0 and 1"),
        ({"GT": {"valid": "soon", "test": 0.9}}, "a duration"),
        ({"GT": {"valid": 0.9, "test": 0.9}}, "before test"),
        ({"GT": 0.9}, "is expected"),
        ({"GT": {"valid": 0.5, "test": 0.9, "max_cases": 0}}, "max_cases=0"),
        ({"GT": {"valid": 0.5, "test": 0.9, "target": "first"}}, "last, all or ~"),
        ({"GT": {"valid": 0.5, "test": 0.9, "gap": "4 months", "target": "all"}}, "gap='4 months'"),
        ({"GT": {"valid": "1970-01-01 00:00:02", "test": 0.9}}, "the test part has no case"),
        ({"TU": {"point": 0.9, "span": 1}}, "point, history"),
        ({"TU": 0.9}, "leave no interaction"),
        ({"TU": {"point": "1970-01-01 00:00:02", "min_item_users": 1, "min_user_items": 1}}, "none can train"),
        ({"LS": "all"}, "valid_and_test"),
        ({"RS": [-1, 1, 1]}, "three shares"),
        ({"LS": "valid_and_test", "RS": [1, 1, 1]}, "one entry"),
        ({"XX": 1}, "LS"),
    ],
)
def test_splits_that_cannot_be_made(split: dict[str, Any], named: str) -> None:
    with refused(ValueError, named):
        make_split(store_of(BY_HAND), config_of(split))


def test_refit_is_refused_where_it_has_no_meaning() -> None:
    for split, need in (({"LS": "test_only"}, "a validation part"), ({"TU": 0.9}, "a split by time")):
        with refused(ProtocolError, need):
            make_split(store_of(BY_HAND), config_of(split, refit=True))


def test_an_empty_validation_part_is_an_error() -> None:
    # between the points nothing but an unknown item
    triples: list[Triple] = [("a", "x", 1), ("a", "y", 2), ("a", "new", 12), ("a", "x", 22), ("b", "y", 30)]
    with refused(ProtocolError, "validation", "case"):
        make_split(store_of(triples), config_of({"GT": POINTS}))
    short: list[Triple] = [(u, i, float(t)) for u in "abc" for t, i in enumerate("xyz")]
    with refused(ProtocolError, "user", "interactions"):
        make_split(store_of(short), config_of({"LS": "valid_and_test"}))


def test_cases_are_drawn_once_and_keep_their_order() -> None:
    rows = [(f"u{user}", f"i{(user + step) % 9}", float(user + step)) for user in range(40) for step in range(6)]
    whole = make_split(store_of(rows), config_of({"LS": "valid_and_test"}))
    some = make_split(store_of(rows), config_of({"LS": "valid_and_test"}, eval_cases=12))
    again = make_split(store_of(rows), config_of({"LS": "valid_and_test"}, eval_cases=12))
    other = make_split(store_of(rows), config_of({"LS": "valid_and_test"}, eval_cases=12, candidate_seed=8))
    assert some.valid.rows.tolist() == again.valid.rows.tolist() != other.valid.rows.tolist()
    assert some.valid.rows.tolist() != some.test.rows.tolist()
    assert (np.diff(some.test.rows) > 0).all()
    assert (some.test.ends == whole.test.ends[np.searchsorted(whole.test.rows, some.test.rows)]).all()
    assert some.counts["test cases drawn of 40"] == 12
    assert len(make_split(store_of(rows), config_of({"LS": "valid_and_test"}, eval_cases=99)).test) == 40


def test_repeats_are_found_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    rows = [(f"u{user}", f"i{draw.integers(4)}", float(step)) for user in range(30) for step in range(3 + user % 6)]
    cases = make_split(store_of(rows), config_of({"LS": "valid_and_test"})).test
    expected = sum(
        target in cases.store.row(row)[:end]
        for row, end, target in zip(cases.rows, cases.ends, cases.targets, strict=True)
    )
    monkeypatch.setattr("recbole_hyper.data.sequences._STRETCH", 7)
    assert repeated_targets(cases).sum() == expected > 0
    counts = np.bincount(cases.store.items, minlength=cases.store.n_items)
    assert cases.store.counts().tolist() == counts.tolist()
