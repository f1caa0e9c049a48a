"""The global timepoint split: by hand, and against plain loops."""

import dataclasses

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.protocols.base import ProtocolError, cold_targets, make_split, repeated_targets
from tests.protocols.splits import BY_HAND, POINTS, TRIPLES, Triple, config_of, store_of, unpack, without_empty
from tests.raising import refused
from tests.reference import protocols as reference


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
    assert repeated_targets(split.test).sum() == 1  # a repeats x
    later = dataclasses.replace(split.test, starts=split.test.ends - 1)
    assert repeated_targets(later).sum() == 0  # x is not in the part of the history that counts
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


def test_global_timepoint_without_successive_has_one_case_per_user() -> None:
    split = make_split(store_of(BY_HAND), config_of({"GT": POINTS}))
    assert unpack(split)[2] == [("a", ("x", "y", "z"), "w"), ("n", ("y",), "w")]


def test_global_timepoint_with_the_last_item_as_target() -> None:
    _, valid, test = unpack(make_split(store_of(BY_HAND), config_of({"GT": {**POINTS, "target": "last"}})))
    assert valid == [("a", ("x", "y"), "z"), ("b", ("w", "z", "x"), "y")]
    assert test == [("a", ("x", "y", "z", "w"), "x"), ("n", ("y",), "w")]
    with refused(ProtocolError, "drop successive"):
        make_split(store_of(BY_HAND), config_of({"GT": {**POINTS, "target": "last"}}, eval_args={"successive": True}))


def test_targets_that_were_never_trained_on_can_count_as_misses() -> None:
    """User c's last item is new, and d's first one is: both stay cases, which nobody can hit."""
    rows = [*BY_HAND, ("c", "x", 3.0), ("c", "y", 4.0), ("c", "new", 29.0), ("d", "x", 5.0), ("d", "late", 26.0)]
    plain = make_split(store_of(rows), config_of({"GT": {**POINTS, "target": "last"}}))
    split = make_split(store_of(rows), config_of({"GT": {**POINTS, "target": "last", "unknown": "miss"}}))
    more = set(unpack(split)[2]) - set(unpack(plain)[2])
    assert more == {("c", ("x", "y"), "new"), ("d", ("x",), "late")}
    n_items, catalogue = split.store.n_items, split.candidates("test")
    options = {"n_items": n_items, "k": 2, "exclude_seen": True, "catalogue": catalogue}
    ranks = rank_cases(lambda cases: torch.rand(len(cases), n_items), split.test, **options)
    targets = split.store.item_tokens[split.test.targets]
    assert (ranks.ranks[np.isin(targets, ["new", "late"])] > 2).all()
    for unknown, options in (("drop", {}), ("miss", {"successive": True})):
        with refused(ProtocolError, "unknown"):
            make_split(store_of(rows), config_of({"GT": {**POINTS, "unknown": unknown}}, eval_args=options))


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


@given(TRIPLES, st.tuples(st.integers(1, 29), st.integers(1, 29)).map(sorted), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_global_timepoint_equals_the_loops(triples, points, successive, refit) -> None:
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


def test_items_that_only_the_test_part_has_are_dropped_and_counted() -> None:
    triples: list[Triple] = [("a", "x", 1), ("a", "y", 2), ("a", "x", 12), ("b", "y", 3), ("b", "x", 21)]
    triples += [("b", "only", 22), ("b", "y", 23)]
    split = make_split(store_of(triples), config_of({"GT": POINTS}, eval_args={"successive": True}))
    assert unpack(split)[2] == [("b", ("y",), "x"), ("b", ("y", "x"), "y")]
    assert split.counts["test interactions with unknown items, left out"] == 1
    allgone = [t for t in triples if t[2] < 21] + [("b", "only", 22.0), ("c", "other", 23.0)]
    with refused(ProtocolError, "part", "case"):
        make_split(store_of(allgone), config_of({"GT": POINTS}))


def gap_triples() -> list[Triple]:
    """Minutes of two users; the parts start at minute 100 (validation) and 200 (test)."""
    rows = {
        "u": [(1, "a"), (2, "b"), (80, "c"), (105, "a"), (106, "b"), (150, "a"), (180, "d"), (201, "a"), (202, "b"),
              (203, "a"), (204, "x")],
        "v": [(3, "a"), (4, "c"), (5, "d"), (90, "b"), (120, "c"), (210, "d")],
        "w": [(95, "a"), (190, "b"), (220, "a")],
    }  # fmt: skip
    return [(user, item, 60.0 * minute) for user, row in rows.items() for minute, item in row]


GAP = {"valid": "1970-01-01 01:40:00", "test": "1970-01-01 03:20:00", "gap": "30 minutes", "target": "all"}


def test_a_gap_and_all_targets_by_hand() -> None:
    split = make_split(store_of(gap_triples()), config_of({"GT": GAP}))
    train, valid, test = unpack(split)
    assert train == {"u": ["a", "b"], "v": ["a", "c", "d"]}
    # w has nothing before the gap; a is a target of u once; 180 is in the gap before the test
    assert valid == [("u", ("a", "b"), "a"), ("u", ("a", "b"), "b"), ("v", ("a", "c", "d"), "c")]
    history = ("a", "b", "c", "a", "b", "a")
    assert test == [("u", history, "a"), ("u", history, "b"), ("v", ("a", "c", "d", "b", "c"), "d"), ("w", ("a",), "a")]
    assert split.counts["interactions in the gaps before validation and test, left out"] == 5
    assert split.counts["test interactions with unknown items, left out"] == 1
    assert split.counts["validation interactions without a history or repeated, left out"] == 1
    refit = make_split(store_of(gap_triples()), config_of({"GT": GAP}, refit=True))
    assert refit.refit_lengths is not None
    assert refit.refit_lengths.tolist() == [6, 5, 1]


def test_a_gap_with_one_target_per_user() -> None:
    points = {**GAP, "target": None}
    _, valid, test = unpack(make_split(store_of(gap_triples()), config_of({"GT": points})))
    assert valid == [("u", ("a", "b"), "a"), ("v", ("a", "c", "d"), "c")]
    assert [case[0] for case in test] == ["u", "v", "w"]
