"""The first part of the default model: its memory, the mixture with a network and the proposed items, against loops."""

import numpy as np
import pytest
import torch

from recbole_hyper.data.pair_counts import Side
from recbole_hyper.models import propose
from recbole_hyper.models.item_votes import PairRates
from recbole_hyper.models.memory import newest_first
from recbole_hyper.models.propose import DECAY, SHARE, Proposer
from tests.data.test_pair_counts import store_of
from tests.reference import memory as reference

N_ITEMS, WINDOW = 30, 3
ROWS = [[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2, 6], [4, 5, 6, 1], [5, 2], [7, 1, 2]]
# of item 8 nothing is known
NEWEST = torch.tensor([[2, 1, 0, 0, 0], [6, 2, 1, 3, 4], [8, 0, 0, 0, 0], [8, 7, 0, 0, 0]])


def rates(side: Side, neighbours: int = N_ITEMS, rows: list[list[int]] = ROWS) -> PairRates:
    store = store_of(rows, N_ITEMS)
    return PairRates(store, store.lengths, window=WINDOW, neighbours=neighbours, side=side)


def proposer(*, exclude_seen: bool = True, neighbours: int = N_ITEMS) -> Proposer:
    return Proposer(rates("both", neighbours), window=WINDOW, exclude_seen=exclude_seen)


def logits_of(seed: int = 0, n_items: int = N_ITEMS) -> torch.Tensor:
    return torch.randn(len(NEWEST), n_items, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("neighbours", [N_ITEMS, 2])
def test_the_mixture_equals_the_loop(neighbours: int) -> None:
    logits, whole = logits_of(), reference.counts(ROWS, N_ITEMS, WINDOW)
    network, scores = proposer(neighbours=neighbours).mixed(logits.clone(), NEWEST)
    torch.testing.assert_close(network[:, 1:], logits[:, 1:].log_softmax(dim=1))
    assert bool((scores[:, 0] == -torch.inf).all())
    assert bool(torch.isfinite(scores[:, 1:]).all())
    kept = reference.cut(whole, neighbours)
    for row, recent in enumerate(NEWEST[:, :WINDOW].tolist()):
        remembered, total = np.zeros(N_ITEMS), 0.0
        for age, item in enumerate(recent):
            if item and (n := sum(whole[item])):
                weight = DECAY**age * n**0.5
                remembered, total = remembered + weight * np.array(kept[item]) / n, total + weight
        share = SHARE if total else 0.0
        expected = (1 - share) * network[row].exp().double().numpy() + share * remembered / max(total, 1e-9)
        np.testing.assert_allclose(scores[row].exp().numpy(), expected, rtol=1e-5, atol=1e-9)


def test_the_logarithm_stays_finite_where_a_probability_does_not() -> None:
    logits = torch.zeros(1, N_ITEMS)
    logits[0, 1], logits[0, 9] = 200.0, -200.0
    found = proposer().mixed(logits, torch.tensor([[2]]))[1]
    assert found[0, 9].item() == pytest.approx(-400 + np.log(1 - SHARE), rel=1e-5)


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("best", [6, 50])
def test_the_best_items_of_the_mixture_are_proposed(exclude_seen, best, monkeypatch) -> None:
    monkeypatch.setattr(propose, "BEST", best)
    network, scores, items = proposer(exclude_seen=exclude_seen)(logits_of(), NEWEST)
    for row, history in enumerate(NEWEST.tolist()):
        allowed = [item for item in range(1, N_ITEMS) if not (exclude_seen and item in history)]
        expected = sorted(allowed, key=lambda item: -scores[row, item])[:best]
        assert sorted(items[row].tolist()) == sorted(expected + [0] * (min(best, N_ITEMS - 1) - len(expected)))
    torch.testing.assert_close(network, proposer().mixed(logits_of(), NEWEST)[0])


@pytest.mark.parametrize("columns", [4 * 32, 4 * 32 + 3])
def test_the_largest_of_long_rows_are_those_of_the_whole_rows(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "_BLOCK", 4)
    scores = torch.randn(20, columns, generator=torch.Generator().manual_seed(0))
    scores[3:6] = -torch.inf
    scores[4, :2], scores[5, -1] = 0.0, 1.0
    for k in (1, 3, 4):
        values, found = propose.best_columns(scores, k)
        torch.testing.assert_close(values, scores.topk(k, dim=1).values, rtol=0, atol=0)
        torch.testing.assert_close(scores.gather(1, found), values, rtol=0, atol=0)
        assert all(len(set(row)) == k for row in found.tolist())


def test_newest_first() -> None:
    found = newest_first(torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]))
    assert found.tolist() == [[3, 2, 1], [4, 0, 0]]
