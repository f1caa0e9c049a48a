"""What the tests of the dual encoders share."""

import torch
from torch import nn

from recbole_hyper.encoders.dual import DualRecEncoder
from recbole_hyper.encoders.dual_fmlp import DualFMLPEncoder
from recbole_hyper.encoders.dual_gru import DualGRUEncoder
from recbole_hyper.encoders.dual_transformer import DualTransformerEncoder

N_ITEMS = 30


SMALL = {"n_heads": 4, "max_length": 9, "inner_size": 12, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}


def make(cls=DualRecEncoder, seed: int = 0, scale: float = 20.0, **given_options):
    torch.manual_seed(seed)
    embedding = nn.Embedding(N_ITEMS, 16, padding_idx=0, dtype=torch.float64)
    chosen = given_options
    if cls is DualRecEncoder:
        chosen = SMALL | given_options
    if cls is DualFMLPEncoder:
        chosen = {"max_length": 9, "hidden_dropout_prob": 0.0} | given_options
    if cls is DualTransformerEncoder:
        usual = {"max_length": 9, "n_heads": 2, "norm_placement": "post", "scale_embeddings": False}
        chosen = usual | {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0} | given_options
        scale = 1.0  # Xavier's weights are large enough; larger ones saturate the softmax
    if cls is DualGRUEncoder:
        chosen = {"dropout_prob": 0.0} | given_options
    encoder = cls(embedding, **chosen).double()
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "attention." in name or "filter.weight" in name:
                parameter.mul_(scale)
    return encoder.eval()


def pair(items, lengths):
    """A batch of whole sequences as inputs, targets and lengths."""
    return items[:, :-1] * (torch.arange(items.shape[1] - 1) < lengths[:, None] - 1), items[:, 1:], lengths - 1
