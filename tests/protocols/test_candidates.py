"""Sampled candidates: distinct, outside the history, the same for both parts; files of given candidates."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.protocols.base import make_split
from recbole_hyper.protocols.candidates import draw_candidates, read_candidates
from recbole_hyper.types import Cases
from tests.raising import refused

ROWS = st.lists(st.lists(st.integers(1, 19), min_size=1, max_size=12), min_size=1, max_size=9)


def store_of(rows: list[list[int]], n_items: int = 20) -> SequenceStore:
    users = [user for user, row in enumerate(rows, 1) for _ in row]
    items = [item for row in rows for item in row]
    tokens = ["[PAD]", *(f"u{user}" for user in range(1, len(rows) + 1))]
    return SequenceStore.from_interactions(
        users, items, range(len(items)), tokens, ["[PAD]", *(f"i{item}" for item in range(1, n_items))]
    )


def config_of(mode: str, seed: int = 1) -> dict[str, object]:
    split = {"LS": "valid_and_test"}
    return {
        "eval_args": {"split": split, "order": "TO", "mode": {"valid": mode, "test": mode}},
        "refit": False,
        "candidate_seed": seed,
        "eval_cases": None,
    }


@given(ROWS, st.integers(1, 6), st.integers(0, 999), st.booleans())
@settings(max_examples=100, deadline=None)
def test_candidates_are_distinct_unseen_and_allowed(rows, count, seed, popular) -> None:
    store = store_of(rows)
    weights = np.bincount(store.items, minlength=20).astype(float) + 0.01 if popular else np.ones(20)
    weights[19] = 0
    drawn = draw_candidates(store, count, seed, weights)
    for row, items in zip(rows, drawn.tolist(), strict=True):
        assert len(set(items)) == count
        assert not set(items) & {*row, 0, 19}
    np.testing.assert_array_equal(drawn, draw_candidates(store, count, seed, weights))


def test_draws_are_uniform_or_by_popularity() -> None:
    store = store_of([[1]] * 6000)
    counts = np.bincount(draw_candidates(store, 3, 0, np.ones(20)).ravel(), minlength=20)
    assert counts[:2].tolist() == [0, 0]
    expected = 18000 / 18
    assert ((counts[2:] - expected) ** 2 / expected).sum() < 45  # chi-squared with 17 degrees: 0.9997 quantile
    weights = np.zeros(20)
    weights[2:6] = [1, 2, 3, 4]
    first = np.bincount(draw_candidates(store, 1, 0, weights).ravel(), minlength=20)
    np.testing.assert_allclose(first[2:6] / 6000, [0.1, 0.2, 0.3, 0.4], atol=0.025)
    assert first[6:].sum() == 0


def test_users_with_too_few_draws_draw_again() -> None:
    # most draws hit the items that all users know, or the popular one again
    weights = np.zeros(20)
    weights[1:12] = [9, 9, 9, 100, 40, 20, 10, 5, 2, 1, 1]
    expected = np.zeros(20)
    for order in itertools.permutations(range(4, 12), 4):
        share, left = 1.0, weights[4:].sum()
        for item in order:
            share, left = share * weights[item] / left, left - weights[item]
        expected[list(order)] += share
    drawn = draw_candidates(store_of([[1, 2, 3]] * 20000), 4, 7, weights)
    found = np.bincount(drawn.ravel(), minlength=20) / 20000
    np.testing.assert_allclose(found, expected, atol=0.006)  # the standard error is at most .0035


def test_a_user_who_leaves_too_few_items_is_named() -> None:
    with refused(ValueError, "'u2'"):
        draw_candidates(store_of([[1], list(range(1, 17))]), 4, 0, np.ones(20))
    full = draw_candidates(store_of([[1], list(range(1, 17))]), 3, 0, np.ones(20))
    assert sorted(full[1].tolist()) == [17, 18, 19]


def test_validation_and_test_share_their_lists_and_the_seed_decides_them() -> None:
    store = store_of([[1, 2, 3, 4], [5, 6, 7, 8, 9]])
    split = make_split(store, config_of("uni8"))
    assert split.valid.candidates.shape == (2, 8)
    np.testing.assert_array_equal(split.valid.candidates, split.test.candidates)
    again, other = make_split(store, config_of("uni8")), make_split(store, config_of("uni8", seed=2))
    np.testing.assert_array_equal(split.test.candidates, again.test.candidates)
    assert (split.test.candidates != other.test.candidates).any()
    popular = make_split(store_of([[1, 2, 3, 4], [5, 6, 1, 1], [7, 9, 3, 2]]), config_of("pop2"))
    # trained are 1, 2 | 5, 6 | 7, 9; the first user knows 1 to 4
    assert set(popular.test.candidates[0].tolist()) < {5, 6, 7, 9}


def test_metrics_over_a_hundred_candidates_by_hand() -> None:
    # candidate i has score i; the target of case 0 has rank 1, of case 1 rank 7, of case 2 (a tie) rank 100
    rows = [[200, 199], [200, 94], [200, 198]]
    store = store_of(rows, n_items=201)
    candidates = np.tile(np.arange(1, 100, dtype=np.int32), (3, 1))
    candidates[1] = np.r_[np.arange(1, 94), np.arange(95, 101)]
    cases = Cases(store, np.arange(3), np.ones(3, dtype=int), np.zeros(3, dtype=int), candidates)
    scores = torch.arange(201.0).repeat(3, 1)
    scores[2] = 5.0
    ranks = rank_cases(lambda part: scores[part.rows].clone(), cases, n_items=201, k=10)
    assert ranks.ranks.tolist() == [1, 7, 100]
    assert ranks.n_candidates.tolist() == [100, 100, 100]
    assert ranks.top_items[0].tolist() == [199, *range(99, 90, -1)]
    metrics = compute_metrics(ranks, ["MRR", "Hit", "NDCG"], [1, 5, 10, 100], 6, n_items=200, n_users=3)
    assert metrics["hit@1"] == metrics["ndcg@1"] == pytest.approx(1 / 3, abs=1e-6)
    assert metrics["hit@5"] == pytest.approx(1 / 3, abs=1e-6)
    assert metrics["hit@10"] == pytest.approx(2 / 3, abs=1e-6)
    assert metrics["ndcg@10"] == pytest.approx((1 + 1 / 3) / 3, abs=1e-6)  # log2(8) = 3
    assert metrics["mrr@100"] == pytest.approx((1 + 1 / 7 + 1 / 100) / 3, abs=1e-6)


def test_a_candidates_file_is_read_by_tokens(tmp_path: Path) -> None:
    store = store_of([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]])
    path = tmp_path / "negatives.txt"
    path.write_text("u2 i11 i12 i13\nu1 i14 i15 i16\nu3 i1 i2 i3\n\n")
    split = make_split(store, config_of(str(path)))
    assert split.test.candidates.tolist() == [[14, 15, 16], [11, 12, 13]]
    assert split.valid.candidates.tolist() == [[14, 15, 16], [11, 12, 13]]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("u1 i14 i15\n", r"lines for 1 users, but 1 of the 2 evaluated users have none \(first: u2\)"),
        (
            "u1 i14\nu2 i15\nu77 i1\n",
            r"lines for 3 users, 1 of whom are not among the 2 users of the data \(first: u77",
        ),
        ("u1 i14 i15\nu2 i11\n", r"same number of candidates, not \[1, 2\]"),
        ("u1 i14\nu2 x99\n", "item 'x99' is not in the data"),
        ("u1 i14\nu2 \udce9\n", "item '\ufffd' is not in the data"),
        ("u1 i4\nu2 i15\n", r"1 users have their target among the candidates \(first: u1\)"),
        ("u1 i14\nu2 i15\nu1 i16\n", "line 3 is a second line for user 'u1'"),
        ("u1 i14 i14\nu2 i15 i16\n", "line 1: a candidate of user 'u1' is listed twice"),
    ],
)
def test_candidates_files_that_do_not_fit(tmp_path: Path, text: str, match: str) -> None:
    store = store_of([[1, 2, 3, 4], [5, 6, 7, 8]])
    path = tmp_path / "negatives.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=match):
        read_candidates(path, Cases.build(store, [0, 1], [3, 3]))
