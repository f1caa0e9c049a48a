"""Windows of prefixes: one per newest state, in pieces, with recomputation; shown on the filters of FMLP-Rec."""

import pytest
import torch

from recbole_hyper.encoders import _window_filters
from tests.encoders.test_fmlp import make, random_batch


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
    with pytest.raises(ValueError, match="a history of 10 items exceeds MAX_ITEM_LIST_LENGTH=9"):
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


def test_too_long_a_sequence():
    items, lengths = random_batch([10])
    with pytest.raises(ValueError, match="a history of 10 items exceeds"):
        make()(items, lengths)
