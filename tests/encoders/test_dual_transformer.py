"""DualSASRec's encoder: the traces of its heads, and its defaults."""

import torch
from torch import nn

from recbole_hyper.encoders.dual_transformer import DualTransformerEncoder
from recbole_hyper.encoders.transformer import TransformerEncoder
from tests.encoders.duals import make
from tests.encoders.windowed import random_batch


def test_the_output_projection_mixes_the_traced_heads():
    encoder = make(DualTransformerEncoder)
    items, lengths = random_batch([8, 3])
    states, trace = encoder.trace_past(items, lengths)
    assert torch.equal(states, encoder(items, lengths))
    assert [head.shape for head in trace.heads] == [(2, 8, 2, 8)] * 2
    seen = []
    for block in encoder.past.blocks:
        block.attention.register_forward_hook(lambda module, inputs, output: seen.append(output))
    _, trace = encoder.trace_past(items, lengths)
    for block, heads, output in zip(encoder.past.blocks, trace.heads, seen, strict=True):
        torch.testing.assert_close(block.attention.output(heads.flatten(-2)), output)
    # every hook is removed
    assert all(not block.attention.output._forward_pre_hooks for block in encoder.past.blocks)


def test_its_defaults_replace_those_of_the_transformer():
    own, backbone = DualTransformerEncoder.options(), TransformerEncoder.options()
    assert (own["n_heads"].default, backbone["n_heads"].default) == (2, 1)
    assert own["attention_init"] == backbone["attention_init"]
    encoder = DualTransformerEncoder(nn.Embedding(9, 8, padding_idx=0), max_length=5)
    for direction in (encoder.past, encoder.future):
        assert direction.blocks[0].attention.n_heads == 2
        assert isinstance(direction.output_norm, nn.Identity)  # norm_placement: post
        assert direction.scale == 1.0
