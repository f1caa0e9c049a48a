"""HSTU (Zhai et al., 2024, "Actions Speak Louder than Words"): attention without softmax, gated, aware of time."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.components import component
from recbole_hyper.encoders.base import check_above_zero
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.relations import (
    LATER,
    RelationalBlock,
    RelationalEncoder,
    Relations,
    RelativeWeights,
    head_width,
)


class TransductionUnit(RelationalBlock):
    r"""One layer, equations 1 to 3 of the paper.

    .. math::
        U, V, Q, K &= \mathrm{SiLU}(W_1 \mathrm{LN}(X)) \\
        A_{ij} &= \mathrm{SiLU}(q_i^T k_j + p_{i-j} + r_{b(t_i - t_j)}) / N, \quad j \le i \\
        X' &= X + W_2\, \mathrm{drop}(\mathrm{LN}(A V) \odot U) + c

    with N = ``max_length``, learned p and r (:class:`RelativeWeights`), and layer norms without weights, as in the
    published code, which divides by N and masks in this way too.

    Args:
        hidden_size: d.
        n_heads: h.
        attention_dim, linear_dim: widths of a head of Q and K, and of U and V.
        max_length: N.
        n_time_buckets: see :class:`RelativeWeights`.
        dropout_prob: of what enters W_2.
        layer_norm_eps: epsilon of both layer norms.
        std: of W_1 and of the relative weights.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        n_heads: int,
        attention_dim: int,
        linear_dim: int,
        max_length: int,
        n_time_buckets: int,
        dropout_prob: float,
        layer_norm_eps: float,
        std: float,
    ) -> None:
        super().__init__()
        self.n_heads, self.max_length = n_heads, max_length
        self.widths = (n_heads * linear_dim, n_heads * attention_dim)
        self.weights = RelativeWeights(max_length, n_time_buckets, std)
        self.gate_query = nn.Linear(hidden_size, sum(self.widths), bias=False)
        self.value_key = nn.Linear(hidden_size, sum(self.widths), bias=False)
        self.output = nn.Linear(n_heads * linear_dim, hidden_size)
        self.input_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps, elementwise_affine=False)
        self.attended_norm = nn.LayerNorm(n_heads * linear_dim, eps=layer_norm_eps, elementwise_affine=False)
        self.dropout = Dropout(dropout_prob)
        for linear in (self.gate_query, self.value_key):
            nn.init.normal_(linear.weight, std=std)
        nn.init.xavier_uniform_(self.output.weight)

    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone."""
        states = memory if query is None else query
        normed = self.input_norm(memory)
        asking = normed if query is None else self.input_norm(query)
        gate, queries = F.silu(self.gate_query(asking)).split(self.widths, dim=-1)
        values, keys = F.silu(self.value_key(normed)).split(self.widths, dim=-1)
        bias = self.weights.of_gaps(relations, 0.0).add_(self.weights.of_places(relations, LATER))
        # (B, h, Q, L)
        scores = self._heads(queries) @ self._heads(keys).transpose(-1, -2)
        # float32 whatever the products are in: half precision does not hold the score of a later item
        weights = F.silu(bias.unsqueeze(1) + scores)
        attended = (weights @ self._heads(values)).transpose(1, 2).flatten(-2) / self.max_length
        return states + self.output(self.dropout(self.attended_norm(attended) * gate))

    def _heads(self, projected: Tensor) -> Tensor:
        """Return (B, h, L, w) of (B, L, h w)."""
        return projected.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


@component("encoders", "hstu")
class HSTUEncoder(RelationalEncoder):
    """HSTU's layers over item vectors and learned positions; times come with the batch.

    The published code ends with states of length 1, whose products with item vectors of length 1 are divided by a
    temperature. Here the geometry scores, so the states leave through a layer norm, which is ours.

    Args:
        item_embedding: shared (n_items, d) table.
        max_length: MAX_ITEM_LIST_LENGTH, the number of learned positions, and the N of the attention.
        n_layers, n_heads: layers and heads.
        attention_dim: width of a head's queries and keys (None: d / n_heads).
        linear_dim: width of a head's values and gates (None: d / n_heads).
        n_time_buckets: the last bucket of time.
        hidden_dropout_prob: of the input and of what enters W_2, in [0, 1).
        layer_norm_eps: epsilon of every layer norm.
        initializer_range: standard deviation of W_1 and of the relative weights.

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
            TransductionUnit(
                width,
                n_heads=n_heads,
                attention_dim=head_width(width, n_heads, attention_dim=attention_dim),
                linear_dim=head_width(width, n_heads, linear_dim=linear_dim),
                max_length=max_length,
                n_time_buckets=n_time_buckets,
                dropout_prob=hidden_dropout_prob,
                layer_norm_eps=layer_norm_eps,
                std=initializer_range,
            )
            for _ in range(n_layers)
        )
