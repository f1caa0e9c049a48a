"""The item-to-item memory and its mixture with a network, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.models import item_memory
from recbole_hyper.models.ease_votes import log_probabilities
from recbole_hyper.models.item_memory import (
    DECAYS,
    SHARES,
    ItemMemory,
    Mixture,
    MixtureSearch,
    MixtureTable,
    VoteTable,
    log_mixture,
    newest_first,
)
from recbole_hyper.types import Cases
from tests.data.test_pair_counts import store_of
from tests.reference import memory as reference

N_ITEMS, WINDOW = 30, 3


ROWS = [[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2, 6], [4, 5, 6, 1], [5, 2], [7, 1, 2]]


Rows = list[list[int]]


def memory_of(rows: Rows) -> ItemMemory:
    store = store_of(rows, N_ITEMS)
    return ItemMemory(*pair_counts(store, store.lengths, window=WINDOW, neighbours=N_ITEMS), window=WINDOW)


@pytest.mark.parametrize("decay", DECAYS)
def test_the_memory_and_the_mixture_equal_the_loop(decay: float) -> None:
    memory, matrix = memory_of(ROWS), reference.counts(ROWS, N_ITEMS, WINDOW)
    histories = [[2, 1], [6, 2, 1], [7], [3, 4, 5], [8]]  # of item 8 nothing is known
    newest = np.array([row + [0] * (WINDOW - len(row)) for row in histories])
    remembered = memory.after(newest, decay)
    logits = torch.randn(len(histories), N_ITEMS)
    network = logits[:, 1:].double().softmax(1)
    for share in (0.0, 0.3, 0.9):
        scores = log_mixture(log_probabilities(logits), remembered, share)
        assert bool(torch.isfinite(scores[:, 1:]).all())
        for row, recent in enumerate(histories):
            expected = reference.memory(recent, matrix, decay)
            np.testing.assert_allclose(remembered[row].toarray()[0], expected, rtol=1e-5, atol=1e-9)
            mixed = reference.mixture([0.0, *network[row].tolist()], expected, share)
            np.testing.assert_allclose(scores[row].exp().numpy(), mixed, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(scores.exp().sum(1), torch.ones(len(histories)))


@pytest.mark.parametrize(
    ("name", "most"), [("_ENTRIES", 1), ("_ENTRIES", 40), ("_ENTRIES", 1 << 22), ("_PLACES", 1), ("_PLACES", 40)]
)
def test_votes_for_a_few_items_are_those_of_the_memory(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, so that copied counts and the table of places stay bounded; of item 8 nothing is known."""
    monkeypatch.setattr(item_memory, name, most)
    memory = memory_of(ROWS)
    newest = np.array([[2, 1, 0], [6, 2, 1], [7, 0, 0], [8, 0, 0], [8, 3, 4], [0, 0, 0]])
    items = np.random.default_rng(0).integers(1, N_ITEMS, (len(newest), 7))
    for decay, found in zip(DECAYS, memory.votes(newest, items, DECAYS), strict=True):
        expected = np.take_along_axis(memory.after(newest, decay).toarray(), items, axis=1)
        np.testing.assert_array_equal(found, expected)
    assert [one.shape for one in memory.votes(newest[:0], items[:0], DECAYS)] == [(0, 7)] * len(DECAYS)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("decay", [0.4, 1.0])
