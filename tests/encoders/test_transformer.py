"""The transformer: causal, blind to padding and to the rest of the batch, equal to RecBole's where configured so."""

import math

import pytest
import torch
from recbole.model.layers import TransformerEncoder as RecBoleTransformer
from torch import nn

from recbole_hyper.encoders.transformer import TransformerEncoder, attention_with_pads
from tests.raising import refused


def encoder(placement: str = "query", **options: object) -> TransformerEncoder:
    table = nn.Embedding(30, 12, padding_idx=0)
    settings = {
        "max_length": 9,
        "n_heads": 2,
        "norm_placement": placement,
        "hidden_dropout_prob": 0.0,
        "attn_dropout_prob": 0.0,
    }
    made = TransformerEncoder(table, **{**settings, **options})
    made.table = table  # keeps the shared table alive
    return made.double().eval()


def padded(sequences: list[list[int]], width: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    items = torch.zeros(len(sequences), width or int(lengths.max()), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        items[row, : len(sequence)] = torch.tensor(sequence)
    return items, lengths


def attended(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Causal attention, head by head and position by position."""
    size = queries.shape[1] // n_heads
    found = torch.zeros_like(queries)
    for own in (slice(head * size, (head + 1) * size) for head in range(n_heads)):
        for j in range(len(queries)):
            weights = torch.softmax(keys[: j + 1, own] @ queries[j, own] / size**0.5, dim=0)
            found[j, own] = weights @ values[: j + 1, own]
    return found


SEQUENCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9], [3, 2]]


def test_positions_count_from_the_end() -> None:
    made = encoder()
    long, short = made(*padded([[5, 7, 7, 7]])), made(*padded([[7, 7, 7]]))
    with torch.no_grad():
        made.position_embedding.weight[3:] = 0  # what only the oldest item of four uses
    assert torch.equal(made(*padded([[7, 7, 7]])), short)
    assert not torch.equal(made(*padded([[5, 7, 7, 7]])), long)


def test_equals_a_plain_loop_of_the_papers_block() -> None:
    made = encoder("query", n_layers=1, n_heads=1)
    block, sequence = made.blocks[0], SEQUENCES[0]
    length = len(sequence)
    x = torch.stack(
        [
            made.table.weight[item] * 12**0.5 + made.position_embedding.weight[length - 1 - j]
            for j, item in enumerate(sequence)
        ]
    )
    q = block.attention_norm(x)
    key_value = block.attention.key_value
    keys = x @ key_value.weight[:12].T + key_value.bias[:12]
    values = x @ key_value.weight[12:].T + key_value.bias[12:]
    y = block.feed_norm(q + block.attention.output(attended(block.attention.query(q), keys, values, 1)))
    x = y + block.outer(torch.relu(block.inner(y)))
    torch.testing.assert_close(made(*padded([sequence]))[0], made.output_norm(x), rtol=0, atol=1e-12)


def test_equals_recboles_transformer_with_its_settings() -> None:
    made = encoder(
        "post", hidden_act="gelu", inner_size=20, scale_embeddings=False, layer_norm_eps=1e-12, initializer="normal"
    )
    theirs = RecBoleTransformer(
        n_layers=2, n_heads=2, hidden_size=12, inner_size=20, hidden_dropout_prob=0.0, attn_dropout_prob=0.0,
        hidden_act="gelu", layer_norm_eps=1e-12,
    ).double().eval()  # fmt: skip
    for block, layer in zip(made.blocks, theirs.layer, strict=True):
        attention, feed = layer.multi_head_attention, layer.feed_forward
        attention.query.load_state_dict(block.attention.query.state_dict())
        weight, bias = block.attention.key_value.weight.chunk(2), block.attention.key_value.bias.chunk(2)
        for part, linear in enumerate((attention.key, attention.value)):
            linear.load_state_dict({"weight": weight[part], "bias": bias[part]})
        attention.dense.load_state_dict(block.attention.output.state_dict())
        attention.LayerNorm.load_state_dict(block.attention_norm.state_dict())
        feed.dense_1.load_state_dict(block.inner.state_dict())
        feed.dense_2.load_state_dict(block.outer.state_dict())
        feed.LayerNorm.load_state_dict(block.feed_norm.state_dict())
    items, lengths = padded([SEQUENCES[2]])
    width = items.shape[1]
    positions = made.position_embedding.weight[torch.arange(width - 1, -1, -1)]
    hidden = made.input_norm(made.table(items) + positions)
    mask = torch.triu(torch.full((width, width), -10000.0, dtype=torch.double), 1)[None, None]
    expected = theirs(hidden, mask, output_all_encoded_layers=True)[-1]
    torch.testing.assert_close(made(items, lengths), expected, rtol=0, atol=1e-10)


def left_padded_loop(made: TransformerEncoder, sequence: list[int]) -> torch.Tensor:
    """States of one sequence by the papers' code: zero vectors come before it, and no mask hides them."""
    width, total, pads = made.item_embedding.embedding_dim, made.max_length, made.max_length - len(sequence)
    x = torch.zeros(total, width, dtype=torch.double)
    for j, item in enumerate(sequence):
        x[pads + j] = made.item_embedding.weight[item] * width**0.5
        x[pads + j] += made.position_embedding.weight[len(sequence) - 1 - j]
    for block in made.blocks:
        part, q = block.attention, block.attention_norm(x)
        keys, values = part.key_value(x).split(width, dim=-1)
        y = block.feed_norm(q + part.output(attended(part.query(q), keys, values, part.n_heads)))
        x = y + block.outer(torch.relu(block.inner(y)))
        x[:pads] = 0
    return made.output_norm(x)[pads:]


@pytest.mark.parametrize("n_heads", [1, 3])
def test_attending_to_pads_equals_a_loop_over_left_padded_sequences(n_heads: int) -> None:
    made = encoder(n_heads=n_heads, attend_pads=True)
    items, lengths = padded(SEQUENCES)
    states, last = made(items, lengths), made.last(items, lengths)
    for row, sequence in enumerate(SEQUENCES):
        expected = left_padded_loop(made, sequence)
        torch.testing.assert_close(states[row, : len(sequence)], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(last[row], expected[-1], rtol=0, atol=1e-12)
    blind = encoder(n_heads=n_heads)
    blind.load_state_dict(made.state_dict())
    # the longest row has no padding
    assert torch.allclose(blind(items, lengths)[2], states[2], atol=1e-12)
    assert (blind(items, lengths)[1, 0] - states[1, 0]).abs().max() > 1e-4


def test_gradients_with_pads_are_those_of_differences() -> None:
    made = encoder(n_layers=1, attend_pads=True)
    items, lengths = padded(SEQUENCES)
    bias = made.blocks[0].attention.key_value.bias

    def value() -> torch.Tensor:
        return made(items, lengths)[:, 0].square().mul(torch.arange(12)).sum()

    (gradient,) = torch.autograd.grad(value(), bias)
    step = 1e-6
    for at in (0, 5, 13, 23):
        with torch.no_grad():
            bias[at] += step
            high = value()
            bias[at] -= 2 * step
            low = value()
            bias[at] += step
        assert gradient[at].item() == pytest.approx(float(high - low) / (2 * step), rel=1e-5, abs=1e-7)
    assert gradient.isfinite().all()


def test_padded_positions_are_dropped_one_by_one() -> None:
    torch.manual_seed(0)
    rows, pads, rate = 20000, 4, 0.25
    ones, zeros = torch.ones(1, 2), torch.zeros(rows, 1, 1, 2)
    mask = torch.ones(1, 1, dtype=torch.bool)
    n_pads = torch.full((rows,), pads)
    # logits are all 0: five equal weights, of which the four of the padding have value 1
    got = attention_with_pads(zeros, zeros, zeros, (ones, ones), mask, n_pads, rate)[:, 0, 0, 0]
    share = got * 5 * (1 - rate)
    counts = torch.bincount(share.round().long(), minlength=pads + 1) / rows
    expected = torch.tensor([math.comb(pads, k) * (1 - rate) ** k * rate ** (pads - k) for k in range(pads + 1)])
    torch.testing.assert_close(share, share.round(), rtol=0, atol=1e-4)
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.015)


def test_the_fused_start_is_that_of_torch_attention() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(5, 96, padding_idx=0)
    made = TransformerEncoder(table, max_length=3, n_heads=2, attention_init="fused")
    theirs = nn.MultiheadAttention(96, 2)
    for block in made.blocks:
        part = block.attention
        drawn = torch.cat([part.query.weight, part.key_value.weight])
        assert drawn.shape == theirs.in_proj_weight.shape
        for matrix in (part.query.weight, part.key_value.weight):
            # the largest of many uniform values is close to the end of their interval
            assert matrix.abs().max().item() == pytest.approx((6 / (4 * 96)) ** 0.5, rel=1e-3)
            assert matrix.std().item() == pytest.approx(theirs.in_proj_weight.std().item(), rel=0.03)
        assert not any(linear.bias.any() for linear in (part.query, part.key_value, part.output))
    apart = TransformerEncoder(table, max_length=3, n_heads=2).blocks[0].attention
    assert apart.query.weight.abs().max().item() == pytest.approx((6 / (2 * 96)) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"attention_init": "fused", "initializer": "normal"}, "initializer=xavier"),
        ({"attend_pads": True, "norm_placement": "pre"}, "'pre'"),
    ],
)
def test_options_that_do_not_go_together(options: dict, named: str) -> None:
    with refused(ValueError, named):
        encoder(**options)
