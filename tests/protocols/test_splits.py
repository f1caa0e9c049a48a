"""Every protocol: by hand on a few rows, against plain loops on random data, and against RecBole's own splits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper import registry
from recbole_hyper.config import Config
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import ProtocolError, check, cold_targets, make_split, repeated_targets
from recbole_hyper.protocols.boundaries import boundary, date
from recbole_hyper.protocols.ratio import part_sizes
from recbole_hyper.types import Cases, Split
from tests.conftest import write_inter
from tests.reference import protocols as reference

Triple = tuple[str, str, float]


def store_of(triples: list[Triple]) -> SequenceStore:
    users = sorted({user for user, _, _ in triples})
    items = sorted({item for _, item, _ in triples})
    return SequenceStore.from_interactions(
        [users.index(user) + 1 for user, _, _ in triples],
        [items.index(item) + 1 for _, item, _ in triples],
        [time for _, _, time in triples],
        ["[PAD]", *users],
        ["[PAD]", *items],
    )


def config_of(split: dict[str, Any], **keys: Any) -> dict[str, Any]:
    mode = keys.pop("mode", "full")
    arguments = {"split": split, "order": "TO", "mode": {"valid": mode, "test": mode}, **keys.pop("eval_args", {})}
    return {"eval_args": arguments, "refit": False, "candidate_seed": 7, "eval_cases": None, **keys}


def unpack(split: Split) -> reference.Parts:
    """Turn pointers into names."""
    store = split.store
    train = {
        str(store.user_tokens[store.users[row]]): [str(store.item_tokens[i]) for i in store.row(row)[:length]]
        for row, length in enumerate(split.train_lengths)
        if length
    }

    def cases(part: Cases) -> list[reference.Case]:
        return [
            (
                str(part.store.user_tokens[part.store.users[row]]),
                tuple(str(part.store.item_tokens[i]) for i in part.store.row(row)[start:end]),
                str(part.store.item_tokens[target]),
            )
            for row, start, end, target in zip(part.rows, part.starts, part.ends, part.targets, strict=True)
        ]

    return train, cases(split.valid), cases(split.test)


def without_empty(parts: reference.Parts) -> reference.Parts:
    return {user: items for user, items in parts[0].items() if items}, parts[1], parts[2]


# x is seen by many, "late" first after the test starts, "mid" first in validation; user n is new in the test part
BY_HAND: list[Triple] = [
    ("a", "x", 1), ("a", "y", 2), ("a", "z", 12), ("a", "mid", 13), ("a", "w", 21), ("a", "mid", 22), ("a", "x", 23),
    ("b", "w", 3), ("b", "z", 4), ("b", "x", 5), ("b", "y", 14),
    ("n", "late", 24), ("n", "y", 25), ("n", "late", 26), ("n", "w", 27),
    ("o", "z", 28),
]  # fmt: skip
POINTS = {"valid": "1970-01-01 00:00:10", "test": "1970-01-01 00:00:20"}


def test_global_timepoint_by_hand() -> None:
    split = make_split(store_of(BY_HAND), config_of({"GT": POINTS}, eval_args={"successive": True}))
    train, valid, test = unpack(split)
    assert train == {"a": ["x", "y"], "b": ["w", "z", "x"]}
    assert valid == [("a", ("x", "y"), "z"), ("b", ("w", "z", "x"), "y")]
    # mid and late were not trained on: neither targets nor history; n's first known item is history; o has one item
    assert test == [("a", ("x", "y", "z"), "w"), ("a", ("x", "y", "z", "w"), "x"), ("n", ("y",), "w")]
    assert split.refit_lengths is None
    counts = split.counts
    assert counts["validation interactions with unknown items, left out"] == 1
    assert counts["test interactions with unknown items, left out"] == 3
    assert counts["validation users"] == 2
    assert counts["test users"] == 2
    assert counts["test users without earlier interactions"] == 1
    names = [str(t) for t in split.store.item_tokens]
    assert sorted(np.array(names)[split.catalogue]) == ["w", "x", "y", "z"]
    assert repeated_targets(split.test) == 1  # a repeats x
    later = dataclasses.replace(split.test, starts=split.test.ends - 1)
    assert repeated_targets(later) == 0  # x is not in the part of the history that counts
    assert cold_targets(split.test, split) == 0


def test_global_timepoint_with_refit_knows_the_items_of_validation_in_the_test_only() -> None:
    split = make_split(store_of(BY_HAND), config_of({"GT": POINTS}, eval_args={"successive": True}, refit=True))
    _, valid, test = unpack(split)
    assert valid == [("a", ("x", "y"), "z"), ("b", ("w", "z", "x"), "y")]
    assert test == [
        ("a", ("x", "y", "z", "mid"), "w"),
        ("a", ("x", "y", "z", "mid", "w"), "mid"),
        ("a", ("x", "y", "z", "mid", "w", "mid"), "x"),
        ("n", ("y",), "w"),
    ]
    assert split.refit_lengths is not None
    assert split.refit_lengths.tolist() == [4, 4, 0, 0]
    names = np.array([str(t) for t in split.store.item_tokens])
    assert sorted(names[split.candidates("test")]) == ["mid", "w", "x", "y", "z"]
    assert sorted(names[split.candidates("valid")]) == ["w", "x", "y", "z"]


def test_drawn_candidates_of_validation_are_items_known_then() -> None:
    rows = [(f"u{user}", f"i{item}", 10.0 * item) for user in range(4) for item in range(user, user + 3)]
    rows += [("u3", "late", 100.0), ("u0", "i5", 101.0), ("u1", "i5", 102.0), ("u0", "i4", 120.0), ("u1", "i0", 121.0)]
    points = {"GT": {"valid": 0.75, "test": 0.9}}
    drawn = {"successive": True, "mode": {"valid": "uni1", "test": "uni1"}}
    seen: set[str] = set()
    for seed in range(20):
        split = make_split(store_of(rows), config_of(points, eval_args=drawn, refit=True, candidate_seed=seed))
        names = np.array([str(t) for t in split.store.item_tokens])
        assert len(split.valid) > 0
        assert "late" not in names[split.valid.candidates.ravel()]
        seen |= set(names[split.test.candidates.ravel()])
    assert "late" in seen


def test_global_timepoint_without_successive_asks_once_per_user() -> None:
    split = make_split(store_of(BY_HAND), config_of({"GT": POINTS}))
    assert unpack(split)[2] == [("a", ("x", "y", "z"), "w"), ("n", ("y",), "w")]


def test_global_timepoint_with_the_last_item_as_target() -> None:
    _, valid, test = unpack(make_split(store_of(BY_HAND), config_of({"GT": {**POINTS, "target": "last"}})))
    assert valid == [("a", ("x", "y"), "z"), ("b", ("w", "z", "x"), "y")]
    assert test == [("a", ("x", "y", "z", "w"), "x"), ("n", ("y",), "w")]
    with pytest.raises(ProtocolError, match="drop successive"):
        make_split(store_of(BY_HAND), config_of({"GT": {**POINTS, "target": "last"}}, eval_args={"successive": True}))


def test_an_interaction_at_the_point_belongs_to_the_later_part() -> None:
    points = {"valid": "1970-01-01 00:00:12", "test": "1970-01-01 00:00:21"}
    train, valid, test = unpack(make_split(store_of(BY_HAND), config_of({"GT": points})))
    assert train["a"] == ["x", "y"]
    assert valid[0] == ("a", ("x", "y"), "z")
    assert test[0] == ("a", ("x", "y", "z"), "w")


def test_max_cases_moves_the_start_of_a_part() -> None:
    triples = [(f"u{t % 3}", f"i{t % 5}", float(t)) for t in range(60)]
    config = config_of({"GT": {"valid": 0.5, "test": 0.8, "max_cases": 6}}, eval_args={"successive": True})
    split = make_split(store_of(triples), config)
    assert split.points == {"valid": 48.0, "test": 54.0}
    assert (len(split.valid), len(split.test)) == (6, 6)
    tied = [(user, item, float(time // 4 * 4)) for user, item, time in triples]  # groups of four equal times
    split = make_split(store_of(tied), config)
    assert split.points == {"valid": 52.0, "test": 56.0}
    assert (len(split.valid), len(split.test)) == (4, 4)


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


TRIPLES = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.sampled_from("qrstuvwxyz"), st.integers(0, 30).map(float)),
    min_size=12,
    max_size=70,
)


@given(TRIPLES, st.tuples(st.integers(1, 29), st.integers(1, 29)).map(sorted), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_global_timepoint_equals_the_loops(
    triples: list[Triple], points: list[int], successive: bool, refit: bool
) -> None:
    def stamp(second: int) -> str:
        return f"1970-01-01 00:00:{second:02d}"

    setting = {"valid": stamp(points[0]), "test": stamp(points[1])}
    config = config_of({"GT": setting}, eval_args={"successive": successive}, refit=refit)
    expected = without_empty(reference.global_timepoint(triples, *points, successive, refit))
    try:
        split = make_split(store_of(triples), config)
    except ProtocolError:
        times = [time for _, _, time in triples]
        outside = any(not min(times) < point <= max(times) for point in points)
        trainable = any(len(items) >= 2 for items in expected[0].values())
        assert outside or points[0] == points[1] or not (expected[1] and expected[2] and trainable)
        return
    assert unpack(split) == expected
    assert expected[1]
    assert expected[2]


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


@given(
    TRIPLES, st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from(["after", "full"]), st.integers(1, 3), st.integers(1, 4)
)
@settings(max_examples=120, deadline=None)
def test_temporal_users_equal_the_loops(
    triples: list[Triple], quantile: float, history: str, min_item_users: int, min_user_items: int
) -> None:
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


# --- RecBole's own splits --------------------------------------------------------------------------------------------
def recbole_split(data: Path, eval_split: dict[str, Any], group_by: str = "user") -> list[list[reference.Case]]:
    """(user, history, target) of every row of RecBole's own SequentialDataset.build()."""
    from recbole.data.dataset import SequentialDataset

    from recbole_hyper.config import Config

    arguments = {"split": eval_split, "group_by": group_by}
    keys = {"data_path": str(data), "use_gpu": False, "eval_args": arguments, "MAX_ITEM_LIST_LENGTH": 40}
    config = Config("SASRecCE", "small", config_dict=keys)
    dataset = SequentialDataset(config)
    parts: list[list[reference.Case]] = []
    for part in dataset.build():
        rows = part.inter_feat
        cases = []
        for index in range(len(rows)):
            length = int(rows["item_length"][index])
            history = dataset.field2id_token["item_id"][rows["item_id_list"][index][:length].numpy()]
            target = dataset.id2token("item_id", rows["item_id"][index])
            cases.append(
                (str(dataset.id2token("user_id", rows["user_id"][index])), tuple(map(str, history)), str(target))
            )
        parts.append(sorted(cases))
    return parts


