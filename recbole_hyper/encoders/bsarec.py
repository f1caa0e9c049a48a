"""BSARec (AAAI 2024): attention beside a low-pass filter whose high frequencies are rescaled."""

import math
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.base import activation
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.options import (
    Activation,
    AttentionDropout,
    Heads,
    HiddenDropout,
    InitializerRange,
    InnerSize,
    Layers,
    Length,
    NormEps,
)
from recbole_hyper.encoders.window_filters import WindowFilter, WindowFilterEncoder
from recbole_hyper.options import Option
from recbole_hyper.registry import register

# added to the scores of keys that a query may not see, in the published code; a query that sees none sees all alike
_HIDDEN = -10_000.0


def low_pass(length: int, n_frequencies: int, *, circular: bool) -> Tensor:
    """Return the matrix (N, N) that leaves of N positions the ``n_frequencies`` lowest frequencies.

    It is the circulant matrix of the real kernel w = irfft(1, ..., 1, 0, ..., 0), or without ``circular`` the same
    kernel without the wrap: entry (i, j) is w[i - j] for j <= i. The last rows of both are equal.
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
        if hidden_size % n_heads:
            raise ValueError(f"n_heads={n_heads} does not divide hidden_size={hidden_size}")
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(hidden_size, hidden_size) for _ in range(4))
        self.dropout = Dropout(dropout)

    def forward(self, queries: Tensor, inputs: Tensor, visible: Tensor) -> Tensor:
        """Attend from ``queries`` (B, Q, d) to ``inputs`` (B, L, d) where ``visible``, (B, Q, L) or less: (B, Q, d)."""

        def heads(vectors: Tensor) -> Tensor:
            return vectors.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        query, key, value = heads(self.query(queries)), heads(self.key(inputs)), heads(self.value(inputs))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = (scores + torch.where(visible, 0.0, _HIDDEN).unsqueeze(1)).softmax(dim=-1)
        return self.output((self.dropout(weights) @ value).transpose(1, 2).flatten(2))


class BSARecLayer(nn.Module):
    r"""H = alpha LN(X + low(X) + beta^2 (X - low(X))) + (1 - alpha) LN(X + Attention(X)), X' = LN(H + FFN(H)).

    low keeps the lowest c // 2 + 1 frequencies of the window (equations 11 to 14 of the paper); beta is learned for
    each coordinate.
    """

    matrix: Tensor

    def __init__(
        self,
        matrix: Tensor,
        attention: Attention,
        hidden_size: int,
        inner_size: int,
        *,
        alpha: float,
        dropout: float,
        hidden_act: str,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.alpha, self.activation = alpha, activation(hidden_act)
        self.register_buffer("matrix", matrix, persistent=False)
        self.beta = nn.Parameter(torch.randn(hidden_size))
        self.attention = attention
        self.widen = nn.Linear(hidden_size, inner_size)
        self.narrow = nn.Linear(inner_size, hidden_size)
        self.filter_norm, self.attention_norm, self.output_norm = (
            nn.LayerNorm(hidden_size, eps=layer_norm_eps) for _ in range(3)
        )
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, visible: Tensor, *, last_only: bool = False) -> tuple[Tensor, Tensor]:
        """Return the states and the filter's output of ``inputs`` (B, L, d), (B, L, d), or (B, 1, d) of the last."""
        length = inputs.shape[1]
        rows = slice(length - 1, length) if last_only else slice(0, length)
        queries = inputs[:, rows]
        low = self.matrix[rows, :length] @ inputs
        filtered = low + self.beta.square() * (queries - low)
        filtered_states = self.filter_norm(queries + self.dropout(filtered))
        attended = self.attention(queries, inputs, visible[..., rows, :])
        hidden = self.alpha * filtered_states + (1 - self.alpha) * self.attention_norm(queries + self.dropout(attended))
        inner = self.narrow(self.activation(self.widen(hidden)))
        return self.output_norm(hidden + self.dropout(inner)), filtered


