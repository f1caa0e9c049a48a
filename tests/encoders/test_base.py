"""Base of the encoders: the groups in which an encoder takes the rows of a batch are the cheapest of all cuts."""

from itertools import combinations, pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.encoders.base import CALL_POSITIONS, length_groups
from recbole_hyper.errors import ConfigError
from recbole_hyper.registry import resolve
from tests.raising import refused


def cost(lengths: list[int], edges: list[int], step_rows: int) -> int:
    """Padded positions of the runs between ``edges``, their steps, and the calls."""
    runs = [lengths[low:high] for low, high in pairwise(edges)]
    return sum((len(run) + step_rows) * max(run) + CALL_POSITIONS for run in runs)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=9), st.sampled_from((0, 3)))
def test_no_cut_is_cheaper(lengths: list[int], step_rows: int) -> None:
    lengths.sort()
    groups = length_groups(torch.tensor(lengths), step_rows)
    edges = [0, *(group.stop for group in groups)]
    assert [group.start for group in groups] == edges[:-1]
    assert edges[-1] == len(lengths)
    inner = range(1, len(lengths))
    cheapest = min(
        cost(lengths, [0, *cuts, len(lengths)], step_rows)
        for n in range(len(lengths))
        for cuts in combinations(inner, n)
    )
    assert cost(lengths, edges, step_rows) == cheapest


def test_short_and_long_histories_are_two_groups_and_similar_ones_are_not() -> None:
    assert length_groups(torch.tensor([3] * 200 + [50] * 20)) == [slice(0, 200), slice(200, 220)]
    assert length_groups(torch.tensor([3, 4, 5, 6])) == [slice(0, 4)]
    assert length_groups(torch.tensor([6, 3])) == [slice(0, 2)]  # unsorted: at once


def test_encoders_that_go_step_by_step_have_larger_groups() -> None:
    lengths = torch.tensor([*range(16, 200, 8)] * 3).sort().values
    groups = {
        name: len(length_groups(lengths, resolve("encoders", name).step_rows)) for name in ("fmlp", "gru", "dual_gru")
    }
    assert groups["dual_gru"] == groups["gru"] < groups["fmlp"]


def test_options_reach_bases_and_modules_and_are_checked() -> None:
    found = resolve("encoders", "bsarec").options()
    # of the base's constructor, of the layer, and of the layer's base
    assert {"filter", "bsarec_alpha", "inner_size"} <= found.keys()
    with refused(ConfigError, "bsarec_alpha=2", "[0", "1]"):
        resolve("encoders", "bsarec")(torch.nn.Embedding(9, 4), bsarec_alpha=2)
