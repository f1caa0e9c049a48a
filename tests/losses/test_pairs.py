"""Groups of rows that share their candidates."""

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recbole_hyper.geometry import _gather
from recbole_hyper.losses._pairs import groups_of_sets


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 60), st.integers(1, 4), st.randoms())
def test_groups_hold_each_row_once_with_its_own_set(sets: list[int], room: int, width: int, random: Random) -> None:
    items = torch.arange(15).view(5, 3)
    rows = random.sample(range(100), len(sets))
    targets = torch.arange(100) * 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_gather, "LOGITS", room)
        order, groups = groups_of_sets(torch.tensor(rows), torch.tensor(sets), items, targets, width)
    found = []
    for group in groups:
        n, a = group.rows.shape
        assert n * 3 * max(a, width) <= max(room, 3 * width) or (n, a) == (1, 1)
        torch.testing.assert_close(group.targets, 7 * group.rows)
        real = torch.zeros(n * a, dtype=torch.bool).index_fill_(0, group.chosen, True).view(n, a)
        for own, counts, candidates in zip(group.rows, real, group.items, strict=True):
            found += [(int(row), candidates.tolist()) for row in own[counts]]
    assert [row for row, _ in found] == order.tolist()
    assert sorted(found) == sorted((row, items[number].tolist()) for row, number in zip(rows, sets, strict=True))
