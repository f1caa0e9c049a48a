"""The transformer: causal, blind to padding and to the rest of the batch, equal to RecBole's where configured so."""

import pytest
import torch
from recbole.model.layers import TransformerEncoder as RecBoleTransformer
from torch import nn

from recbole_hyper.encoders.base import newest
from recbole_hyper.encoders.transformer import NORM_PLACEMENTS, TransformerEncoder


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


SEQUENCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9], [3, 2]]


@pytest.mark.parametrize("placement", NORM_PLACEMENTS)
def test_a_batch_of_mixed_lengths_equals_each_user_alone(placement: str) -> None:
    made = encoder(placement)
    together = made(*padded(SEQUENCES))
    for row, sequence in enumerate(SEQUENCES):
        alone = made(*padded([sequence]))
        torch.testing.assert_close(together[row, : len(sequence)], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("placement", NORM_PLACEMENTS)
@pytest.mark.parametrize("layers", [1, 3])
def test_the_newest_states_alone_equal_those_among_all(placement: str, layers: int) -> None:
    made = encoder(placement, n_layers=layers)
    items, lengths = padded(SEQUENCES)
    torch.testing.assert_close(made.last(items, lengths), newest(made(items, lengths), lengths), rtol=0, atol=1e-12)
    made.train()
    torch.testing.assert_close(made.last(items, lengths), newest(made(items, lengths), lengths), rtol=0, atol=1e-12)


@pytest.mark.parametrize("placement", NORM_PLACEMENTS)
def test_no_state_depends_on_a_later_item_or_on_padding(placement: str) -> None:
    made = encoder(placement)
    sequence = SEQUENCES[2]
    states = made(*padded([sequence]))[0]
    for position in range(1, len(sequence)):
        changed = list(sequence)
        changed[position] = 29
        other = made(*padded([changed]))[0]
        torch.testing.assert_close(other[:position], states[:position], rtol=0, atol=1e-12)
        assert (other[position] - states[position]).abs().max() > 1e-6
    wide = made(*padded([sequence[:4]], width=9))[0]
    torch.testing.assert_close(wide[:4], made(*padded([sequence[:4]]))[0], rtol=0, atol=1e-12)


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
    attended = []
    for j in range(length):
        query = block.attention.query(q[j])
        weights = torch.softmax(torch.stack([query @ keys[i] / 12**0.5 for i in range(j + 1)]), dim=0)
        attended.append(sum(weights[i] * values[i] for i in range(j + 1)))
    y = block.feed_norm(q + block.attention.output(torch.stack(attended)))
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


@pytest.mark.parametrize(
    ("options", "says"),
    [({"n_heads": 5}, "n_heads=5 does not divide"), ({"hidden_act": "selu"}, "known: relu"),
     ({"norm_placement": "last"}, "allowed are query"), ({"initializer": "zeros"}, "allowed are xavier"),
     ({"layer_norm_eps": 0.0}, "layer_norm_eps=0.0: a finite"), ({"initializer_range": 0}, "initializer_range=0: a")],
)  # fmt: skip
def test_bad_options(options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        encoder(**options)


def test_too_long_a_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="10 items are more than MAX_ITEM_LIST_LENGTH=9"):
        encoder()(*padded([list(range(1, 11))]))
