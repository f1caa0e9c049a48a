"""Windowed attention against equation 8, plain loops and perturbation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from recbole_hyper.encoders.banded_attention import blocked_attention, dense_attention, relative_shift
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.windowed_attention import WindowedAttention, WindowedAttentionEncoder
from recbole_hyper.encoders.windows import narrow_heads, resolve_windows, window_sizes
from tests.reference import dualrec as reference


def make_encoder(seed: int = 0, n_items: int = 30, hidden_size: int = 16, scale: float = 20.0, **options):
    """An encoder in float64 with weights large enough that every part matters."""
    torch.manual_seed(seed)
    embedding = nn.Embedding(n_items, hidden_size, padding_idx=0, dtype=torch.float64)
    options = {
        "n_heads": 4,
        "max_length": 9,
        "inner_size": 12,
        "hidden_dropout_prob": 0.0,
        "attn_dropout_prob": 0.0,
    } | options
    encoder = WindowedAttentionEncoder(embedding, **options).double()
    with torch.no_grad():
        for layer in encoder.layers:
            for parameter in layer.attention.parameters():
                parameter.mul_(scale)
    return encoder.eval()


def random_batch(lengths: list[int], n_items: int = 30, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    items = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        items[row, :length] = torch.randint(1, n_items, (length,), generator=generator)
    return items, torch.tensor(lengths)


class TestWindowSizes:
    def test_published_constants(self):
        assert window_sizes(8, 50) == (2, 3, 4, 5, 7, 11, 21, 50)

    @pytest.mark.parametrize(
        ("n_heads", "expected"), [(2, (2, 50)), (4, (2, 3, 20, 50)), (8, (2, 3, 4, 5, 7, 11, 21, 50))]
    )
    def test_by_hand_for_50(self, n_heads, expected):
        # h = 4: 2 + ceil(48 / e) = 2 + 18 = 20 for head 3
        assert window_sizes(n_heads, 50) == expected

    @given(half=st.integers(1, 16), extra=st.integers(0, 300))
    def test_equals_equation_8_in_50_digits(self, half, extra):
        n = half + 1 + extra
        assert list(window_sizes(2 * half, n)) == [
            reference.window_size(i, 2 * half, n) for i in range(1, 2 * half + 1)
        ]

    @given(half=st.integers(1, 16), extra=st.integers(0, 300))
    def test_grow_from_2_to_n(self, half, extra):
        sizes = window_sizes(2 * half, half + 1 + extra)
        assert sizes[0] == 2
        assert sizes[-1] == half + 1 + extra
        assert list(sizes) == sorted(sizes)

    @pytest.mark.parametrize("n_heads", [0, 1, 3, 7, -2])
    def test_odd_or_no_heads_are_refused(self, n_heads):
        with pytest.raises(ValueError, match="even number of heads"):
            window_sizes(n_heads, 50)

    def test_too_many_heads_for_the_length_are_refused(self):
        assert window_sizes(8, 5) == (2, 3, 4, 5, 5, 5, 5, 5)
        with pytest.raises(ValueError, match="use at most 6 heads or sequences of at least 5 items"):
            window_sizes(8, 4)

    def test_words_and_lists(self):
        assert resolve_windows("full", 3, 7) == (7, 7, 7)
        assert resolve_windows([1, 7, 2], 3, 7) == (1, 7, 2)
        with pytest.raises(ValueError, match=r"8 is outside 1\.\.7"):
            resolve_windows([1, 8, 2], 3, 7)
        with pytest.raises(ValueError, match=r"0 is outside 1\.\.7"):
            resolve_windows([1, 0, 2], 3, 7)
        for broken in (2.9, 2.0, True):
            with pytest.raises(ValueError, match=f"{broken} is not a whole number"):
                resolve_windows([1, broken, 3], 3, 9)
        with pytest.raises(ValueError, match="2 entries for n_heads=3"):
            resolve_windows([1, 2], 3, 7)
        with pytest.raises(ValueError, match="known: multi_scale, full"):
            resolve_windows("wide", 3, 7)


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
@pytest.mark.parametrize("relative_positions", ["transformer_xl", "learned", "none"])
@pytest.mark.parametrize("windows", ["multi_scale", "full", [1, 9, 2, 5]])
def test_equals_the_loops(direction, relative_positions, windows):
    encoder = make_encoder(direction=direction, relative_positions=relative_positions, windows=windows)
    items, lengths = random_batch([9, 4, 1, 2])
    states, trace = encoder.trace(items, lengths, return_maps=True)
    plain, fast = encoder.trace(items, lengths)
    torch.testing.assert_close(plain, states, rtol=1e-9, atol=1e-9)
    assert fast.maps == []
    for row, length in enumerate(lengths.tolist()):
        expected, heads, maps = reference.encoder(encoder, items[row, :length])
        torch.testing.assert_close(states[row, :length], expected, rtol=1e-6, atol=1e-7)
        for layer in range(2):
            torch.testing.assert_close(trace.heads[layer][row, :length], heads[layer], rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(trace.maps[layer][row, :, :length, :length], maps[layer], rtol=1e-6, atol=1e-7)


def test_the_naive_peer_of_the_benchmark_computes_the_same():
    encoder = make_encoder(direction="future")
    inputs = torch.randn(3, 9, 16, dtype=torch.float64)
    lengths = torch.tensor([9, 5, 1])
    fast = encoder.layers[0].attention(inputs, lengths)
    slow = reference.NaiveAttention(encoder.layers[0].attention)(inputs, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(fast[0][row, :length], slow[0][row, :length])
        torch.testing.assert_close(fast[1][row, :length], slow[1][row, :length])


@pytest.mark.parametrize("direction", ["past", "future"])
@pytest.mark.parametrize("windows", ["multi_scale", "full"])
def test_a_state_depends_on_its_side_and_window_only(direction, windows):
    encoder = make_encoder(direction=direction, windows=windows, n_layers=1)
    reach = max(encoder.layers[0].attention.windows) - 1
    items, lengths = random_batch([9])
    before = encoder(items, lengths)
    for changed in range(9):
        other = items.clone()
        other[0, changed] = items[0, changed] % 29 + 1
        moved = (encoder(other, lengths) != before)[0].any(-1)
        for place in range(9):
            distance = place - changed if direction == "past" else changed - place
            assert bool(moved[place]) == (0 <= distance <= reach)


def test_each_head_sees_exactly_its_window():
    encoder = make_encoder(windows=[1, 2, 5, 9], n_layers=1)
    items, lengths = random_batch([9])
    _, trace = encoder.trace(items, lengths, return_maps=True)
    for head, window in enumerate([1, 2, 5, 9]):
        seen = trace.maps[0][0, head] > 0
        distance = torch.arange(9)[:, None] - torch.arange(9)
        assert torch.equal(seen, (distance >= 0) & (distance < window))


def test_window_at_eval():
    items, lengths = random_batch([9])
    inside = make_encoder(window_at_eval=True)
    outside = make_encoder(window_at_eval=False)
    everything = make_encoder(windows="full")
    torch.testing.assert_close(outside(items, lengths), everything(items, lengths))
    assert not torch.allclose(inside(items, lengths), outside(items, lengths))
    # in training both have windows (dropout is 0 here)
    torch.testing.assert_close(outside.train()(items, lengths), inside.train()(items, lengths))


@pytest.mark.parametrize("direction", ["past", "future"])
@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_mixed_lengths_equal_single_users(direction, seed, lengths):
    encoder = make_encoder(seed=seed, direction=direction)
    items, lengths = random_batch(lengths, seed=seed)
    together = encoder(items, lengths)
    assert torch.isfinite(together).all()
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(items[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("direction", ["past", "future"])
@pytest.mark.parametrize("relative_positions", ["transformer_xl", "learned", "none"])
def test_gradients_against_finite_differences(direction, relative_positions):
    torch.manual_seed(3)
    attention = WindowedAttention(
        4,
        n_heads=2,
        max_length=4,
        windows=[2, 4],
        direction=direction,
        relative_positions=relative_positions,
        attn_dropout_prob=0.0,
    ).double()
    lengths = torch.tensor([4, 2])
    inputs = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in attention.named_parameters()]
    real = (torch.arange(4) < lengths[:, None]).unsqueeze(-1)

    def run(inputs, *parameters):
        call = torch.func.functional_call(attention, dict(zip(names, parameters, strict=True)), (inputs, lengths))
        return call[0] * real

    values = [torch.randn_like(p).requires_grad_() for p in attention.parameters()]
    assert torch.autograd.gradcheck(run, (inputs, *values))


def test_dropout_acts_in_training_only_and_can_be_kept_out_of_the_layers():
    items, lengths = random_batch([9, 3])
    encoder = make_encoder(hidden_dropout_prob=0.5, attn_dropout_prob=0.5)
    torch.testing.assert_close(encoder(items, lengths), encoder(items, lengths), rtol=0, atol=0)
    encoder.train()
    assert not torch.equal(encoder(items, lengths), encoder(items, lengths))
    bare = make_encoder(hidden_dropout_prob=0.5, attn_dropout_prob=0.5, layer_dropout=False)
    rates = {name: module.p for name, module in bare.named_modules() if isinstance(module, Dropout)}
    assert rates.pop("dropout") == 0.5
    assert set(rates.values()) == {0.0}


class TestSwitches:
    """Each switch changes the part that it names and leaves every other parameter alone."""

    full = frozenset(make_encoder().state_dict())

    def test_without_relative_positions(self):
        keys = make_encoder(relative_positions="none").state_dict().keys()
        gone = {k.rsplit("attention.", 1)[1] for k in self.full - keys}
        assert gone == {"position.weight", "content_bias", "position_bias"}
        assert keys <= self.full

    def test_learned_positions(self):
        keys = make_encoder(relative_positions="learned").state_dict().keys()
        assert {k.rsplit("attention.", 1)[1] for k in self.full ^ keys} == {"position.weight", "distance"}

    def test_without_layer_norm(self):
        keys = make_encoder(layer_norm=False).state_dict().keys()
        assert keys < self.full
        assert all("_norm." in key for key in self.full - keys)

    def test_without_residual_the_parameters_stay(self):
        with_residual, without = make_encoder(), make_encoder(residual=False)
        assert with_residual.state_dict().keys() == without.state_dict().keys()
        without.load_state_dict(with_residual.state_dict())
        items, lengths = random_batch([9])
        expected, _, _ = reference.encoder(without, items[0])
        torch.testing.assert_close(without(items, lengths)[0], expected, rtol=1e-6, atol=1e-7)
        assert not torch.allclose(without(items, lengths), with_residual(items, lengths))

    def test_without_layer_norm_equals_the_loops(self):
        encoder = make_encoder(layer_norm=False)
        items, lengths = random_batch([9])
        expected, _, _ = reference.encoder(encoder, items[0])
        torch.testing.assert_close(encoder(items, lengths)[0], expected, rtol=1e-6, atol=1e-7)

    def test_windows_change_no_parameter(self):
        assert make_encoder(windows="full").state_dict().keys() == self.full


class TestFaults:
    def test_odd_heads(self):
        with pytest.raises(ValueError, match="even number of heads"):
            make_encoder(hidden_size=15, n_heads=3)

    def test_odd_heads_with_given_windows_are_fine(self):
        items, lengths = random_batch([5])
        encoder = make_encoder(hidden_size=15, n_heads=3, windows=[1, 2, 9])
        assert encoder(items, lengths).shape == (1, 5, 15)

    def test_width_no_multiple_of_heads(self):
        with pytest.raises(ValueError, match="no multiple of n_heads=4"):
            make_encoder(hidden_size=18)

    def test_too_long_a_sequence(self):
        items, lengths = random_batch([10])
        with pytest.raises(ValueError, match="sequences of 10 items came, the limit is max_length=9"):
            make_encoder()(items, lengths)

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("direction", "both", "known: past, future"),
            ("relative_positions", "absolute", "transformer_xl, learned or none is expected"),
            ("hidden_act", "tanh", "relu, gelu or swish is expected"),
            ("n_layers", 0, "n_layers=0: a whole number of at least 1"),
        ],
    )
    def test_unknown_words(self, option, value, message):
        with pytest.raises(ValueError, match=message):
            make_encoder(**{option: value})


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
        outcomes.append(attend(query, key, value, by_position, windows, direction, lengths) * real)
        leaves = [query, key, value, *(by_position or ())]
        gradients.append(torch.autograd.grad(outcomes[-1].square().sum(), leaves))
    torch.testing.assert_close(*outcomes)
    for blocked, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(blocked, dense)


def test_blocks_are_used_where_they_pay():
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
    heads = blocked_attention(value, value, value, None, [4], "past", lengths, 0.25)
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
