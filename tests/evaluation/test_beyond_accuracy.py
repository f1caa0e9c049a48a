"""Novelty, intra-list diversity and popularity of lists, against loops that follow the definitions word by word."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation import beyond_accuracy
from recbole_hyper.evaluation.beyond_accuracy import intra_list_diversity, novelty, popularity_miscalibration
from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.types import Cases, Ranks
from tests.raising import refused

N_ITEMS, K = 9, 4
TOPK = (1, 2, 4)


@st.composite
def drawn_lists(draw: st.DrawFn) -> np.ndarray:
    rows = draw(st.lists(st.lists(st.integers(1, N_ITEMS), max_size=K, unique=True), min_size=1, max_size=6))
    return np.array([row + [0] * (K - len(row)) for row in rows], dtype=np.int64)


COUNTS = st.lists(st.integers(0, 20), min_size=N_ITEMS, max_size=N_ITEMS).filter(any)


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@given(lists=drawn_lists(), counts=COUNTS)
@settings(max_examples=50, deadline=None)
def test_novelty_is_that_of_a_loop(lists: np.ndarray, counts: list[int]) -> None:
    counted = np.array([0, *counts])
    found = novelty(lists, counted, TOPK)
    for k in TOPK:
        shown = [[item for item in row[:k] if item] for row in lists.tolist()]
        bits = [mean([-math.log2(max(1, counted[i]) / sum(counts)) for i in row]) for row in shown if row]
        assert found[k] == pytest.approx(mean(bits), abs=1e-12)


@given(lists=drawn_lists(), tokens=st.lists(st.sets(st.integers(0, 4)), min_size=N_ITEMS, max_size=N_ITEMS))
@settings(max_examples=50, deadline=None)
def test_diversity_is_that_of_a_loop(lists: np.ndarray, tokens: list[set[int]]) -> None:
    owned = [set(), *tokens]
    matrix = scipy.sparse.csr_matrix(np.array([[float(token in own) for token in range(5)] for own in owned]))

    def distance(one: int, other: int) -> float:
        either = owned[one] | owned[other]
        return 1 - len(owned[one] & owned[other]) / len(either) if either else 1.0

    found = intra_list_diversity(lists, matrix, TOPK)
    for k in TOPK:
        shown = [[item for item in row[:k] if item] for row in lists.tolist()]
        own = [mean([distance(*pair) for pair in combinations(row, 2)]) for row in shown if len(row) > 1]
        assert found[k] == pytest.approx(mean(own), abs=1e-12)


def test_diversity_of_many_lists_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    lists = np.stack([generator.permutation(np.arange(1, 31))[:5] for _ in range(50)])
    tokens = scipy.sparse.random(31, 8, 0.3, "csr", rng=0)
    tokens.data[:] = 1.0
    once = intra_list_diversity(lists, tokens, [3, 5])
    monkeypatch.setattr(beyond_accuracy, "_CHUNK", 30)  # three lists at one time
    assert intra_list_diversity(lists, tokens, [3, 5]) == pytest.approx(once)


def cases_of(histories: list[list[int]]) -> Cases:
    """Return a case after each history, with item 1 as its target."""
    users = np.repeat([str(number) for number in range(len(histories))], [len(own) + 1 for own in histories])
    items = [str(item) for own in histories for item in (*own, 1)]
    ids = np.array(["", *map(str, range(1, N_ITEMS + 1))])
    names = np.array(["", *map(str, range(len(histories)))])
    store = SequenceStore.from_interactions(
        np.searchsorted(names[1:], users) + 1, np.array(items, dtype=int), np.arange(float(len(items))), names, ids
    )
    return Cases.build(store, np.arange(len(histories)), [len(own) for own in histories])


def divergence(one: list[str], other: list[str]) -> float:
    total = 0.0
    for group in ("head", "middle", "tail"):
        p, q = one.count(group) / len(one), other.count(group) / len(other)
        total += sum(share / 2 * math.log2(share / ((p + q) / 2)) for share in (p, q) if share)
    return total


@given(data=st.data(), counts=COUNTS)
@settings(max_examples=50, deadline=None)
def test_miscalibration_is_that_of_a_loop(data: st.DataObject, counts: list[int]) -> None:
    lists = data.draw(drawn_lists())
    size = len(lists)
    histories = data.draw(st.lists(st.lists(st.integers(1, N_ITEMS), max_size=5), min_size=size, max_size=size))
    order = sorted(range(1, N_ITEMS + 1), key=lambda item: (-counts[item - 1], item))
    group = {}
    for place, item in enumerate(order):
        above, below = (sum(counts[i - 1] for i in part) for part in (order[: place + 1], order[place:]))
        head, tail = above <= 0.2 * sum(counts), sum(counts) - below >= 0.8 * sum(counts)
        group[item] = "head" if head else "tail" if tail else "middle"
    found = popularity_miscalibration(lists, cases_of(histories), np.array([0, *counts]), TOPK)
    for k in TOPK:
        pairs = [
            ([group[item] for item in own], [group[item] for item in row[:k] if item])
            for own, row in zip(histories, lists.tolist(), strict=True)
        ]
        assert found[k] == pytest.approx(mean([divergence(*pair) for pair in pairs if all(pair)]), abs=1e-9)
        assert -1e-12 <= found[k] <= 1 + 1e-12


def test_they_are_metrics_beside_those_of_recbole() -> None:
    cases = cases_of([[2, 3], [4]])
    ranks = Ranks(np.array([1, 2]), np.array([9, 9]), np.array([[1, 2], [3, 1]], dtype=np.int32), 0.0)
    tokens = scipy.sparse.csr_matrix(np.eye(N_ITEMS + 1))
    names = ["NDCG", "Novelty", "IntraListDiversity", "PopularityMiscalibration"]
    counts: Any = {1: 6, 2: 2}
    given_ = {"n_items": N_ITEMS, "n_users": 2, "item_counts": counts}
    found = compute_metrics(ranks, names, [1, 2], 4, **given_, cases=cases, item_tokens=tokens)
    assert list(found)[2:] == [f"{name.lower()}@{k}" for name in names[1:] for k in (1, 2)]
    assert found["intralistdiversity@2"] == 1.0
    assert found["novelty@1"] == pytest.approx((math.log2(8 / 6) + 3) / 2, abs=1e-4)


def test_a_configuration_may_select_by_them_and_says_what_is_missing() -> None:
    keys = {"interactions": "given", "metrics": ["PopularityMiscalibration"], "topk": [10]}
    config = Config("Pop", "ml-100k", [], {**keys, "valid_metric": "PopularityMiscalibration@10"})
    assert not config["valid_metric_bigger"]
    assert config["metrics"] == ["PopularityMiscalibration"]
    with refused(ConfigError, "--diversity_features"):
        Config("Pop", "ml-100k", [], {**keys, "metrics": ["NDCG", "IntraListDiversity"], "valid_metric": "NDCG@10"})
    with refused(ConfigError, "'Noveltie'"):
        Config("Pop", "ml-100k", [], {**keys, "metrics": ["Noveltie"]})
