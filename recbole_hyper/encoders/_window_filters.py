"""Base of encoders that filter N positions: causal in one pass, or circular with a window for each prefix."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import ACTIVATIONS, Dropout, Encoder, Trace, check_length, newest, positions_from_end
from recbole_hyper.options import Option

# positions per piece of prefix windows: 64 MiB for each activation of width 128
PREFIX_POSITIONS = 2**17


class WindowFilterLayer(nn.Module):
    """Base of the layers: X' = LN(H + FFN(H)), where a subclass computes H from X with the modules ``parts``.

    ``layer(X (B, L, d), real (B, L, 1), ends=None)`` returns X' and the output of the filter, (B, L, d), or (B, 1, d)
    at the position ``ends`` of all rows, or (B,) of each row. ``real`` is False at padding.
    """

    norms: ClassVar[tuple[str, ...]] = ("filter_norm", "output_norm")
    filter_norm: nn.Module
    output_norm: nn.Module

    def __init__(
        self,
        hidden_size: int,
        parts: Mapping[str, nn.Module],
        *,
        inner_size: Annotated[opt.InnerSize, "inside the feed-forward part; published; ~ is 4 x hidden_size"] = 256,
        hidden_dropout_prob: float,
        hidden_act: Annotated[opt.Activation, "inside the feed-forward part; published code"] = "gelu",
        layer_norm_eps: float,
        initializer_range: float,
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.activation, self.std = ACTIVATIONS[hidden_act], initializer_range
        self.widen = nn.Linear(hidden_size, inner_size or 4 * hidden_size)
        self.narrow = nn.Linear(inner_size or 4 * hidden_size, hidden_size)
        for name in self.norms:
            self.add_module(name, nn.LayerNorm(hidden_size, eps=layer_norm_eps))
        self.dropout = Dropout(hidden_dropout_prob)

    def draw(self) -> None:
        """Draw every matrix from N(0, initializer_range^2)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=self.std)
                nn.init.zeros_(module.bias)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Return LN(H + FFN(H))."""
        inner = self.narrow(self.activation(self.widen(hidden)))
        return self.output_norm(hidden + self.dropout(inner))


def at_ends(values: Tensor, ends: int | Tensor) -> Tensor:
    """Return ``values`` (B, L, d) at the position ``ends`` of all rows, or (B,) of each row, as (B, 1, d)."""
    return values[:, ends : ends + 1] if isinstance(ends, int) else newest(values, ends + 1).unsqueeze(1)


class WindowFilterEncoder(Encoder):
    """Item vectors plus learned positions that count from the newest item, a norm, and layers with filters of length N.

    A circular filter wraps around, so every state of a window but the last depends on later items. So each prefix gets
    its own right-aligned window, of which only the last state is used: about L times the work. Recomputation limits the
    memory.

    A subclass sets ``made_of`` to the class of its layers.
    """

    model_defaults = {"initializer": "normal"}  # published code
    # whether layers leave states at the padding of prefix windows; otherwise these are set to 0
    keeps_padding: ClassVar[bool] = False

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        n_layers: Annotated[opt.Layers, "layers; published code"] = 2,
        hidden_dropout_prob: Annotated[opt.HiddenDropout, "of input, filters, feed-forward part; published code"] = 0.5,
        layer_norm_eps: Annotated[opt.NormEps, "added to the variance; published code"] = 1e-12,
        initializer_range: Annotated[opt.InitializerRange, "std of matrices and filters; published code"] = 0.02,
        max_length: Annotated[opt.Length, "newest items that a model sees, and filter length; published code"] = 50,
        filter: Annotated[
            Literal["causal", "circular"], Option("causal: one pass (ours); circular: published")
        ] = "causal",
        **more: Any,
    ) -> None:
        super().__init__(item_embedding)
        (layer,), width = self.made_of, item_embedding.embedding_dim
        self.max_length, self.circular = max_length, filter == "circular"
        self.fixed_shapes = not self.circular
        self.position = nn.Parameter(torch.randn(max_length, width) * initializer_range)
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.dropout = Dropout(hidden_dropout_prob)
        more |= {"hidden_dropout_prob": hidden_dropout_prob, "layer_norm_eps": layer_norm_eps}
        more |= {"initializer_range": initializer_range, "circular": self.circular}
        self.layers = nn.ModuleList(layer(max_length, width, **more) for _ in range(n_layers))

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return self.trace(items, lengths)[0]

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states, and the output of each layer's filter as a single head (B, L, 1, d)."""
        real = self._real(items, lengths)
        if self.circular:
            return self._trace_prefixes(items, real)
        real, trace = real.unsqueeze(-1), Trace()
        states = self._embed(items, self._positions(items, lengths), real)
        for layer in self.layers:
            states, filtered = layer(states, real)
            states = states * real
            trace.heads.append(filtered.unsqueeze(2))
        return states, trace

    def last(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, d) at the newest items; a circular filter needs only one window per row.

        In evaluation, the last layer of a causal one computes only these.
        """
        if self.training and not self.circular:
            return super().last(items, lengths)
        real = self._real(items, lengths)
        if self.circular:
            return self._in_pieces(items, torch.arange(items.shape[0], device=items.device), lengths - 1)[0]
        real, ends = real.unsqueeze(-1), (lengths - 1).clamp(min=0)
        states = self._embed(items, self._positions(items, lengths), real)
        for layer in self.layers[:-1]:
            states = layer(states, real)[0] * real
        states, _ = self.layers[-1](states, real, ends=ends)
        return states.squeeze(1) * newest(real, lengths)

    def _real(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return a mask (B, L), False at padding; ValueError for histories that are too long."""
        check_length(items.shape[1], self.max_length)
        return torch.arange(items.shape[1], device=items.device) < lengths[:, None]

    def _trace_prefixes(self, items: Tensor, real: Tensor) -> tuple[Tensor, Trace]:
        """Return the last state of each prefix in its own right-aligned window, and the outputs of the filters."""
        users, ends = real.nonzero(as_tuple=True)
        states, *heads = self._in_pieces(items, users, ends)
        blank = states.new_zeros(*items.shape, states.shape[-1])
        maps = [blank.index_put((users, ends), head).unsqueeze(2) for head in heads]
        return blank.index_put((users, ends), states), Trace(heads=maps)

    def _in_pieces(self, items: Tensor, users: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
        """Run ``_prefixes`` in pieces of PREFIX_POSITIONS."""
        if torch.compiler.is_exporting():
            return self._prefixes(items, users, ends)
        chunk = max(1, PREFIX_POSITIONS // self.max_length)
        parts = list(zip(users.split(chunk), ends.split(chunk), strict=True))
        if len(parts) > 1 and torch.is_grad_enabled():
            # the backward pass recomputes each piece: all windows at once would take L times the memory
            chunks = [checkpoint(self._prefixes, items, *part, use_reentrant=False) for part in parts]
        else:
            chunks = [self._prefixes(items, *part) for part in parts]
        return tuple(torch.cat(pieces) for pieces in zip(*chunks, strict=True))

    def _prefixes(self, items: Tensor, users: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
        """Return the last state (m, d) of m prefixes, and the last output (m, d) of each layer's filter."""
        # in the window of the prefix that ends at position e, column c is position e - (N - 1) + c
        place = ends[:, None] - (self.max_length - 1) + torch.arange(self.max_length, device=items.device)
        real = (place >= 0).unsqueeze(-1)
        window = items[users[:, None], place.clamp(min=0)] * real[..., 0]
        states = self._embed(window, self.position.flip(0), real)  # (m, N, d)
        heads = []
        for layer in self.layers:
            last = layer is self.layers[-1]
            states, filtered = layer(states, real, ends=self.max_length - 1 if last else None)
            states = states if last or self.keeps_padding else states * real
            heads.append(filtered[:, -1])
        return states[:, -1], *heads

    def _positions(self, items: Tensor, lengths: Tensor) -> Tensor:
        return nn.functional.embedding(positions_from_end(lengths, items.shape[1]), self.position)

    def _embed(self, items: Tensor, position: Tensor, real: Tensor) -> Tensor:
        states = self.dropout(self.norm(self.item_embedding(items) + position))
        return states if self.keeps_padding and self.circular else states * real