@pytest.mark.parametrize(
    "eval_split",
    [
        {"LS": "valid_and_test"},
        {"LS": "test_only"},
        {"LS": "valid_only"},
        {"RS": [0.8, 0.1, 0.1]},
        {"RS": [0.5, 0.2, 0.3]},
        {"RS": [0.34, 0.33, 0.33]},
        {"RS": [7, 0, 3]},
    ],
)
def test_ls_and_rs_equal_recboles_own_split(tmp_path: Path, eval_split: dict[str, Any]) -> None:
    from tests.conftest import write_inter

    generator = np.random.default_rng(3)
    triples: list[Triple] = []
    for user in range(60):
        times = np.sort(generator.choice(500, size=int(generator.integers(1, 30)), replace=False))
        triples += [(f"u{user:02d}", f"i{generator.integers(0, 50):02d}", float(time)) for time in times]
    data = write_inter(tmp_path, "small", triples)
    theirs = recbole_split(data, eval_split)
    split = make_split(store_of(triples), config_of(eval_split))
    _, valid, test = unpack(split)
    assert sorted(valid) == theirs[1]
    assert sorted(test) == theirs[2]
    # RecBole's training rows are every prefix of the training part
    prefixes = [
        (user, tuple(items[:end]), items[end])
        for user, items in unpack(split)[0].items()
        for end in range(1, len(items))
    ]
    assert sorted(prefixes) == theirs[0]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20), st.lists(st.integers(0, 9), min_size=3, max_size=3))
