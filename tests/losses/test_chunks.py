"""Tiles stay within their budget, and the default budget fits every run."""

import pytest

from recbole_hyper.devices import DEFAULT_BUDGET
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import cut
from tests.losses.sampled import sized


@pytest.mark.parametrize(("n", "d"), [(25_600, 512), (102_400, 128), (204_800, 64), (10, 64)])
def test_the_default_budget_refuses_no_run(n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lifts above the default come on top of it; where the default holds them the tiles are those of this budget."""
    monkeypatch.setattr(_chunks, "default_budget", lambda device: DEFAULT_BUDGET)
    lifts = 6 * n * (d + 1) * 4
    for n_items in (10_000, 100_000_000):
        tiles = cut(sized(n, n_items, d + 1), arrays=2, spare=2, terms=6)
        if lifts + 8 * n_items <= DEFAULT_BUDGET:
            assert tiles == cut(sized(n, n_items, d + 1, DEFAULT_BUDGET), arrays=2, spare=2, terms=6)
        else:
            assert lifts < tiles.bytes <= lifts + max(DEFAULT_BUDGET, 8 * n_items)
            assert tiles.rows >= min(n, 96)
            assert tiles.block >= 2048


@pytest.mark.parametrize("d", [64, 256, 512, 1024])
@pytest.mark.parametrize("arrays", [1, 2])
def test_wide_items_shrink_the_block_and_not_the_rows(arrays: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of one row reads every item for one state: a million items would be lifted again for each."""
    monkeypatch.setattr(_chunks, "default_budget", lambda device: arrays * DEFAULT_BUDGET)
    for n in (4096, 25_600):
        tiles = cut(sized(n, 1_000_000, d + 1, link=arrays == 2), arrays=arrays, spare=arrays, terms=6)
        assert tiles.rows >= 256
        assert tiles.block == 2048


@pytest.mark.parametrize("arrays", [1, 2])
def test_plans_stay_within_their_budget(arrays: int) -> None:
    checked = 0
    for n in (1, 15, 64, 4096, 100_000):
        for m in (2, 1000, 10_000, 1_000_000, 10_000_000):
            for budget in (1 << 20, 16 << 20, 256 << 20, 4 << 30):
                try:
                    problem = sized(n, m, 65, budget, link=arrays == 2)
                    tiles = cut(problem, arrays=arrays, spare=arrays, terms=4)
                except ValueError:
                    continue
                assert tiles.bytes <= budget, (n, m, budget, tiles)
                assert 1 <= tiles.rows <= n
                assert 1 <= tiles.block <= m
                checked += 1
    assert checked > 40
