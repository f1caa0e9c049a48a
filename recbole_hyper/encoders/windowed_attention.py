"""Multi-scale attention of DualRec: a window per head, and relative positions.

Shapes: B users, L length, d width, h heads, d/h head width. Sequences are right-padded with item 0.
"""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.banded_attention import Heads, blocked_attention, dense_attention
from recbole_hyper.encoders.base import ACTIVATIONS, Dropout, Encoder, Trace, check_heads, check_length
from recbole_hyper.encoders.windows import narrow_heads, resolve_windows
from recbole_hyper.options import Option

DIRECTIONS = ("past", "future")


def sinusoids(length: int, width: int) -> Tensor:
    """Return the sines and cosines (length, width) of the distances 0..length-1 (Transformer-XL)."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].float()


class WindowedAttention(nn.Module):
    r"""Multi-head attention to one side of the query, with a window per head.

    .. math:: score_{ij} = \frac{(q_i + u)^T k_j + (q_i + v)^T r_{|i-j|}}{\sqrt{d/h}}

    with :math:`r = W_r\,sinusoid(|i-j|)` (``transformer_xl``, the published code), a learned vector per distance
    (``learned``, the paper), or without u, v and r (``none``). The code uses the sinusoid of the signed distance, which
    only changes the sign of the learned sine half of W_r. ``direction`` is ``past`` (causal) or ``future``; both
    include the query's position.

    No tensor is larger than (B, h, L, L + 1). Dropout applies to attention weights and position vectors. It draws the
    latter once per batch; the published code draws for each user, which was not better on Amazon Beauty.
    """

    sinusoid: Tensor

    def __init__(
        self,
        hidden_size: int,
        max_length: int = 50,
        direction: str = "past",
        *,
        n_heads: Annotated[opt.Heads, "heads, an even number; divides hidden_size; published code"] = 8,
        attn_dropout_prob: Annotated[opt.AttentionDropout, "of weights and position vectors; published code"] = 0.5,
        windows: Annotated[
            str | list | None,
            Option("~ or multi_scale: equation 8 for n_heads, MAX_ITEM_LIST_LENGTH; full; [sizes]"),
        ] = None,
        window_at_eval: Annotated[opt.WindowAtEval, "keep the windows outside training; False: published code"] = True,
        relative_positions: Annotated[
            Literal["transformer_xl", "learned", "none"], Option('published code; learned: paper; none: "w/o RPE"')
        ] = "transformer_xl",
        initializer_range: float = 0.02,
    ) -> None:
        super().__init__()
        check_heads(hidden_size, n_heads)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction={direction!r} must be {' or '.join(DIRECTIONS)}")
        self.n_heads = n_heads
        self.head_size = hidden_size // n_heads
        self.max_length, self.direction = max_length, direction
        self.windows = resolve_windows("multi_scale" if windows is None else windows, n_heads, max_length)
        self.relative_positions, self.window_at_eval = relative_positions, window_at_eval
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)
        self.dropout = Dropout(attn_dropout_prob)
        if relative_positions == "transformer_xl":
            self.position = nn.Linear(hidden_size, hidden_size, bias=False)
            self.register_buffer("sinusoid", sinusoids(max_length, hidden_size), persistent=False)
        elif relative_positions == "learned":
            self.distance = nn.Parameter(torch.empty(max_length, hidden_size))
        if relative_positions != "none":
            self.content_bias = nn.Parameter(torch.empty(n_heads, 1, self.head_size))  # u
            self.position_bias = nn.Parameter(torch.empty(n_heads, 1, self.head_size))  # v
        for parameter in self.parameters():  # as the published code does
            nn.init.normal_(parameter, std=initializer_range)

    def distance_vectors(self, length: int) -> Tensor:
        """Return r, the vectors (h, L, d/h) of the distances 0..length-1 for each head."""
        if self.relative_positions == "learned":
            vectors = self.dropout(self.distance[:length])
        else:
            vectors = self.position(self.dropout(self.sinusoid[:length]))
        return vectors.unflatten(-1, (self.n_heads, self.head_size)).transpose(0, 1)

    def forward(
        self, inputs: Tensor, lengths: Tensor, *, return_maps: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Attend from ``inputs`` (B, L, d), of which ``lengths`` (B,) positions are real, at least 1 in each row.

        Returns the output (B, L, d), the head outputs (B, L, h, d/h) that it mixes, and with ``return_maps`` the
        attention weights before dropout (B, h, L, L), else None. ValueError if L exceeds ``max_length``.
        """
        length = inputs.shape[1]
        check_length(length, self.max_length)
        # (B, L, 3d) -> three of (B, h, L, d/h)
        query, key, value = (
            part.unflatten(-1, (self.n_heads, self.head_size)).transpose(1, 2)
            for part in self.query_key_value(inputs).chunk(3, dim=-1)
        )
        scale = self.head_size**-0.5
        query = query * scale
        by_position: tuple[Tensor, Tensor] | None = None
        if self.relative_positions != "none":
            by_position = query + self.position_bias * scale, self.distance_vectors(length)
            query = query + self.content_bias * scale
        windows = self.windows if self.training or self.window_at_eval else (self.max_length,) * self.n_heads
        rate = self.dropout.p if self.training else 0.0
        inputs_of_heads = Heads(query, key, value, by_position, windows, self.direction, lengths)
        maps = dense_attention(inputs_of_heads, return_maps=True) if return_maps else None
        if maps is not None:
            heads = self.dropout(maps) @ value
        else:
            # an exported graph must work for every length
            narrow = [] if torch.compiler.is_exporting() else narrow_heads(windows, length)
            wide = [head for head in range(self.n_heads) if head not in narrow]
            kernels = ((narrow, blocked_attention), (wide, dense_attention))
            parts = [attend(inputs_of_heads.take(chosen), rate) for chosen, attend in kernels if chosen]
            heads = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
            if len(parts) == 2 and (order := [*narrow, *wide]) != sorted(order):
                heads = heads[:, [order.index(head) for head in range(self.n_heads)]]
        heads = heads.transpose(1, 2)  # (B, L, h, d/h)
        return self.output(heads.flatten(-2)), heads, maps


