"""LiGR blocks: equal to a plain loop of their formula, causal, and trained by the models that name them."""

import pytest
import torch
from torch import nn

from recbole_hyper.encoders.base import newest
from recbole_hyper.encoders.ligr import LiGREncoder
from tests.encoders.test_transformer import SEQUENCES, attended, padded


def encoder(**options: object) -> LiGREncoder:
    torch.manual_seed(1)
    table = nn.Embedding(30, 12, padding_idx=0)
    settings = {"max_length": 9, "n_heads": 2, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}
    made = LiGREncoder(table, **{**settings, **options})
    made.table = table  # keeps the shared table alive
    return made.double().eval()


def loop(made: LiGREncoder, sequence: list[int]) -> torch.Tensor:
    """The blocks position by position and head by head, as the papers write them."""
    length = len(sequence)
    places = [made.position_embedding.weight[length - 1 - j] for j in range(length)]
    x = torch.stack([made.table.weight[item] + place for item, place in zip(sequence, places, strict=True)])
    for block in made.blocks:
        part = block.attention
        normed = block.attention_norm(x)
        key_weight, value_weight = part.key_value.weight.chunk(2)
        key_bias, value_bias = part.key_value.bias.chunk(2)
        queries, keys = part.query(normed), normed @ key_weight.T + key_bias
        values = normed @ value_weight.T + value_bias
        x = x + part.output(attended(queries, keys, values, part.n_heads)) / (1 + torch.exp(-block.attention_gate(x)))
        normed = block.feed_norm(x)
        inner = block.feed_forward.inner.weight
        gate, value = normed @ inner[: len(inner) // 2].T, normed @ inner[len(inner) // 2 :].T
        fed = (gate / (1 + torch.exp(-gate)) * value) @ block.feed_forward.outer.weight.T
        x = x + fed / (1 + torch.exp(-block.feed_gate(x)))
    return x


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_equals_a_plain_loop_of_its_blocks(n_heads: int, n_layers: int) -> None:
    made = encoder(n_heads=n_heads, n_layers=n_layers)
    items, lengths = padded(SEQUENCES)
    states, last = made(items, lengths), made.last(items, lengths)
    for row, sequence in enumerate(SEQUENCES):
        torch.testing.assert_close(states[row, : len(sequence)], loop(made, sequence), rtol=0, atol=1e-12)
    torch.testing.assert_close(last, newest(states, lengths), rtol=0, atol=1e-12)


def test_feed_forward_is_four_times_as_wide_and_has_no_biases() -> None:
    block = encoder().blocks[0]
    assert block.feed_forward.inner.weight.shape == (2 * 48, 12)
    assert block.feed_forward.inner.bias is None
    assert block.feed_forward.outer.bias is None
    assert encoder(inner_size=5).blocks[0].feed_forward.outer.weight.shape == (12, 5)
