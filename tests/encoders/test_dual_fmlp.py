"""DualFMLP-Rec's encoder: no filter shows a state its target, and the outputs of the filters are the heads."""

import torch

from recbole_hyper.encoders.dual_fmlp import DualFMLPEncoder
from tests.encoders.duals import make
from tests.encoders.windowed import random_batch


def test_the_outputs_of_the_filters_are_the_heads():
    encoder = make(DualFMLPEncoder).past
    items, lengths = random_batch([6])
    _, trace = encoder.trace(items, lengths)
    assert [head.shape for head in trace.heads] == [(1, 6, 1, 16)] * 2
    inputs = encoder.norm(encoder.item_embedding(items) + encoder.position[:6].flip(0))
    torch.testing.assert_close(trace.heads[0][:, :, 0], encoder.layers[0].filter.causal(inputs))