@settings(max_examples=100, deadline=None)
def test_part_sizes_are_recboles(totals: list[int], ratios: list[int]) -> None:
    from recbole.data.dataset import Dataset

    if not sum(ratios):
        return
    shares = [ratio / sum(ratios) for ratio in ratios]
    ours = part_sizes(np.array(totals), [float(ratio) for ratio in ratios])
    for total, sizes in zip(totals, ours, strict=True):
        cuts = Dataset._calcu_split_ids(None, tot=total, ratios=shares)
        assert np.cumsum(sizes)[:-1].tolist() == list(cuts)
        assert sizes.sum() == total


# --- honesty ---------------------------------------------------------------------------------------------------------
def a_split() -> Split:
    return make_split(store_of(BY_HAND), config_of({"GT": POINTS}, eval_args={"successive": True}, refit=True))


def test_check_refuses_dishonest_splits() -> None:
    split = a_split()
    check(split)
    with pytest.raises(ProtocolError, match="1 users' training interactions are on the wrong side"):
        check(dataclasses.replace(split, train_lengths=np.array([3, 3, 0, 0])))
    with pytest.raises(ProtocolError, match="refit interactions are on the wrong side"):
        check(dataclasses.replace(split, refit_lengths=np.array([5, 4, 0, 0])))
    ends = split.test.ends.copy()
    ends[0] = 0
    with pytest.raises(ProtocolError, match=r"test: 1 cases have an empty history"):
        check(dataclasses.replace(split, test=dataclasses.replace(split.test, ends=ends)))
    with pytest.raises(ProtocolError, match="4 validation interactions are on the wrong side"):
        check(dataclasses.replace(split, valid=split.test, test=split.test[:0]))
    plain = dataclasses.replace(split, points={}, valid=split.valid[:0])
    early = Cases.build(plain.store, [0], [1])
    with pytest.raises(ProtocolError, match="1 targets are part of the training data"):
        check(dataclasses.replace(plain, test=early))
    other = dataclasses.replace(split.store)  # another store with the same rows: only times can tell
    with pytest.raises(ProtocolError, match="1 targets are older than their user's training data"):
        check(dataclasses.replace(plain, test=Cases.build(other, [1], [1])))
    both = Cases.build(plain.store, [0], [5])
    with pytest.raises(ProtocolError, match="1 validation targets are not earlier"):
        check(dataclasses.replace(plain, valid=both, test=both))


