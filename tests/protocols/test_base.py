"""Rules of every split: it is checked for leaks, wrong arguments are named, cases are drawn once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recbole_hyper.errors import ConfigError
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
    ("split", "match"),
    [
        ({"GT": {"valid": "2031-01-01", "test": "2032-01-01"}}, r"'2031-01-01' is 2031.*outside the data"),
        ({"GT": {"valid": "1969-01-01", "test": 0.9}}, r"outside the data, which run from 1970"),
        ({"GT": {"valid": "9 years", "test": 0.9}}, r"'9 years'.*outside the data"),
        ({"GT": {"valid": "999999999999999 years", "test": 0.9}}, "is outside every calendar"),
        ({"GT": {"valid": 1.5, "test": 0.9}}, "a quantile must be between 0 and 1"),
        ({"GT": {"valid": "soon", "test": 0.9}}, r"not a quantile.*a date.*a duration"),
        ({"GT": {"valid": 0.9, "test": 0.5}}, "must start before test"),
        ({"GT": {"valid": 0.9, "test": 0.9}}, "must start before test"),
        ({"GT": 0.9}, "is expected"),
        ({"GT": {"valid": 0.5, "test": 0.9, "max_cases": 0}}, "max_cases=0"),
        ({"GT": {"valid": 0.5, "test": 0.9, "target": "first"}}, "last, all or ~ is expected"),
        ({"GT": {"valid": "1970-01-01 00:00:02", "test": 0.9}}, "the test part has no case"),
        ({"TU": {"point": 0.9, "span": 1}}, "known settings are point, history"),
        ({"TU": {"point": 0.9, "history": "some"}}, "after or full is expected"),
        ({"TU": 0.9}, "leave no interaction"),
        ({"TU": {"point": "1970-01-01 00:00:02", "min_item_users": 1, "min_user_items": 1}}, "none can train"),
        ({"LS": "all"}, "must be valid_and_test or"),
        ({"RS": [0.5, 0.5]}, "three shares"),
        ({"RS": [-1, 1, 1]}, "three shares"),
        ({"LS": "valid_and_test", "RS": [1, 1, 1]}, "must be one entry"),
    ],
)
def test_splits_that_cannot_be_made(split: dict[str, Any], match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        make_split(store_of(BY_HAND), config_of(split))


def test_an_unknown_split_is_named() -> None:
    with refused(ConfigError, "GT", "LS", "RS", "TS", "TU"):
        make_split(store_of(BY_HAND), config_of({"XX": 1}))


def test_refit_is_refused_where_it_has_no_meaning() -> None:
    for split, need in (({"LS": "test_only"}, "a validation part"), ({"TU": 0.9}, "a split by time")):
        with pytest.raises(ProtocolError, match=f"refit: True needs {need}"):
            make_split(store_of(BY_HAND), config_of(split, refit=True))


def test_an_empty_validation_part_is_an_error() -> None:
    # between the points nothing but an unknown item
    triples: list[Triple] = [("a", "x", 1), ("a", "y", 2), ("a", "new", 12), ("a", "x", 22), ("b", "y", 30)]
    with refused(ProtocolError, "validation", "case"):
        make_split(store_of(triples), config_of({"GT": POINTS}))
    short: list[Triple] = [(u, i, float(t)) for u in "abc" for t, i in enumerate("xyz")]
    with refused(ProtocolError, "user", "interactions"):
        make_split(store_of(short), config_of({"LS": "valid_and_test"}))


def test_the_same_cases_come_from_a_config_object(random_data: Path) -> None:
    from recbole_hyper.config import Config
    from recbole_hyper.runs.dataset import SequenceDataset

    keys = {
        "data_path": str(random_data),
        "eval_args": {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True},
    }
    config = Config("SASRecCE", "random", config_dict=keys)
    store = SequenceDataset(config).store
    split = make_split(store, config)
    times = np.sort(store.times)
    assert split.points["test"] == times[round(0.8 * (len(times) - 1))]
    assert split.counts["protocol"] == "global timepoint"
    assert SimpleNamespace(**config["eval_args"]).successive is True


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
    assert repeated_targets(cases) == expected > 0
    counts = np.bincount(cases.store.items, minlength=cases.store.n_items)
    assert cases.store.counts().tolist() == counts.tolist()
