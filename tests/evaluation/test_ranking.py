"""Ranks against a plain sort; ties, seen items, budgets and scores that are not numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.evaluation.ranking import NonFiniteScoreError, rank_cases
from recbole_hyper.evaluation.scorers import ScoresError
from recbole_hyper.types import Cases
from tests.raising import refused

N_ITEMS = 13
TOKENS = np.array(["[PAD]", *(f"t{index}" for index in range(1, N_ITEMS))])


def cases_of(rows: list[list[int]]) -> Cases:
    users = [user for user, row in enumerate(rows, 1) for _ in row]
    items = [item for row in rows for item in row]
    store = SequenceStore.from_interactions(
        users, items, range(len(items)), np.array([str(u) for u in range(99)]), TOKENS
    )
    positions = [(row, end) for row, items_of in enumerate(rows) for end in range(1, len(items_of))]
    return Cases.build(store, [row for row, _ in positions], [end for _, end in positions])


def scorer(table: np.ndarray) -> object:
    """Return a scorer that reads the score of (row, end, item) from ``table`` (rows, ends, items)."""
    return lambda cases: torch.tensor(table[cases.rows, cases.ends], dtype=torch.float32)


def expected_rank(scores: np.ndarray, history: list[int], target: int, exclude_seen: bool, hidden: set[int]) -> int:
    allowed = [i for i in range(1, N_ITEMS) if i not in hidden and not (exclude_seen and i in history)]
    if target not in allowed:
        return max(len(allowed) + 1, 4 + 1)  # behind all, and in no list of 4
    return sum(scores[item] >= scores[target] for item in allowed)


ROWS = st.lists(st.lists(st.integers(1, N_ITEMS - 1), min_size=2, max_size=6), min_size=1, max_size=6)


@given(ROWS, st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 2000))
@settings(max_examples=150, deadline=None)
def test_ranks_equal_a_plain_count(rows: list[list[int]], seed: int, exclude_seen: bool, budget: int) -> None:
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 5, (6, 6, N_ITEMS)).astype(float)  # many ties
    catalogue = generator.random(N_ITEMS) < 0.9
    cases = cases_of(rows)
    ranks = rank_cases(
        scorer(table), cases, n_items=N_ITEMS, k=4, exclude_seen=exclude_seen, catalogue=catalogue, memory_budget=budget
    )
    hidden = set(np.flatnonzero(~catalogue))

    def allowed_of(row: list[int], end: int) -> list[int]:
        return [j for j in range(1, N_ITEMS) if j not in hidden and not (exclude_seen and j in row[:end])]

    for i, (row, end) in enumerate(zip(cases.rows, cases.ends, strict=True)):
        history, target, scores = rows[row][:end], rows[row][end], table[row, end]
        assert ranks.ranks[i] == expected_rank(scores, history, target, exclude_seen, hidden)
        allowed = allowed_of(rows[row], end)
        best = sorted(allowed, key=lambda item: (-scores[item], item))[:4]
        assert ranks.top_items[i].tolist() == best + [0] * (4 - len(best))
        assert ranks.n_candidates[i] == (len(allowed) if target in allowed else ranks.ranks[i])
    same = [
        sum(table[row, end, j] == table[row, end, rows[row][end]] for j in allowed_of(rows[row], end)) > 1
        for row, end in zip(cases.rows, cases.ends, strict=True)
        if rows[row][end] in allowed_of(rows[row], end)
    ]
    assert ranks.tied == (sum(same) / len(cases) if len(cases) else 0)


def test_a_constant_scorer_gets_the_last_rank() -> None:
    cases = cases_of([[1, 2, 3, 4], [5, 6, 7]])
    ranks = rank_cases(lambda part: torch.zeros(len(part), N_ITEMS), cases, n_items=N_ITEMS, k=10)
    assert (ranks.ranks == ranks.n_candidates).all()
    assert ranks.tied == 1.0
    metrics = compute_metrics(ranks, ["Hit", "NDCG"], [1, 5], 6, n_items=12, n_users=2)
    assert set(metrics.values()) == {0.0}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    scores = torch.zeros(5, N_ITEMS)
    scores[3, 7] = bad
    with refused(NonFiniteScoreError, "'2'", "'t7'"):
        rank_cases(lambda part: scores.clone(), cases_of([[1, 2, 3, 4], [5, 6, 7]]), n_items=N_ITEMS, k=3)


def test_padding_may_hold_anything() -> None:
    scores = torch.rand(5, N_ITEMS)
    scores[:, 0] = float("nan")
    ranks = rank_cases(lambda part: scores.clone(), cases_of([[1, 2, 3, 4], [5, 6, 7]]), n_items=N_ITEMS, k=3)
    assert (ranks.top_items > 0).all()


def test_candidates_only() -> None:
    cases = cases_of([[1, 2, 3]])
    drawn = np.array([[4, 5, 6], [7, 8, 9]], dtype=np.int32)
    with_candidates = Cases(cases.store, cases.rows, cases.ends, cases.starts, drawn)
    scores = torch.zeros(2, N_ITEMS)
    scores[0, [2, 5, 10]] = torch.tensor([1.0, 2.0, 9.0])  # target 2: behind 5; item 10 is no candidate
    scores[1, 3] = 1.0
    ranks = rank_cases(lambda part: scores.clone(), with_candidates, n_items=N_ITEMS, k=2)
    assert ranks.ranks.tolist() == [2, 1]
    assert ranks.n_candidates.tolist() == [4, 4]
    assert ranks.top_items.tolist() == [[5, 2], [3, 7]]


def test_lists_of_more_than_there_is() -> None:
    """A target that cannot be ranked is a miss at every cut-off, also at one beyond the number of items."""
    cases, scores = cases_of([[1, 2, 1], [3, 4]]), torch.arange(N_ITEMS, dtype=torch.float32)
    ranks = rank_cases(lambda part: scores.repeat(len(part), 1), cases, n_items=N_ITEMS, k=20)
    assert ranks.ranks.tolist() == [11, 21, 9]
    assert ranks.top_items[1].tolist() == [*range(N_ITEMS - 1, 2, -1), 0, 0, 0]


@pytest.mark.parametrize("way", ["kernel", "torch", "candidates"])
@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (lambda n, dtype: torch.zeros(n + 1, N_ITEMS, dtype=dtype), r"shape \(3, 13\); it must.*\(2, 13\)"),
        (lambda n, dtype: torch.zeros(1, N_ITEMS, dtype=dtype), r"shape \(1, 13\); it must"),  # read past its row
        (lambda n, dtype: torch.zeros(n, N_ITEMS - 1, dtype=dtype), r"shape \(2, 12\); it must"),
        (lambda n, dtype: torch.zeros(n, N_ITEMS + 1, dtype=dtype), r"shape \(2, 14\); it must"),
        (lambda n, dtype: torch.zeros(n * N_ITEMS, dtype=dtype), r"shape \(26,\); it must"),
        (lambda n, dtype: torch.zeros(n, N_ITEMS, 1, dtype=dtype), r"shape \(2, 13, 1\); it must"),
        (lambda n, dtype: torch.zeros(n, N_ITEMS, dtype=torch.int64), "returned torch.int64 of shape"),
        (lambda n, dtype: torch.zeros(n, N_ITEMS).bool(), "returned torch.bool of shape"),
        (lambda n, dtype: np.zeros((n, N_ITEMS)), "returned ndarray; it must return a floating-point tensor"),
    ],
)
def test_scores_that_do_not_fit_the_cases_are_refused(way: str, gives: object, message: str) -> None:
    cases = cases_of([[1, 2, 3]])
    drawn = np.array([[4, 5], [7, 8]], dtype=np.int32) if way == "candidates" else None
    with_candidates = Cases(cases.store, cases.rows, cases.ends, cases.starts, drawn)
    dtype = torch.float64 if way == "torch" else torch.float32
    with pytest.raises(ScoresError, match=message):
        rank_cases(lambda part: gives(len(part), dtype), with_candidates, n_items=N_ITEMS, k=2)


@pytest.mark.parametrize("bad", [0, -1, N_ITEMS, 2**31 - 1])
def test_candidates_out_of_range_are_refused(bad: int) -> None:
    cases = cases_of([[1, 2, 3]])
    drawn = np.array([[4, 5], [7, bad]], dtype=np.int32)
    with_candidates = Cases(cases.store, cases.rows, cases.ends, cases.starts, drawn)
    with pytest.raises(ValueError, match=rf"candidates contain 1 item ids outside 1 to 12, such as {bad}"):
        rank_cases(lambda part: torch.zeros(len(part), N_ITEMS), with_candidates, n_items=N_ITEMS, k=2)
    short = Cases(cases.store, cases.rows, cases.ends, cases.starts, drawn[:1])
    with refused(ValueError, "each", "cases"):
        rank_cases(lambda part: torch.zeros(len(part), N_ITEMS), short, n_items=N_ITEMS, k=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_point_past_the_scores_are_refused(dtype: torch.dtype) -> None:
    def scores(part: Cases) -> torch.Tensor:
        return torch.zeros(len(part), 7, dtype=dtype)

    with refused(ValueError, "sequences", "outside"):
        rank_cases(scores, cases_of([[1, 2, 9]]), n_items=7, k=2)
    with refused(ValueError, "catalogue", "bool"):
        rank_cases(scores, cases_of([[1, 2]]), n_items=7, k=2, catalogue=np.zeros(13, dtype=bool))
    with refused(ValueError, "topk=0"):
        rank_cases(scores, cases_of([[1, 2]]), n_items=7, k=0)
