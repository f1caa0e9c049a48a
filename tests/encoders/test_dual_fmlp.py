"""DualFMLP-Rec's encoder: no filter shows a state its target, and the outputs of the filters are the heads."""

import pytest
import torch

from recbole_hyper.encoders.dual_fmlp import DualFMLPEncoder
from tests.encoders.duals import N_ITEMS, make, pair, random_batch


@pytest.mark.parametrize("filter", ["causal", "circular"])
def test_no_state_sees_its_target(filter):
    encoder = make(DualFMLPEncoder, filter=filter)
    items, lengths = random_batch([6])
    before = encoder.both(*pair(items, lengths))
    for changed in range(6):
        other = items.clone()
        other[0, changed] = items[0, changed] % (N_ITEMS - 1) + 1
        after = encoder.both(*pair(other, lengths))
        # position i of the past predicts item i + 1, position i of the future item i
        torch.testing.assert_close(after.past[:, :changed], before.past[:, :changed])
        torch.testing.assert_close(after.future[:, changed:], before.future[:, changed:])
        assert (after.past[0, changed:] != before.past[0, changed:]).any(-1).all()
        assert (after.future[0, :changed] != before.future[0, :changed]).any(-1).all()


def test_the_outputs_of_the_filters_are_the_heads():
    encoder = make(DualFMLPEncoder).past
    items, lengths = random_batch([6])
    _, trace = encoder.trace(items, lengths)
    assert [head.shape for head in trace.heads] == [(1, 6, 1, 16)] * 2
    inputs = encoder.norm(encoder.item_embedding(items) + encoder.position[:6].flip(0))
    torch.testing.assert_close(trace.heads[0][:, :, 0], encoder.layers[0].filter.causal(inputs))
