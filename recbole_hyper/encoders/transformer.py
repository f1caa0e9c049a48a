"""The SASRec transformer (Kang and McAuley, 2018), as the HSASRec and SCE papers run it and as RecBole runs it."""

import math
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import (
    ACTIVATIONS,
    Dropout,
    Encoder,
    check_heads,
    check_length,
    dropout,
    initialize,
    newest,
    positions_from_end,
)
from recbole_hyper.options import Option


def causal_attention(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    """Attend from every position of (B, h, L, w) to itself and earlier positions."""
    if not dropout_prob or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_prob, is_causal=True)
    # on a CPU torch has no fused kernel with dropout, and its plain kernel mostly draws the mask
    length = query.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool).triu_(1)
    scores = (query @ key.transpose(-1, -2)).mul_(query.shape[-1] ** -0.5).masked_fill_(later, -torch.inf)
    return dropout(scores.softmax(dim=-1), dropout_prob) @ value


def attention_with_pads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pad: tuple[Tensor, Tensor],
    mask: Tensor,
    n_pads: Tensor,
    dropout_prob: float,
) -> Tensor:
    """Attend to real positions and to ``n_pads`` (B,) padded ones, whose key and value are ``pad``, (h, w) each.

    The pads of a row share one logit, which counts ``n_pads`` times in the softmax; dropout draws for each pad. Shapes:
    ``query`` (B, h, Q, w), ``key`` and ``value`` (B, h, L, w); ``mask`` broadcasts to (B, h, Q, L), False is hidden.
    """
    query = query * query.shape[-1] ** -0.5
    scores = (query @ key.transpose(-1, -2)).masked_fill_(~mask, -torch.inf)
    pad_key, pad_value = (vector.unsqueeze(-2) for vector in pad)
    pad_scores = query @ pad_key.transpose(-1, -2) + n_pads.to(query.dtype).log()[:, None, None, None]
    real, padded = torch.cat([scores, pad_scores], dim=-1).softmax(dim=-1).split([key.shape[-2], 1], dim=-1)
    if dropout_prob:
        real = dropout(real, dropout_prob)
        count = n_pads.to(query.dtype)[:, None, None, None].expand_as(padded)
        n_unmasked = torch.binomial(count, torch.full_like(count, 1 - dropout_prob))
        padded = padded * (n_unmasked / (count.clamp(min=1) * (1 - dropout_prob)))
    return real @ value + padded @ pad_value