def test_the_mixture_of_a_graph_equals_that_of_the_model(share: float, decay: float) -> None:
    memory = memory_of(ROWS)
    items = torch.tensor([[2, 1, 0, 0, 0], [6, 2, 1, 3, 4], [1, 1, 2, 1, 0], [8, 0, 0, 0, 0], [8, 7, 0, 0, 0]])
    lengths = (items > 0).sum(1)
    logits = torch.randn(len(items), N_ITEMS)
    newest = newest_first(items.numpy(), lengths.numpy())[:, :WINDOW]
    expected = log_mixture(log_probabilities(logits), memory.after(newest, decay), share)
    found = MixtureTable(VoteTable(memory), Mixture(share, decay))(logits, items, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_logarithm_stays_finite_where_a_probability_does_not() -> None:
    logits = torch.tensor([[0.0, 200.0, -200.0, 0.0]])
    found = log_mixture(log_probabilities(logits), memory_of([[1, 2], [2, 3]]).after(np.array([[2]]), 0.5)[:, :4], 0.5)
    assert found[0, 2].item() == pytest.approx(-400 + np.log(0.5), rel=1e-5)


@pytest.mark.parametrize("on_device", [False, True])
@given(rows=st.lists(st.lists(st.integers(1, N_ITEMS - 1), min_size=2, max_size=7), min_size=2, max_size=6),
       exclude_seen=st.booleans(), seed=st.integers(0, 99))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_every_trial_is_the_ndcg_of_its_mixture(on_device: bool, rows: Rows, exclude_seen: bool, seed: int) -> None:
    """The few items that are compared give what a loop over all items gives, and so does a device's count of all."""
    store = store_of(rows, N_ITEMS)
    memory, matrix = memory_of(ROWS), reference.counts(ROWS, N_ITEMS, WINDOW)
    cases = Cases.build(store, np.arange(len(rows)), store.lengths - 1)
    logits = torch.randn(len(rows), N_ITEMS, generator=torch.Generator().manual_seed(seed))
    network = torch.cat((torch.zeros(len(rows), 1), logits[:, 1:].softmax(1)), dim=1)
    table = VoteTable(memory) if on_device else None
    search = MixtureSearch(memory, exclude_seen=exclude_seen, table=table)
    for start in range(0, len(rows), 2):
        search.add(logits[start : start + 2].clone(), cases[start : start + 2])
    assert search.cases == len(rows)
    search.best()
    for number, decay in enumerate(DECAYS):
        for place, share in enumerate(SHARES):
            gains = []
            for row, items in enumerate(rows):
                remembered = reference.memory(items[:-1][::-1][:WINDOW], matrix, decay)
                scores = reference.mixture(network[row].tolist(), remembered, share)
                gains.append(reference.gain(scores, items[-1], items[:-1] if exclude_seen else []))
            assert search.gains[number, place] == pytest.approx(sum(gains), abs=1e-6)


@pytest.mark.parametrize("exclude_seen", [False, True])
def test_targets_that_every_mixture_ranks_low_are_counted_alike(exclude_seen: bool) -> None:
    draws, n_items = np.random.default_rng(0), 60
    rows = [draws.choice(np.arange(1, n_items), 12, replace=False).tolist() for _ in range(80)]
    store = store_of(rows, n_items)
    memory = ItemMemory(*pair_counts(store, store.lengths - 1, window=WINDOW, neighbours=n_items), window=WINDOW)
    cases = Cases.build(store, np.arange(len(rows)), store.lengths - 1)
    logits = torch.randn(len(rows), n_items, generator=torch.Generator().manual_seed(0))
    few, all_items = (
        MixtureSearch(memory, exclude_seen=exclude_seen, table=table) for table in (None, VoteTable(memory))
    )
    for search in (few, all_items):
        search.add(logits.clone(), cases)
        search.best()
    np.testing.assert_allclose(few.gains, all_items.gains, atol=1e-6)
    assert 0 < few.gains.min() < few.gains.max() < len(rows)


def test_of_equally_good_shares_the_smallest_is_chosen() -> None:
    search = MixtureSearch(memory_of(ROWS), exclude_seen=True)
    search.cases, search.gains[:] = 4, 1.0
    assert search.best() == ((0.0, DECAYS[0]), 0.25, 0.25)
    search.gains[1, 3] = 2.0
    assert search.best() == ((SHARES[3], DECAYS[1]), 0.5, 0.25)


def test_newest_first() -> None:
    found = newest_first(np.array([[1, 2, 3], [4, 0, 0]]), np.array([3, 1]))
    assert found.tolist() == [[3, 2, 1], [4, 0, 0]]
