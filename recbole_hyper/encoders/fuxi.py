"""FuXi-alpha (Ye et al., 2025): content, time and place weigh the same values, each in a channel of its own.

Where the published code says more than the paper, or something else, the code is taken: see :class:`FuXiBlock`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.components import component
from recbole_hyper.encoders.base import check_above_zero
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.ligr import GatedFeedForward
from recbole_hyper.encoders.relations import (
    LATER,
    RelationalBlock,
    RelationalEncoder,
    Relations,
    RelativeWeights,
    head_width,
)


class FuXiBlock(RelationalBlock):
    r"""Adaptive multi-channel self-attention (AMS) and the multi-stage feed-forward network (MFFN).

    .. math::
        U, V, Q, K &= \mathrm{SiLU}(\mathrm{RMS}(X) W) \\
        A^s_{ij} = \mathrm{SiLU}(q_i^T k_j) / N, \quad
        A^t_{ij} &= \alpha_{b(t_i - t_j)}, \quad A^p_{ij} = \beta_{i-j}, \quad j \le i \\
        O &= X + W_0\, \mathrm{drop}(\mathrm{RMS}([A^p V, A^t V, A^s V]) \odot U) + c \\
        X' &= O + W_3 (\mathrm{SiLU}(W_1 z) \odot W_2 z), \quad z = \mathrm{drop}(\mathrm{RMS}(O))

    with N = ``max_length`` and learned :math:`\alpha`, :math:`\beta` that all heads share. The channels share their
    values, and differ in their weights, those of time and place are neither divided by N nor passed through SiLU. Of
    the code, not of the paper: RMS norms without weights, the bias c of W_0 and none of W_1 to W_3, the dropouts, a
    gate U over all three channels, an inner width of d.

    Args:
        hidden_size: d.
        n_heads: h.
        attention_dim, linear_dim: widths of a head of Q and K, and of V and each third of U.
        inner_size: width inside the second stage.
        max_length: N.
        n_time_buckets: see :class:`RelativeWeights`.
        dropout_prob: of what enters W_0, and of z.
        layer_norm_eps: epsilon of the RMS norms.
        std: of W and of the relative weights.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        n_heads: int,
        attention_dim: int,
        linear_dim: int,
        inner_size: int,
        max_length: int,
        n_time_buckets: int,
        dropout_prob: float,
        layer_norm_eps: float,
        std: float,
    ) -> None:
        super().__init__()
        self.n_heads, self.max_length = n_heads, max_length
        self.values, self.keys = n_heads * linear_dim, n_heads * attention_dim
        self.weights = RelativeWeights(max_length, n_time_buckets, std)
        self.gate_query = nn.Linear(hidden_size, 3 * self.values + self.keys, bias=False)
        self.value_key = nn.Linear(hidden_size, self.values + self.keys, bias=False)
        self.output = nn.Linear(3 * self.values, hidden_size)
        self.input_norm = nn.RMSNorm(hidden_size, eps=layer_norm_eps, elementwise_affine=False)
        self.attended_norm = nn.RMSNorm(3 * self.values, eps=layer_norm_eps, elementwise_affine=False)
        self.feed_norm = nn.RMSNorm(hidden_size, eps=layer_norm_eps, elementwise_affine=False)
        self.feed_forward = GatedFeedForward(hidden_size, inner_size, 0.0)
        self.dropout = Dropout(dropout_prob)
        for linear in (self.gate_query, self.value_key):
            nn.init.normal_(linear.weight, std=std)
        # gate and value of SwiGLU are matrices of their own in the code
        for matrix in (self.output.weight, *self.feed_forward.inner.weight.chunk(2), self.feed_forward.outer.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone."""
        states = memory if query is None else query
        normed = self.input_norm(memory)
        asking = normed if query is None else self.input_norm(query)
        gate, queries = F.silu(self.gate_query(asking)).split((3 * self.values, self.keys), dim=-1)
        values, keys = F.silu(self.value_key(normed)).split((self.values, self.keys), dim=-1)
        channels = (
            _by_place(self.weights.of_places(relations, 0.0), values),
            self.weights.of_gaps(relations, 0.0) @ values,
            self._by_content(queries, keys, values, relations),
        )
        states = states + self.output(self.dropout(self.attended_norm(torch.cat(channels, dim=-1)) * gate))
        return states + self.feed_forward(self.dropout(self.feed_norm(states)))

    def _by_content(self, queries: Tensor, keys: Tensor, values: Tensor, relations: Relations) -> Tensor:
        """Return the semantic channel (B, Q, h w)."""
        later = torch.where(relations.places == self.max_length, LATER, 0.0)
        scores = self._heads(queries) @ self._heads(keys).transpose(-1, -2)
        # (Q, L) or (B, 1, L) to (B, h, Q, L); float32 whatever the products are in
        weights = F.silu(scores + (later if later.dim() == 2 else later.unsqueeze(1)))
        return (weights @ self._heads(values)).transpose(1, 2).flatten(-2) / self.max_length

    def _heads(self, projected: Tensor) -> Tensor:
        """Return (B, h, L, w) of (B, L, h w)."""
        return projected.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


def _by_place(weights: Tensor, values: Tensor) -> Tensor:
    """Return weights (Q, L) or (B, 1, L) times values (B, L, w): (B, Q, w)."""
    if weights.dim() == 3:
        return weights @ values
    # one product for all rows, whose gradient is one as well
    return torch.tensordot(weights, values, dims=([1], [1])).transpose(0, 1)


@component("encoders", "fuxi")
class FuXiEncoder(RelationalEncoder):
    """FuXi-alpha's blocks over item vectors and learned positions; times come with the batch.

    As in the code of HSTU, states and item vectors of length 1 and a temperature follow the blocks there. Here the
    geometry scores, so the states leave through a layer norm, which is ours.

    Args:
        item_embedding: shared (n_items, d) table.
        max_length: MAX_ITEM_LIST_LENGTH, the number of learned positions, and the N of the attention.
        n_layers, n_heads: blocks and heads.
        attention_dim: width of a head's queries and keys (None: d / n_heads).
        linear_dim: width of a head's values (None: d / n_heads).
        inner_size: width inside SwiGLU (None: d).
        n_time_buckets: the last bucket of time.
        hidden_dropout_prob: of the input and inside the blocks, in [0, 1).
        layer_norm_eps: epsilon of every norm.
        initializer_range: standard deviation of W and of the relative weights.

    Raises:
        ValueError: heads that do not divide d where a width is None, a number below 1, a ``layer_norm_eps`` or
            ``initializer_range`` not above 0.
    """

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        max_length: int,
        n_layers: int = 2,
        n_heads: int = 1,
        attention_dim: int | None = None,
        linear_dim: int | None = None,
        inner_size: int | None = None,
        n_time_buckets: int = 128,
        hidden_dropout_prob: float = 0.2,
        layer_norm_eps: float = 1e-6,
        initializer_range: float = 0.02,
    ) -> None:
        check_above_zero(layer_norm_eps=layer_norm_eps, initializer_range=initializer_range)
        super().__init__(
            item_embedding,
            max_length=max_length,
            n_time_buckets=n_time_buckets,
            dropout_prob=hidden_dropout_prob,
            layer_norm_eps=layer_norm_eps,
        )
        width = item_embedding.embedding_dim
        self.blocks = nn.ModuleList(
            FuXiBlock(
                width,
                n_heads=n_heads,
                attention_dim=head_width(width, n_heads, attention_dim=attention_dim),
                linear_dim=head_width(width, n_heads, linear_dim=linear_dim),
                inner_size=inner_size or width,
                max_length=max_length,
                n_time_buckets=n_time_buckets,
                dropout_prob=hidden_dropout_prob,
                layer_norm_eps=layer_norm_eps,
                std=initializer_range,
            )
            for _ in range(n_layers)
        )
