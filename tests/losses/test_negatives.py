"""Negatives are uniform over exactly the items that are allowed, with and without replacement."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.losses import negatives
from recbole_hyper.losses.negatives import NegativeSampler, uniform_negatives, uniform_set
from tests.raising import refused

# user 0 saw few of 11 items, user 1 all but one, user 2 all, user 3 one
SEEN = [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [*range(1, 12)], [1]]
N_ITEMS = 12


def sampler(seed: int = 0) -> NegativeSampler:
    offsets = torch.tensor([0, *map(len, SEEN)]).cumsum(0)
    items = torch.tensor([item for seen in SEEN for item in seen])
    return NegativeSampler(N_ITEMS, offsets, items, generator=torch.Generator().manual_seed(seed))


def test_seen_is_a_set_lookup() -> None:
    users, items = torch.arange(4)[:, None], torch.arange(N_ITEMS)
    expected = [[item in seen for item in range(N_ITEMS)] for seen in SEEN]
    assert sampler().seen(users, items).tolist() == expected


@pytest.mark.parametrize(("exclude_seen", "replacement"), [(True, True), (True, False), (False, True)])
def test_only_allowed_items_and_all_of_them(exclude_seen: bool, replacement: bool) -> None:
    rows = torch.tensor([0, 0, 1]).repeat(300)
    targets = torch.tensor([2, 3, 1]).repeat(300)
    bound = sampler().bind(torch.tensor([0, 3]), rows, targets)
    drawn = bound.per_position(4, exclude_seen=exclude_seen, replacement=replacement)
    assert drawn.shape == (900, 4)
    for position in range(3):
        user, target = [0, 0, 3][position], [2, 3, 1][position]
        allowed = set(range(1, N_ITEMS)) - {target} - (set(SEEN[user]) if exclude_seen else set())
        found = drawn[position::3]
        counts = Counter(found.flatten().tolist())
        assert set(counts) == allowed
        # 1200 draws: within 5 standard deviations of uniform
        mean = 1200 / len(allowed)
        assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values()), counts
        distinct = [len(set(row)) for row in found.tolist()]
        assert (min(distinct) == 4) == (not replacement)


def test_sets_are_uniform_without_replacement() -> None:
    """All pairs of the 8 items that user 0 has not seen come equally often."""
    bound = sampler().bind(torch.tensor([0] * 4000), torch.arange(4000), torch.full((4000,), 2))
    drawn, rows = bound.per_sequence(2)
    assert rows.tolist() == list(range(4000))
    counts = Counter(tuple(sorted(pair)) for pair in drawn.tolist())
    assert len(counts) == 28
    assert all(abs(count - 4000 / 28) < 5 * (4000 / 28) ** 0.5 for count in counts.values())


def test_what_the_rounds_leave_over_is_drawn_exactly() -> None:
    """User 1 leaves one item, so that almost every draw collides."""
    bound = sampler().bind(torch.tensor([1]), torch.zeros(50, dtype=torch.int64), torch.full((50,), 4))
    assert set(bound.per_position(20).flatten().tolist()) == {11}
    assert bound.per_position(1, replacement=False).flatten().tolist() == [11] * 50


@pytest.mark.parametrize("replacement", [True, False])
def test_the_table_of_what_users_have_seen_changes_no_draw(monkeypatch: pytest.MonkeyPatch, replacement: bool) -> None:
    found = []
    for cells in (0, 1 << 22):
        monkeypatch.setattr(negatives, "_TABLE_CELLS", cells)
        bound = sampler().bind(torch.tensor([3, 0]), torch.tensor([1, 1, 0]), torch.tensor([2, 3, 1]))
        found.append([bound.per_position(3, replacement=replacement), bound.per_sequence(2)[0]])
    assert all(torch.equal(searched, looked_up) for searched, looked_up in zip(*found, strict=True))
    table = sampler().seen_table(torch.tensor([3, 0]))
    assert torch.equal(table, sampler().seen(torch.tensor([[3], [0]]), torch.arange(N_ITEMS)))


def test_a_user_who_has_seen_everything() -> None:
    bound = sampler().bind(torch.tensor([2]), torch.tensor([0]), torch.tensor([4]))
    with pytest.warns(UserWarning, match="seen every item"):
        drawn = bound.per_position(200)
    assert set(drawn.flatten().tolist()) == set(range(1, 12)) - {4}
    bound = sampler().bind(torch.tensor([0, 2]), torch.tensor([1, 0, 1]), torch.tensor([4, 1, 9]))
    with pytest.warns(UserWarning, match="seen every item"):
        drawn, rows = bound.per_sequence(8)
    assert rows.tolist() == [1, 0, 1]
    assert sorted(drawn[0].tolist()) == [*range(4, 12)]
    assert len(set(drawn[1].tolist()) - {4, 9}) == 8


def test_errors() -> None:
    bound = sampler().bind(torch.tensor([0]), torch.tensor([0]), torch.tensor([2]))
    with refused(ValueError, "n_negatives"):
        bound.per_position(9, replacement=False)
    with refused(ValueError, "catalogue", "negatives"):
        NegativeSampler(2, torch.tensor([0, 1]), torch.tensor([1]))
    with refused(ValueError, "4 distinct negatives"):
        uniform_set(4, 4, 0, torch.device("cpu"))


def test_equal_seeds_equal_draws() -> None:
    def draw(seed: int) -> list:
        bound = sampler(seed).bind(torch.tensor([0, 3]), torch.tensor([0, 1]), torch.tensor([1, 1]))
        return bound.per_position(50).tolist()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@given(
    n_items=st.integers(3, 40),
    padding=st.one_of(st.none(), st.integers(0, 39)),
    k=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_uniform_negatives_step_over_target_and_padding(n_items: int, padding: int | None, k: int, seed: int) -> None:
    padding = None if padding is None else padding % n_items
    targets = torch.tensor([item for item in range(n_items) if item != padding])
    drawn = uniform_negatives(targets, k, n_items, padding, torch.Generator().manual_seed(seed))
    assert drawn.min() >= 0
    assert drawn.max() < n_items
    assert not (drawn == targets[:, None]).any()
    assert padding is None or not (drawn == padding).any()
    shared = uniform_set(len(targets), n_items, padding, torch.device("cpu"))
    assert sorted(shared.tolist()) == targets.tolist()


def test_uniform_negatives_reach_every_item_equally() -> None:
    drawn = uniform_negatives(torch.full((9000,), 4), 1, 12, 0, torch.Generator().manual_seed(0))
    counts = Counter(drawn.flatten().tolist())
    assert set(counts) == set(range(1, 12)) - {4}
    assert all(abs(count - 900) < 150 for count in counts.values())