class SelfAttention(nn.Module):
    """Causal attention with ``n_heads`` heads of width d / n_heads."""

    def __init__(self, hidden_size: int, n_heads: int, attn_dropout_prob: float) -> None:
        super().__init__()
        check_heads(hidden_size, n_heads)
        self.n_heads, self.dropout = n_heads, attn_dropout_prob
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def init_fused(self) -> None:
        """Draw query, key and value as one Xavier-uniform matrix (3d, d), biases 0, as nn.MultiheadAttention does.

        Queries are then 1.41 times smaller, keys and values 1.15 times smaller, than if drawn separately.
        """
        width = self.output.in_features
        matrix = nn.init.xavier_uniform_(self.query.weight.new_empty(3 * width, width))
        with torch.no_grad():
            self.query.weight.copy_(matrix[:width])
            self.key_value.weight.copy_(matrix[width:])
        for linear in (self.query, self.key_value, self.output):
            nn.init.zeros_(linear.bias)

    def forward(
        self, query: Tensor, memory: Tensor, visible: Tensor | None = None, n_pads: Tensor | None = None
    ) -> Tensor:
        """Attend from ``query`` (B, Q, d) to ``memory`` (B, L, d): (B, Q, d).

        Without ``visible``, Q = L and a position attends to itself and earlier positions. With ``visible`` (B, 1, 1, L)
        every query attends to these positions, without dropout. Queries also attend to ``n_pads`` (B,) zero vectors.
        """
        batch, length, width = query.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, -1, self.n_heads, width // self.n_heads).transpose(1, 2)

        key, value = (heads(part) for part in self.key_value(memory).split(width, dim=-1))
        queries = heads(self.query(query))
        rate = self.dropout if self.training else 0.0
        if n_pads is not None:
            pad_key, pad_value = self.key_value.bias.view(2, self.n_heads, width // self.n_heads)
            mask = visible
            if mask is None:
                mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril_()
            attended = attention_with_pads(queries, key, value, (pad_key, pad_value), mask, n_pads, rate)
        elif visible is None:
            attended = causal_attention(queries, key, value, rate)
        else:
            attended = F.scaled_dot_product_attention(queries, key, value, attn_mask=visible)
        return self.output(attended.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention, then a position-wise feed-forward part. ``norm_placement`` places the layer norms:

    * "query" (HSASRec and SCE code): q = LN(x); y = LN(q + Att(q, x)); out = y + FF(y). Keys, values have no norm.
    * "pre": a = x + Att(LN x, LN x); out = a + FF(LN a).
    * "post" (RecBole, original Transformer): a = LN(x + drop(Att(x, x))); out = LN(a + FF(a)).
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        norm_placement: str,
        n_heads: opt.Heads = 1,
        inner_size: Annotated[opt.InnerSize, "inside the feed-forward part; ~ is hidden_size, as in the papers"] = None,
        hidden_dropout_prob: float,
        attn_dropout_prob: opt.AttentionDropout = 0.3,
        hidden_act: opt.Activation = "relu",
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.norm_placement = norm_placement
        self.attention = SelfAttention(hidden_size, n_heads, attn_dropout_prob)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.feed_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.inner = nn.Linear(hidden_size, inner_size or hidden_size)
        self.outer = nn.Linear(inner_size or hidden_size, hidden_size)
        self.activation = ACTIVATIONS[hidden_act]
        self.dropout = Dropout(hidden_dropout_prob)

    def forward(
        self, memory: Tensor, query: Tensor | None = None, visible: Tensor | None = None, n_pads: Tensor | None = None
    ) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone, see :class:`SelfAttention`.

        ``n_pads`` needs norm_placement "query", where padded positions stay zero in every block.
        """
        states = memory if query is None else query
        if self.norm_placement == "query":
            normed = self.attention_norm(states)
            states = self.feed_norm(normed + self.attention(normed, memory, visible, n_pads))
            return states + self.dropout(self.outer(self.dropout(self.activation(self.inner(states)))))
        if self.norm_placement == "pre":
            normed = self.attention_norm(memory)
            queries = normed if query is None else self.attention_norm(query)
            states = states + self.dropout(self.attention(queries, normed, visible))
            return states + self.dropout(self.outer(self.activation(self.inner(self.feed_norm(states)))))
        states = self.attention_norm(states + self.dropout(self.attention(states, memory, visible)))
        return self.feed_norm(states + self.dropout(self.outer(self.activation(self.inner(states)))))


class PositionalEncoder(Encoder):
    """Causal blocks over item embeddings times ``scale`` plus learned positions, which count from the newest item.

    A subclass adds the norms and sets ``made_of`` to the class of its blocks, which have the signature of
    :class:`TransformerBlock`.
    """

    input_norm: nn.Module
    output_norm: nn.Module
    scale = 1.0
    attend_pads = False

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        max_length: opt.Length,
        n_layers: opt.Layers = 2,
        hidden_dropout_prob: float,
        **block_options: Any,
    ) -> None:
        super().__init__(item_embedding)
        (block,), width = self.made_of, item_embedding.embedding_dim
        self.max_length = max_length
        self.position_embedding = nn.Embedding(max_length, width)
        self.dropout = Dropout(hidden_dropout_prob)
        self.blocks = nn.ModuleList(
            block(width, hidden_dropout_prob=hidden_dropout_prob, **block_options) for _ in range(n_layers)
        )

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        states, n_pads = self._embed(items, lengths)
        for block in self.blocks:
            states = block(states, n_pads=n_pads)
        return self.output_norm(states)

    def last(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, d) at the newest items; in evaluation the last block computes only these."""
        if self.training:
            return super().last(items, lengths)
        states, n_pads = self._embed(items, lengths)
        for block in self.blocks[:-1]:
            states = block(states, n_pads=n_pads)
        real = torch.arange(items.shape[1], device=items.device) < lengths[:, None]
        states = self.blocks[-1](states, newest(states, lengths).unsqueeze(1), real[:, None, None], n_pads)
        return self.output_norm(states).squeeze(1)

    def _embed(self, items: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the input of the blocks (B, L, d), and the number of pads (B,) that they attend to, or None."""
        check_length(items.shape[1], self.max_length)
        positions = self.position_embedding(positions_from_end(lengths, items.shape[1]))
        states = torch.add(positions, self.item_embedding(items), alpha=self.scale)
        return self.dropout(self.input_norm(states)), self.max_length - lengths if self.attend_pads else None


def check_together(attend_pads: bool, norm_placement: str, attention_init: str, initializer: str) -> None:
    """Raise ValueError for options of a transformer that do not go together."""
    if attend_pads and norm_placement != "query":
        raise ValueError(f"attend_pads needs norm_placement=query, where pads stay zero, got {norm_placement!r}")
    if attention_init == "fused" and initializer != "xavier":
        raise ValueError(f"attention_init=fused needs initializer=xavier, got {initializer!r}")


class TransformerEncoder(PositionalEncoder):
    """Causal transformer over item embeddings and learned positions, which count from the newest item.

    With ``norm_placement`` "query" and "pre" it ends with a layer norm, with "post" it starts with one. With
    ``attend_pads``, queries also attend to the padding before a short history, as in the HSASRec and SCE code.
    ValueError for heads that do not divide d, or options that contradict each other.
    """

    made_of = (TransformerBlock,)

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        super().check(width, **options)
        names = ("attend_pads", "norm_placement", "attention_init", "initializer")
        check_together(*(options[name] for name in names))

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        hidden_dropout_prob: Annotated[opt.HiddenDropout, "of input and feed-forward part; SCE paper's code"] = 0.3,
        layer_norm_eps: Annotated[opt.NormEps, "added to the variance; papers' code"] = 1e-8,
        norm_placement: opt.NormPlacement = "query",
        scale_embeddings: opt.ScaleEmbeddings = True,
        initializer: Annotated[opt.Initializer, "of item vectors and matrices; xavier: papers' code"] = "xavier",
        initializer_range: opt.InitializerRange = 0.02,
        attention_init: Annotated[
            Literal["separate", "fused"], Option("fused: draw query, key and value as one matrix (papers' code)")
        ] = "separate",
        attend_pads: Annotated[bool, Option("attend to padding too (papers' code)")] = False,
        **more: Any,
    ) -> None:
        check_together(attend_pads, norm_placement, attention_init, initializer)
        more |= {"norm_placement": norm_placement, "layer_norm_eps": layer_norm_eps}
        super().__init__(item_embedding, hidden_dropout_prob=hidden_dropout_prob, **more)
        width = item_embedding.embedding_dim
        self.scale, self.attend_pads = math.sqrt(width) if scale_embeddings else 1.0, attend_pads
        norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.input_norm = norm if norm_placement == "post" else nn.Identity()
        self.output_norm = nn.Identity() if norm_placement == "post" else norm
        initialize(self, rule=initializer, std=initializer_range)
        if attention_init == "fused":
            for part in self.modules():
                if isinstance(part, SelfAttention):
                    part.init_fused()