class WindowedAttentionLayer(nn.Module):
    """Post-norm block: H = LN(X + attention(X)), X' = LN(H + FFN(H)), with dropout of both branches and inside FFN."""

    def __init__(
        self,
        hidden_size: int,
        *,
        inner_size: Annotated[opt.InnerSize, "inside the feed-forward part; published code; ~ is hidden_size"] = 64,
        hidden_dropout_prob: float = 0.5,
        hidden_act: Annotated[opt.Activation, "inside the feed-forward part; paper: GELU"] = "gelu",
        layer_norm: Annotated[bool, Option('False: DualRec Table 3, "w/o LN"')] = True,
        layer_norm_eps: Annotated[opt.NormEps, "added to the variance; published code"] = 1e-12,
        residual: Annotated[bool, Option('False: DualRec Table 3, "w/o RC"')] = True,
        initializer_range: Annotated[opt.InitializerRange, "standard deviation of every matrix; published code"] = 0.02,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.attention = WindowedAttention(hidden_size, initializer_range=initializer_range, **attention)
        self.activation = ACTIVATIONS[hidden_act]
        self.residual = residual
        self.widen = nn.Linear(hidden_size, inner_size or hidden_size)
        self.narrow = nn.Linear(inner_size or hidden_size, hidden_size)
        for linear in (self.widen, self.narrow):
            nn.init.normal_(linear.weight, std=initializer_range)
            nn.init.zeros_(linear.bias)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps) if layer_norm else nn.Identity()
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps) if layer_norm else nn.Identity()
        self.dropout = Dropout(hidden_dropout_prob)

    def forward(
        self, inputs: Tensor, lengths: Tensor, *, return_maps: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the states (B, L, d), the head outputs (B, L, h, d/h) and the attention maps (B, h, L, L) or None."""
        mixed, heads, maps = self.attention(inputs, lengths, return_maps=return_maps)
        hidden = self.attention_norm(self._add(inputs, self.dropout(mixed)))
        inner = self.narrow(self.dropout(self.activation(self.widen(hidden))))
        return self.output_norm(self._add(hidden, self.dropout(inner))), heads, maps

    def _add(self, inputs: Tensor, branch: Tensor) -> Tensor:
        return inputs + branch if self.residual else branch


class WindowedAttentionEncoder(Encoder):
    """One direction of DualRec (CIKM 2022): windowed attention over item vectors, without absolute positions.

    From position i a head with window w (equation 8) sees the items i-w+1..i (``past``) or i..i+w-1 (``future``).
    ``layer_dropout=False`` builds layers without dropout: the future encoder of the published code, by omission.
    """

    has_maps = True
    made_of = (WindowedAttentionLayer, WindowedAttention)
    model_defaults = {"initializer": "normal"}  # published code

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        super().check(width, **options)
        windows = options["windows"]
        resolve_windows("multi_scale" if windows is None else windows, options["n_heads"], options["max_length"])

    def __init__(
        self,
        item_embedding: nn.Embedding,
        direction: str = "past",
        layer_dropout: bool = True,
        *,
        n_layers: Annotated[opt.Layers, "blocks; published code"] = 2,
        hidden_dropout_prob: Annotated[opt.HiddenDropout, "of input, output and both branches; published code"] = 0.5,
        max_length: opt.Length = 50,
        **more: Any,
    ) -> None:
        super().__init__(item_embedding)
        self.dropout = Dropout(hidden_dropout_prob)
        more |= {"direction": direction, "max_length": max_length, "hidden_dropout_prob": hidden_dropout_prob}
        if not layer_dropout:
            more |= {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}
        self.layers = nn.ModuleList(
            WindowedAttentionLayer(item_embedding.embedding_dim, **more) for _ in range(n_layers)
        )

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return self.trace(items, lengths)[0]

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        states = self.dropout(self.item_embedding(items))
        trace = Trace()
        for layer in self.layers:
            states, heads, maps = layer(states, lengths, return_maps=return_maps)
            trace.heads.append(heads)
            if maps is not None:
                trace.maps.append(maps)
        return self.dropout(states), trace
