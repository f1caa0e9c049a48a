"""Last basket out: by hand, against plain loops, and the ties that leave-one-out counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.protocols.base import ProtocolError, make_split
from tests.protocols.splits import Triple, config_of, store_of, unpack, without_empty
from tests.reference import protocols as reference

ROWS = st.lists(
    st.tuples(st.sampled_from("uvw"), st.sampled_from("abcdef"), st.integers(0, 4).map(float)), min_size=1, max_size=40
)


def by_hand() -> list[Triple]:
    orders = {"one": ["ab"], "two": ["a", "bc"], "three": ["ab", "cd", "eaf"], "four": ["a", "b", "cc", "dd"]}
    return [(user, item, float(time)) for user, row in orders.items() for time, one in enumerate(row) for item in one]


def test_last_basket_by_hand() -> None:
    split = make_split(store_of(by_hand()), config_of({"LB": "valid_and_test"}))
    train, valid, test = unpack(split)
    assert train == {"one": ["a", "b"], "two": ["a"], "three": ["a", "b"], "four": ["a", "b"]}
    assert valid == [("four", ("a", "b"), "c"), ("three", ("a", "b"), "c"), ("three", ("a", "b"), "d")]
    history = ("a", "b", "c", "d")
    assert test == [
        ("four", ("a", "b", "c", "c"), "d"),
        *(("three", history, item) for item in "eaf"),
        ("two", ("a",), "b"),
        ("two", ("a",), "c"),
    ]
    assert split.counts["users with 1 basket, trained on only"] == 1
    assert split.counts["users with 2 baskets, without a validation case"] == 1
    assert split.counts["targets that repeat an item of their basket, left out"] == 2
    assert not any("at the time of" in name for name in split.counts)


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_last_basket_equals_the_loops(triples: list[Triple]) -> None:
    expected = reference.last_basket(triples)
    try:
        split = make_split(store_of(triples), config_of({"LB": "valid_and_test"}))
    except ProtocolError:
        assert not expected[1] or max(map(len, expected[0].values())) < 2
        return
    found = unpack(split)
    assert (found[0], sorted(found[1]), sorted(found[2])) == (
        without_empty(expected)[0], sorted(expected[1]), sorted(expected[2]),
    )  # fmt: skip


def test_one_part_only_and_a_refit() -> None:
    store = store_of(by_hand())
    only = make_split(store, config_of({"LB": "test_only"}))
    assert len(only.valid) == 0
    assert only.train_lengths.tolist() == [4, 2, 4, 1]  # four, one, three, two
    valid = make_split(store, config_of({"LB": "valid_only"}))
    assert len(valid.test) == 0
    refit = make_split(store, config_of({"LB": "valid_and_test"}, refit=True))
    assert refit.refit_lengths is not None
    assert refit.refit_lengths.tolist() == [4, 2, 4, 1]


@pytest.mark.parametrize(
    ("split", "more", "message"),
    [
        ({"LB": "last"}, {}, "it must be valid_and_test or valid_only or test_only"),
        ({"LB": "valid_and_test"}, {"eval_args": {"successive": True}}, "drop successive"),
        ({"LB": "test_only"}, {"refit": True}, "needs a validation part"),
    ],
)
def test_what_is_refused(split: dict, more: dict, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        make_split(store_of(by_hand()), config_of(split, **more))


def test_leave_one_out_counts_targets_inside_an_order() -> None:
    rows = {"u": [1, 2, 3, 3, 4], "v": [1, 2, 3, 4, 4], "w": [1, 2, 3, 4, 5]}
    triples = [(user, f"i{n}", float(time)) for user, times in rows.items() for n, time in enumerate(times)]
    counts = make_split(store_of(triples), config_of({"LS": "valid_and_test"})).counts
    assert counts["validation targets at the time of their history's last interaction"] == 1
    assert counts["test targets at the time of their history's last interaction"] == 1
    alone = [(user, item, float(n)) for n, (user, item, _) in enumerate(triples)]
    split = make_split(store_of(alone), config_of({"LS": "valid_and_test"}))
    assert not any("at the time of" in name for name in split.counts)
    # a case of the split by baskets has no item of its order in its history
    for part in (split := make_split(store_of(triples), config_of({"LB": "valid_and_test"}))).test, split.valid:
        last = part.store.times[part.store.offsets[part.rows] + part.ends - 1]
        assert np.all(last < part.times)
