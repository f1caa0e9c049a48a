"""BSARec (AAAI 2024): attention beside a filter that rescales high frequencies."""

import math
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders._window_filters import WindowFilterEncoder, WindowFilterLayer, at_ends
from recbole_hyper.encoders.base import Dropout, check_heads
from recbole_hyper.options import Option
from recbole_hyper.values import NonNegativeInt, Share

# the published code adds this to the scores of hidden keys; a query without visible keys then attends to all equally
_HIDDEN = -10_000.0


def low_pass(length: int, n_frequencies: int, *, circular: bool) -> Tensor:
    """Return the matrix (N, N) that keeps the ``n_frequencies`` lowest frequencies of N positions.

    It is the circulant matrix of the kernel irfft(1, ..., 1, 0, ..., 0), or its lower triangle if not ``circular``.
    """
    spectrum = np.zeros(length // 2 + 1)
    spectrum[:n_frequencies] = 1.0
    kernel = np.fft.irfft(spectrum, n=length)
    steps = np.arange(length)[:, None] - np.arange(length)
    matrix = kernel[steps % length]
    return torch.from_numpy(matrix if circular else np.where(steps >= 0, matrix, 0.0)).to(torch.get_default_dtype())


class Attention(nn.Module):
    """Multi-head self-attention over windows; queries are all positions or the last one."""

    def __init__(self, hidden_size: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        check_heads(hidden_size, n_heads)
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(hidden_size, hidden_size) for _ in range(4))
        self.dropout = Dropout(dropout)

    def forward(self, queries: Tensor, inputs: Tensor, visible: Tensor) -> Tensor:
        """Attend from ``queries`` (B, Q, d) to ``inputs`` (B, L, d); ``visible`` broadcasts to (B, Q, L)."""

        def heads(vectors: Tensor) -> Tensor:
            return vectors.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        query, key, value = heads(self.query(queries)), heads(self.key(inputs)), heads(self.value(inputs))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = (scores + torch.where(visible, 0.0, _HIDDEN).unsqueeze(1)).softmax(dim=-1)
        return self.output((self.dropout(weights) @ value).transpose(1, 2).flatten(2))


class BSARecLayer(WindowFilterLayer):
    r"""H = alpha LN(X + low(X) + beta^2 (X - low(X))) + (1 - alpha) LN(X + Attention(X)), X' = LN(H + FFN(H)).

    low keeps the lowest c // 2 + 1 frequencies of the window (equations 11 to 14 of the paper). Each coordinate learns
    its beta.
    """

    norms = ("filter_norm", "attention_norm", "output_norm")
    matrix: Tensor
    attention: Attention
    attention_norm: nn.Module

    def __init__(
        self,
        length: int,
        hidden_size: int,
        circular: bool,
        *,
        n_heads: Annotated[opt.Heads, "attention heads; divides hidden_size; published command for Beauty"] = 1,
        attn_dropout_prob: Annotated[opt.AttentionDropout, "of attention weights; published code"] = 0.5,
        bsarec_alpha: Annotated[Share, Option("share of the filter; published for Beauty")] = 0.7,
        bsarec_c: Annotated[NonNegativeInt, Option("bsarec_c // 2 + 1 low frequencies; published for Beauty")] = 5,
        **more: Any,
    ) -> None:
        attention, beta = Attention(hidden_size, n_heads, attn_dropout_prob), torch.randn(hidden_size)
        super().__init__(hidden_size, {"attention": attention}, **more)
        self.alpha, self.beta = bsarec_alpha, nn.Parameter(beta)
        self.register_buffer("matrix", low_pass(length, bsarec_c // 2 + 1, circular=circular), persistent=False)

    def forward(self, inputs: Tensor, real: Tensor, *, ends: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        length = inputs.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=inputs.device).tril_()
        queries, matrix = inputs, self.matrix[:length, :length]
        if ends is not None:
            queries = at_ends(inputs, ends)
            # a row for all of the batch, or one for each
            earlier, matrix = (rows[ends].unsqueeze(-2) for rows in (earlier, matrix))
        low = matrix @ inputs
        filtered = low + self.beta.square() * (queries - low)
        filtered_states = self.filter_norm(queries + self.dropout(filtered))
        attended = self.attention(queries, inputs, earlier & real.transpose(1, 2))
        hidden = self.alpha * filtered_states + (1 - self.alpha) * self.attention_norm(queries + self.dropout(attended))
        return self.feed_forward(hidden), filtered


class BSARecEncoder(WindowFilterEncoder):
    r"""BSARec (Shin et al., AAAI 2024): LN(M[item] + P), then layers of attention beside a filter.

    * ``circular``: the published network, with a window of N = ``max_length`` positions for each prefix. As published,
      padding has positions P, takes part in the filter and attends to all positions equally.
    * ``causal`` (default, ours): the same kernel without the wrap, causal attention, zero padding, and one pass over a
      sequence.
    """

    made_of = (BSARecLayer,)
    keeps_padding = True

    def __init__(self, item_embedding: nn.Embedding, **more: Any) -> None:
        super().__init__(item_embedding, **more)
        for layer in self.layers:
            assert isinstance(layer, BSARecLayer)
            layer.draw()
