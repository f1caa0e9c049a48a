"""Leave-one-out: by hand, against plain loops, and against RecBole's own split."""

import numpy as np
from hypothesis import given, settings

from recbole_hyper.protocols.base import ProtocolError, cold_targets, make_split
from tests.protocols.splits import TRIPLES, Triple, config_of, store_of, unpack, without_empty
from tests.reference import protocols as reference


def test_leave_one_out_by_hand() -> None:
    rows = {"one": "a", "two": "ab", "three": "abc", "four": "abcd"}
    triples = [(user, item, float(time)) for user, items in rows.items() for time, item in enumerate(items)]
    train, valid, test = unpack(make_split(store_of(triples), config_of({"LS": "valid_and_test"})))
    assert train == {"one": ["a"], "two": ["a", "b"], "three": ["a", "b"], "four": ["a", "b"]}
    assert valid == [("four", ("a", "b"), "c")]
    assert test == [("four", ("a", "b", "c"), "d"), ("three", ("a", "b"), "c")]
    refit = make_split(store_of(triples), config_of({"LS": "valid_and_test"}, refit=True))
    assert refit.refit_lengths is not None
    # all but the test items; a user without a test case keeps everything
    held_out = np.isin(np.arange(refit.store.n_rows), refit.test.rows)
    assert refit.refit_lengths.tolist() == (refit.store.lengths - held_out).tolist()
    only = make_split(store_of(triples), config_of({"LS": "test_only"}))
    assert len(only.valid) == 0
    assert only.train_lengths.tolist() == [3, 1, 2, 2]
    assert cold_targets(only.test, only) == 1  # d


@given(TRIPLES)
@settings(max_examples=80, deadline=None)
def test_leave_one_out_equals_the_loops(triples: list[Triple]) -> None:
    expected = reference.leave_one_out(triples)
    try:
        split = make_split(store_of(triples), config_of({"LS": "valid_and_test"}))
    except ProtocolError:
        assert not expected[1]
        return
    assert unpack(split) == without_empty(expected)
