"""Attention in blocks equals the whole triangle, and needs less memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.encoders.banded_attention import Heads, blocked_attention, dense_attention, relative_shift
from recbole_hyper.encoders.windows import narrow_heads, window_sizes
from tests.encoders.windowed import make_encoder, random_batch


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("direction", ["past", "future"])
def test_relative_shift_puts_each_distance_at_its_key(length, direction):
    by_distance = torch.arange(2 * length * length).view(2, length, length)
    shifted = relative_shift(by_distance, direction)
    for i in range(length):
        for j in range(length):
            if direction == "past" and j <= i:
                assert torch.equal(shifted[:, i, j], by_distance[:, i, length - 1 - (i - j)])
            if direction == "future" and j >= i:
                assert torch.equal(shifted[:, i, j], by_distance[:, i, j - i])


@pytest.mark.parametrize("direction", ["past", "future"])
@pytest.mark.parametrize("positions", [True, False])
@given(
    seed=st.integers(0, 100),
    windows=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_blocks_equal_the_whole_triangle(direction, positions, seed, windows, lengths):
    torch.manual_seed(seed)
    lengths = torch.tensor(lengths)
    length = int(lengths.max())
    query, key, value, queries = (
        torch.randn(len(lengths), len(windows), length, 3, dtype=torch.float64, requires_grad=True) for _ in range(4)
    )
    vectors = torch.randn(len(windows), length, 3, dtype=torch.float64, requires_grad=True)
    by_position = (queries, vectors) if positions else None
    real = (torch.arange(length) < lengths[:, None])[:, None, :, None]
    outcomes, gradients = [], []
    for attend in (blocked_attention, dense_attention):
        outcomes.append(attend(Heads(query, key, value, by_position, windows, direction, lengths)) * real)
        leaves = [query, key, value, *(by_position or ())]
        gradients.append(torch.autograd.grad(outcomes[-1].square().sum(), leaves))
    torch.testing.assert_close(*outcomes)
    for blocked, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(blocked, dense)


def test_blocks_are_used_if_they_save_time():
    assert narrow_heads(window_sizes(8, 50), 50) == [0, 1, 2, 3, 4]
    assert narrow_heads(window_sizes(8, 200), 200) == [0, 1, 2, 3, 4]
    assert narrow_heads([50, 2, 50, 3, 4], 50) == [1, 3, 4]
    assert narrow_heads(window_sizes(8, 50), 10) == []
    assert narrow_heads([50] * 8, 50) == []


@pytest.mark.parametrize("direction", ["past", "future"])
def test_heads_in_any_order_keep_their_place(direction):
    windows = [20, 2, 20, 3, 2, 1]
    encoder = make_encoder(hidden_size=24, n_heads=6, max_length=20, windows=windows, direction=direction)
    items, lengths = random_batch([20, 7])
    assert narrow_heads(windows, 20)
    # asking for the maps takes the path without blocks
    blocked, trace = encoder.trace(items, lengths)
    dense, dense_trace = encoder.trace(items, lengths, return_maps=True)
    real = torch.arange(20) < lengths[:, None]
    torch.testing.assert_close(blocked[real], dense[real])
    for one, other in zip(trace.heads, dense_trace.heads, strict=True):
        torch.testing.assert_close(one[real], other[real])


def test_dropout_of_blocks_has_its_rate():
    value = torch.ones(40, 1, 30, 1, dtype=torch.float64)
    lengths = torch.full((40,), 30)
    heads = blocked_attention(Heads(value, value, value, None, [4], "past", lengths), 0.25)
    assert heads.mean().item() == pytest.approx(1.0, abs=0.05)
    assert (heads == 0).any()  # a first position whose only weight was dropped
    assert heads.unique().numel() > 2


def test_memory_has_no_copies_by_distance():
    """No tensor kept for the gradient has more than B h L L or B L 3d elements."""
    encoder = make_encoder(hidden_size=32, max_length=40, n_layers=1, attn_dropout_prob=0.3).train()
    items, lengths = random_batch([40] * 6)
    largest = 0

    def record(tensor):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        encoder(items, lengths).sum().backward()
    # the padded column of the shift is the one allowance
    assert largest <= 6 * 4 * 40 * 41
