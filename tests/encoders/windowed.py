"""What the tests of windowed attention share."""

import torch
from torch import nn

from recbole_hyper.encoders.windowed_attention import WindowedAttentionEncoder


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


def random_batch(lengths: list[int], n_items: int = 30, seed: int = 1, columns: int | None = None):
    generator = torch.Generator().manual_seed(seed)
    items = torch.zeros(len(lengths), columns or max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        items[row, :length] = torch.randint(1, n_items, (length,), generator=generator)
    return items, torch.tensor(lengths)
