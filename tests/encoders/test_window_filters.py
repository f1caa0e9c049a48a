"""Newest states alone; windows of prefixes: one per newest state, in pieces, with recomputation."""

import pytest
import torch

from recbole_hyper.encoders import _window_filters
from recbole_hyper.encoders.base import newest
from tests.encoders import test_bsarec as bsarec
from tests.encoders.test_fmlp import make
from tests.encoders.windowed import random_batch
from tests.raising import refused


@pytest.mark.parametrize("made", [make, bsarec.make], ids=["fmlp", "bsarec"])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_last_causal_layer_computes_only_the_newest_states_in_evaluation(made, n_layers):
    encoder, widths = made(n_layers=n_layers), []
    items, lengths = random_batch([7, 4, 0, 1, 7], n_items=20)
    expected = newest(encoder(items, lengths), lengths)
    encoder.layers[-1].widen.register_forward_hook(lambda part, given, result: widths.append(result.shape[1]))
    torch.testing.assert_close(encoder.last(items, lengths), expected, rtol=0, atol=1e-12)
    # in training all, so that dropout draws as it does for all states
    torch.testing.assert_close(encoder.train().last(items, lengths), expected, rtol=0, atol=1e-12)
    assert widths == [1, 7]


@pytest.mark.parametrize("positions", [4 * 9, 2**17])
def test_the_newest_state_costs_one_window_a_row(monkeypatch, positions):
    monkeypatch.setattr(_window_filters, "PREFIX_POSITIONS", positions)
    encoder = make(filter="circular")
    items, lengths = random_batch([9, 4, 1, 9, 7])
    expected = encoder(items, lengths)[torch.arange(5), lengths - 1]
    windows = []
    prefixes = encoder._prefixes
    monkeypatch.setattr(encoder, "_prefixes", lambda *given: windows.append(len(given[1])) or prefixes(*given))
    assert torch.equal(encoder.last(items, lengths), expected)
    assert sum(windows) == 5
    with refused(ValueError, "MAX_ITEM_LIST_LENGTH=9"):
        encoder.last(torch.ones(1, 10, dtype=torch.int64), torch.tensor([10]))


def test_prefixes_in_pieces_equal_prefixes_at_once(monkeypatch):
    encoder = make(filter="circular").train()
    items, lengths = random_batch([9, 4, 1])

    def run():
        encoder.zero_grad()
        states = encoder(items, lengths)
        states.square().sum().backward()
        return [states.detach(), *(p.grad for p in encoder.parameters())]

    whole = [x.clone() for x in run()]
    monkeypatch.setattr(_window_filters, "PREFIX_POSITIONS", 4 * 9)
    for one, other in zip(whole, run(), strict=True):
        torch.testing.assert_close(one, other)


def test_recomputation_sees_the_same_dropout(monkeypatch):
    monkeypatch.setattr(_window_filters, "PREFIX_POSITIONS", 4 * 9)
    encoder = make(filter="circular", hidden_dropout_prob=0.5).train()
    items, lengths = random_batch([9, 4, 1])
    weight = encoder.layers[1].narrow.bias

    def total():
        torch.manual_seed(0)
        return encoder(items, lengths).pow(3).sum()

    (gradient,) = torch.autograd.grad(total(), weight)
    for index in range(3):
        with torch.no_grad():
            weight[index] += 1e-6
            above = total()
            weight[index] -= 2e-6
            below = total()
            weight[index] += 1e-6
        assert gradient[index].item() == pytest.approx((above - below).item() / 2e-6, rel=1e-4, abs=1e-6)
