"""Windowed attention against equation 8, plain loops and perturbation."""

import pytest
import torch

from recbole_hyper.encoders.base import Dropout
from recbole_hyper.encoders.windowed_attention import WindowedAttention
from tests.encoders.windowed import make_encoder, random_batch
from tests.reference import dualrec as reference


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


def test_dropout_can_be_kept_out_of_the_layers():
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

    @pytest.mark.parametrize("switch", ["residual", "layer_norm"])
    def test_what_is_switched_off_equals_the_loops(self, switch):
        encoder, items, lengths = make_encoder(**{switch: False}), *random_batch([9])
        expected, _, _ = reference.encoder(encoder, items[0])
        torch.testing.assert_close(encoder(items, lengths)[0], expected, rtol=1e-6, atol=1e-7)
        assert not torch.allclose(encoder(items, lengths), make_encoder()(items, lengths))
        assert (encoder.state_dict().keys() == self.full) == (switch == "residual")


def test_an_odd_number_of_heads_may_have_given_windows():
    items, lengths = random_batch([5])
    encoder = make_encoder(hidden_size=15, n_heads=3, windows=[1, 2, 9])
    assert encoder(items, lengths).shape == (1, 5, 15)
