"""The temporal users split: by hand, and against plain loops."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.protocols.base import ProtocolError, make_split
from tests.protocols.splits import TRIPLES, config_of, store_of, unpack
from tests.reference import protocols as reference


def test_temporal_users_by_hand() -> None:
    rows = {"p": "abcd", "q": "abcd", "r": "dcba", "s": "abc"}
    triples = [(user, item, float(time)) for user, items in rows.items() for time, item in enumerate(items)]
    # t is active before and after the point, v only after and on an untrained item, w has too little left
    triples += [("t", item, time) for item, time in zip("abcd", (8.0, 11.0, 12.0, 13.0), strict=True)]
    triples += [("v", item, time) for item, time in zip("abez", (14.0, 15.0, 16.0, 17.0), strict=True)]
    triples += [("w", item, time) for item, time in zip("abz", (1.0, 2.0, 18.0), strict=True)]
    setting = {"point": "1970-01-01 00:00:10", "min_item_users": 1, "min_user_items": 1}
    train, valid, test = unpack(make_split(store_of(triples), config_of({"TU": setting})))
    assert sorted(train) == ["p", "q", "r", "s"]
    assert train["r"] == ["d", "c", "b", "a"]
    assert (valid, test) == ([("t", ("b",), "c")], [("t", ("b", "c"), "d")])
    full = unpack(make_split(store_of(triples), config_of({"TU": {**setting, "history": "full"}})))
    # w's known items all precede the point: nothing to test
    assert full[1:] == ([("t", ("a", "b"), "c")], [("t", ("a", "b", "c"), "d")])
    # items of one user go first, then users of fewer than four items; s and w fall away, so does nobody else
    filtered = make_split(store_of(triples), config_of({"TU": {**setting, "min_item_users": 2, "min_user_items": 4}}))
    assert sorted(unpack(filtered)[0]) == ["p", "q", "r"]
    assert filtered.counts["held-out users"] == 1
    label = f"of {len(triples)} interactions, left by min_item_users=2 and min_user_items=4"
    assert filtered.counts[label] == len(filtered.store.items) < len(triples)


@given(
    TRIPLES, st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from(["after", "full"]), st.integers(1, 3), st.integers(1, 4)
)
@settings(max_examples=120, deadline=None)
def test_temporal_users_equal_the_loops(triples, quantile, history, min_item_users, min_user_items) -> None:
    setting = {
        "point": quantile,
        "history": history,
        "min_item_users": min_item_users,
        "min_user_items": min_user_items,
    }

    def quantile_time(times: list[float]) -> float:
        return float(np.quantile(times, quantile, method="nearest")) if times else 0.0

    expected = reference.temporal_users(triples, quantile_time, history, min_item_users, min_user_items)
    try:
        split = make_split(store_of(triples), config_of({"TU": setting}))
    except ProtocolError:
        assert not expected[2] or not any(len(items) >= 2 for items in expected[0].values())
        return
    assert unpack(split) == expected