@register("encoders", "bsarec")
class BSARecEncoder(WindowFilterEncoder):
    r"""BSARec (Shin et al., AAAI 2024): LN(M[item] + P), then layers of attention beside a filter.

    * ``circular``: the published network. Each prefix stands in its own window of N positions, right-aligned; padding
      has its positions P and takes part in the filter, and positions of padding attend to all alike, as published.
    * ``causal`` (default, ours): the same kernel without the wrap, causal attention, one pass over a sequence, padding
      held at zero.

    Args:
        item_embedding, n_layers, n_heads: the item vectors, whose row 0 is padding; layers; heads of the attention.
        inner_size: width of the feed-forward network; None is 4d, as published.
        hidden_dropout_prob, attn_dropout_prob: behind each part; of the attention weights.
        bsarec_alpha: share of the filter in a layer, in [0, 1].
        bsarec_c: the filter's lowest bsarec_c // 2 + 1 frequencies are low.
        max_length: N, the longest sequence and the length of the filter.

    Raises:
        ValueError: an unknown ``filter`` or activation, no layer, heads that do not divide the width, an alpha outside
            [0, 1], numbers not above 0 that must be, or sequences longer than ``max_length``.
    """

    keeps_padding = True
    model_defaults = {"initializer": "normal"}  # published code

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        n_layers: Annotated[Layers, "layers; published code"] = 2,
        n_heads: Annotated[Heads, "attention heads; divides hidden_size; published command for Beauty"] = 1,
        inner_size: Annotated[
            InnerSize, "width inside the feed-forward part; published code; ~ is 4 x hidden_size"
        ] = 256,
        hidden_dropout_prob: Annotated[HiddenDropout, "behind each part; published code"] = 0.5,
        attn_dropout_prob: Annotated[AttentionDropout, "of attention weights; published code"] = 0.5,
        hidden_act: Annotated[Activation, "inside the feed-forward part; published code"] = "gelu",
        layer_norm_eps: Annotated[NormEps, "added to the variance; published code"] = 1e-12,
        initializer_range: Annotated[InitializerRange, "standard deviation of matrices; published code"] = 0.02,
        bsarec_alpha: Annotated[
            float, Option("float in [0, 1]", "share of the filter beside attention; published command for Beauty")
        ] = 0.7,
        bsarec_c: Annotated[
            int,
            Option("int >= 0", "the lowest bsarec_c // 2 + 1 frequencies are low; published command for Beauty"),
        ] = 5,
        max_length: Annotated[Length, "newest items that a model sees, and length of the filters; published code"] = 50,
        filter: WindowFilter = "causal",
    ) -> None:
        super().__init__(
            item_embedding,
            filter=filter,
            max_length=max_length,
            n_layers=n_layers,
            hidden_dropout_prob=hidden_dropout_prob,
            layer_norm_eps=layer_norm_eps,
            initializer_range=initializer_range,
        )
        if not 0 <= bsarec_alpha <= 1:
            raise ValueError(f"bsarec_alpha={bsarec_alpha} is outside [0, 1]; it is the share of the filter")
        if bsarec_c < 0:
            raise ValueError(f"bsarec_c={bsarec_c}: a number from 0 is expected")
        width = item_embedding.embedding_dim
        matrix = low_pass(max_length, bsarec_c // 2 + 1, circular=self.circular)
        self.layers = nn.ModuleList(
            BSARecLayer(
                matrix,
                Attention(width, n_heads, attn_dropout_prob),
                width,
                inner_size or 4 * width,
                alpha=bsarec_alpha,
                dropout=hidden_dropout_prob,
                hidden_act=hidden_act,
                layer_norm_eps=layer_norm_eps,
            )
            for _ in range(n_layers)
        )
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=initializer_range)
                nn.init.zeros_(module.bias)

    def _through(
        self, layer: nn.Module, states: Tensor, real: Tensor, *, last_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        length = states.shape[1]
        visible = torch.ones(length, length, dtype=torch.bool, device=states.device).tril_()
        return layer(states, visible & real.transpose(1, 2), last_only=last_only)