@pytest.mark.parametrize(
    ("split", "match"),
    [
        ({"GT": {"valid": "2031-01-01", "test": "2032-01-01"}}, r"'2031-01-01' is 2031.*outside the data"),
        ({"GT": {"valid": "1969-01-01", "test": 0.9}}, r"outside the data, which reach from 1970"),
        ({"GT": {"valid": "9 years", "test": 0.9}}, r"'9 years'.*outside the data"),
        ({"GT": {"valid": "999999999999999 years", "test": 0.9}}, "is outside every calendar"),
        ({"GT": {"valid": 1.5, "test": 0.9}}, "a quantile lies between 0 and 1"),
        ({"GT": {"valid": "soon", "test": 0.9}}, r"no quantile.*no date.*no duration"),
        ({"GT": {"valid": 0.9, "test": 0.5}}, "must start before test"),
        ({"GT": {"valid": 0.9, "test": 0.9}}, "must start before test"),
        ({"GT": 0.9}, "is expected"),
        ({"GT": {"valid": 0.5, "test": 0.9, "max_cases": 0}}, "max_cases=0"),
        ({"GT": {"valid": 0.5, "test": 0.9, "target": "first"}}, "last or ~ is expected"),
        ({"GT": {"valid": "1970-01-01 00:00:02", "test": 0.9}}, "the test part has no case"),
        ({"TU": {"point": 0.9, "span": 1}}, "mapping of point, history"),
        ({"TU": {"point": 0.9, "history": "some"}}, "after or full is expected"),
        ({"TU": 0.9}, "no interaction is left"),
        ({"TU": {"point": "1970-01-01 00:00:02", "min_item_users": 1, "min_user_items": 1}}, "none is left"),
        ({"LS": "all"}, "allowed are valid_and_test"),
        ({"RS": [0.5, 0.5]}, "three shares"),
        ({"RS": [-1, 1, 1]}, "three shares"),
        ({"LS": "valid_and_test", "RS": [1, 1, 1]}, "must be one entry"),
    ],
)
def test_splits_that_cannot_be_made(split: dict[str, Any], match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        make_split(store_of(BY_HAND), config_of(split))


def test_unknown_split_and_order_are_named() -> None:
    with pytest.raises(registry.UnknownPartError, match=r"GT.*LS.*RS.*TS.*TU"):
        make_split(store_of(BY_HAND), config_of({"XX": 1}))
    with pytest.raises(ProtocolError, match="order: TO"):
        make_split(store_of(BY_HAND), config_of({"GT": POINTS}, eval_args={"order": "RO"}))


def test_refit_is_refused_where_it_has_no_meaning() -> None:
    for split, need in (({"LS": "test_only"}, "a validation part"), ({"TU": 0.9}, "a split by time")):
        with pytest.raises(ProtocolError, match=f"refit: True needs {need}"):
            make_split(store_of(BY_HAND), config_of(split, refit=True))


def test_an_empty_validation_part_is_an_error() -> None:
    # between the points nothing but an unknown item
    triples: list[Triple] = [("a", "x", 1), ("a", "y", 2), ("a", "new", 12), ("a", "x", 22), ("b", "y", 30)]
    with pytest.raises(ProtocolError, match="the validation part has no case"):
        make_split(store_of(triples), config_of({"GT": POINTS}))
    short: list[Triple] = [(u, i, float(t)) for u in "abc" for t, i in enumerate("xyz")]
    with pytest.raises(ProtocolError, match="no user has the 4 interactions"):
        make_split(store_of(short), config_of({"LS": "valid_and_test"}))


def test_items_that_only_the_test_part_has_are_dropped_and_counted() -> None:
    triples: list[Triple] = [("a", "x", 1), ("a", "y", 2), ("a", "x", 12), ("b", "y", 3), ("b", "x", 21)]
    triples += [("b", "only", 22), ("b", "y", 23)]
    split = make_split(store_of(triples), config_of({"GT": POINTS}, eval_args={"successive": True}))
    assert unpack(split)[2] == [("b", ("y",), "x"), ("b", ("y", "x"), "y")]
    assert split.counts["test interactions with unknown items, left out"] == 1
    allgone = [t for t in triples if t[2] < 21] + [("b", "only", 22.0), ("c", "other", 23.0)]
    with pytest.raises(ProtocolError, match="the test part has no case"):
        make_split(store_of(allgone), config_of({"GT": POINTS}))


def test_the_unit_of_times_is_known_by_their_size() -> None:
    days = np.arange(1_600_000_000, 1_700_000_000, 86_400, dtype=np.float64)
    for where in ("2022-05-01", "2022-05-01 10:00:00", "2022-05-01T10:00:00Z", "10 days", "4 months", "1 year", 0.9):
        expected = boundary(days, where)
        for unit in (1e3, 1e6, 1e9):
            assert boundary(days * unit, where) / unit == pytest.approx(expected, abs=1e-5)
            with pytest.raises(ValueError, match=r"outside the data, which reach from 2020-09-13 .* to 2023-11-14"):
                boundary(days * unit, "9999-01-01")


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (1_700_000_000.0, "2023-11-14 22:13:20"),
        (1_700_000_000e3, "2023-11-14 22:13:20"),
        (1_700_000_000e6, "2023-11-14 22:13:20"),
        (1_700_000_000e9, "2023-11-14 22:13:20"),
        (9.9e10, "5107-03-10 08:00:00"),
        (17.0, "17"),
        (-1e18, "-1e+18"),
        (1e300, "1e+300"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_date_is_shown_for_any_number(time: float, text: str) -> None:
    assert date(time) == text


@settings(derandomize=True, deadline=None)
@given(st.floats())
def test_a_date_never_raises(time: float) -> None:
    assert date(time)


def test_times_that_no_calendar_reaches_can_be_cut_by_quantile_only() -> None:
    times = np.linspace(0.0, 1e300, 50)
    assert 0 < boundary(times, 0.5) < 1e300
    with pytest.raises(ValueError, match=r"'4 months' needs Unix times, but they reach 1e\+300: give a quantile"):
        boundary(times, "4 months")


def test_nanoseconds_can_be_split_by_quantiles() -> None:
    triples = [(f"u{t % 3}", f"i{t % 5}", 1.7e18 + 86_400e9 * t) for t in range(60)]
    split = make_split(store_of(triples), config_of({"GT": {"valid": 0.5, "test": 0.8}}))
    assert split.counts["validation starts"].startswith("2023-12-1")


def test_durations_count_back_from_the_end() -> None:
    day = 86400.0
    triples = [(f"u{d % 2}", f"i{d % 4}", d * day) for d in range(100)]
    config = config_of({"GT": {"valid": "6 weeks", "test": "10 days"}}, eval_args={"successive": True})
    split = make_split(store_of(triples), config)
    assert split.points == {"valid": 57 * day, "test": 89 * day}
    milliseconds = [(u, i, 1e12 + t * 1000) for u, i, t in triples]
    split = make_split(store_of(milliseconds), config)
    assert split.points == {"valid": 1e12 + 57 * day * 1000, "test": 1e12 + 89 * day * 1000}


def test_the_same_cases_come_from_a_config_object(random_data: Path) -> None:
    from recbole_hyper.config import Config
    from recbole_hyper.data.dataset import SequenceDataset

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


def test_time_ratio_equals_the_loops() -> None:
    """Percentile of the times of all targets, then a share of each user's targets before it, as RecBole 1.2.1."""
    draw = np.random.default_rng(3)
    triples = [
        (f"u{user}", f"i{draw.integers(20)}", float(time))
        for user in range(30)
        for time in draw.permutation(200)[: draw.integers(1, 15)]
    ]
    split = make_split(store_of(triples), config_of({"TS": [0.7, 0.1, 0.2]}))
    of_user = {user: sorted(t for t in triples if t[0] == user) for user, _, _ in triples}
    of_user = {user: sorted(rows, key=lambda row: row[2]) for user, rows in of_user.items()}
    point = np.percentile([time for rows in of_user.values() for _, _, time in rows[1:]], 80)
    expected: dict[str, list[tuple[str, tuple[str, ...], str]]] = {"valid": [], "test": []}
    for user, rows in sorted(of_user.items()):
        before = sum(time <= point for _, _, time in rows[1:])
        trained = int(before * (0.7 / (1 - 0.2)))
        items = [item for _, item, _ in rows]
        for place in range(trained + 1, len(items)):
            part = "valid" if place <= before else "test"
            expected[part].append((user, tuple(items[:place]), items[place]))
    _, valid, test = unpack(split)
    assert (sorted(valid), sorted(test)) == (sorted(expected["valid"]), sorted(expected["test"]))
    with pytest.raises(ProtocolError, match=r"three shares such as \[0.8, 0.1, 0.1\]"):
        make_split(store_of(triples), config_of({"TS": 0.8}))


def test_time_ratio_is_recboles(tmp_path: Path) -> None:
    from recbole.data.dataset import SequentialDataset

    if not hasattr(SequentialDataset, "time_based_split"):
        pytest.skip("RecBole 1.2.1 brought it")
    draw = np.random.default_rng(4)
    rows = [
        (f"u{user}", f"i{draw.integers(20)}", int(time))
        for user in range(30)
        for time in draw.permutation(200)[: draw.integers(2, 15)]
    ]
    keys = {"data_path": str(write_inter(tmp_path, "d", rows)), "eval_args": {"split": {"TS": [0.7, 0.1, 0.2]}}}
    config = Config("GRU4Rec", "d", config_dict=keys)
    split = make_split(SequenceDataset(config).store, config)
    recboles = SequentialDataset(config).build()
    for cases, part in zip((split.valid, split.test), recboles[1:], strict=True):
        table = part.inter_feat
        theirs = np.stack([table[name].numpy() for name in ("user_id", "item_length", "item_id")], axis=1)
        ours = np.stack([cases.store.users[cases.rows], cases.ends, cases.targets], axis=1)
        assert sorted(ours.tolist()) == sorted(theirs.tolist())
