"""LiGR (Borisyuk et al., 2025): a transformer with gated residuals, the layers of eSASRec."""

from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import Dropout, initialize
from recbole_hyper.encoders.transformer import PositionalEncoder, SelfAttention


class GatedFeedForward(nn.Module):
    """SwiGLU (Shazeer, 2020): W3 drop(SiLU(W1 x) * W2 x), without biases, ``inner_size`` wide inside."""

    def __init__(self, hidden_size: int, inner_size: int, dropout_prob: float) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, 2 * inner_size, bias=False)
        self.outer = nn.Linear(inner_size, hidden_size, bias=False)
        self.dropout = Dropout(dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)
        return self.outer(self.dropout(F.silu(gate) * value))


class LiGRBlock(nn.Module):
    """One block: a = x + sigmoid(G1 x) * drop(Att(LN x, LN x)); out = a + sigmoid(G2 a) * drop(SwiGLU(LN a))."""

    def __init__(
        self,
        hidden_size: int,
        *,
        n_heads: opt.Heads = 1,
        inner_size: Annotated[opt.InnerSize, "width inside the feed-forward part; ~ is 4 x hidden_size"] = None,
        hidden_dropout_prob: float,
        attn_dropout_prob: opt.AttentionDropout = 0.2,
        layer_norm_eps: Annotated[opt.NormEps, "added to the variance; torch's default"] = 1e-5,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden_size, n_heads, attn_dropout_prob)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.attention_gate = nn.Linear(hidden_size, hidden_size)
        self.feed_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.feed_forward = GatedFeedForward(hidden_size, inner_size or 4 * hidden_size, hidden_dropout_prob)
        self.feed_gate = nn.Linear(hidden_size, hidden_size)
        self.dropout = Dropout(hidden_dropout_prob)

    def forward(
        self, memory: Tensor, query: Tensor | None = None, visible: Tensor | None = None, n_pads: Tensor | None = None
    ) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone, see :class:`SelfAttention`."""
        states = memory if query is None else query
        normed = self.attention_norm(memory)
        queries = normed if query is None else self.attention_norm(query)
        attended = self.dropout(self.attention(queries, normed, visible, n_pads))
        states = states + self.attention_gate(states).sigmoid() * attended
        fed = self.dropout(self.feed_forward(self.feed_norm(states)))
        return states + self.feed_gate(states).sigmoid() * fed


class LiGREncoder(PositionalEncoder):
    """Causal LiGR blocks over item embeddings and learned positions, as in eSASRec (Tikhonovich et al., 2025).

    It has no layer norm before or after the blocks.
    """

    made_of = (LiGRBlock,)

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        hidden_dropout_prob: Annotated[opt.HiddenDropout, "of the input sum, of both branches and inside SwiGLU"] = 0.2,
        initializer: opt.Initializer = "xavier",
        initializer_range: opt.InitializerRange = 0.02,
        **more: Any,
    ) -> None:
        super().__init__(item_embedding, hidden_dropout_prob=hidden_dropout_prob, **more)
        self.input_norm, self.output_norm = nn.Identity(), nn.Identity()
        initialize(self, rule=initializer, std=initializer_range)
