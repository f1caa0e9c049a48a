"""FMLP-Rec (WWW 2022): layers that filter the sequence in the frequency domain, causal where they must be."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recbole_hyper.encoders.base import Encoder, Size, Trace, activation, positions_from_end
from recbole_hyper.encoders.causal_convolution import causal_convolution
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.options import (
    Activation,
    HiddenDropout,
    InitializerRange,
    InnerSize,
    Layers,
    Length,
    NormEps,
)
from recbole_hyper.errors import check_above_zero
from recbole_hyper.options import Option
from recbole_hyper.registry import register

FILTERS = ("causal", "circular")
# positions of prefix windows that are held at one time: 64 MiB for each activation of width 128
PREFIX_POSITIONS = 2**17


class FrequencyFilter(nn.Module):
    r"""A learned complex filter per coordinate over a window of N positions.

    The published layer multiplies the orthonormal spectrum of the window: ``irfft(rfft(x) * W)``. That is the circular
    convolution :math:`y_i = \sum_\delta w_\delta x_{(i - \delta) \bmod N}` with the real kernel :math:`w = irfft(W)`.

    * ``circular`` is that layer. Every position but the last sees later items through the wrap.
    * ``causal`` applies the same kernel without the wrap, :math:`y_i = \sum_{\delta \le i} w_\delta x_{i - \delta}`.
      At the last position of a full window nothing wraps: there both agree exactly.

    Args:
        length: N.
        hidden_size: d.
        initializer_range: standard deviation of the real and imaginary parts of W.
    """

    def __init__(self, length: int, hidden_size: int, *, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.length = length
        # real and imaginary part side by side: optimizers and checkpoints handle real numbers everywhere
        self.weight = nn.Parameter(torch.randn(length // 2 + 1, hidden_size, 2) * initializer_range)

    def circular(self, inputs: Tensor) -> Tensor:
        """Return the published filter of full windows, (B, N, d)."""
        if torch.compiler.is_exporting():
            return self._convolved(torch.cat((inputs[:, 1:], inputs), dim=1))
        spectrum = torch.fft.rfft(inputs, dim=1, norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft(spectrum, n=self.length, dim=1, norm="ortho")

    def causal(self, inputs: Tensor) -> Tensor:
        """Return the same filter without wrap, (B, L, d) with L <= N; position i sees positions 0..i."""
        length = inputs.shape[1]
        if torch.compiler.is_exporting():
            return self._convolved(nn.functional.pad(inputs, (0, 0, self.length - 1, 0)))
        # ortho on both sides scales the product once, so the kernel is the plain inverse transform
        kernel = torch.fft.irfft(torch.view_as_complex(self.weight), n=self.length, dim=0)[:length]
        return causal_convolution(inputs, kernel)

    def _convolved(self, inputs: Tensor) -> Tensor:
        """Return the convolution (B, L, d) of ``inputs`` (B, N - 1 + L, d) with w, without transforms.

        Graph formats have no transform of every length. w is a product of constants, which they compute once.
        """
        # by numpy: what torch computes here would become a part of the graph
        units = np.eye(self.length // 2 + 1)
        real, imaginary = (
            torch.from_numpy(np.fft.irfft(part, n=self.length)).to(inputs) for part in (units, 1j * units)
        )
        kernel = self.weight[..., 0].t() @ real + self.weight[..., 1].t() @ imaginary  # (d, N)
        taps = kernel.flip(1).unsqueeze(1)
        return nn.functional.conv1d(inputs.transpose(1, 2), taps, groups=inputs.shape[2]).transpose(1, 2)


class FilterLayer(nn.Module):
    """Post-norm block: H = LN(X + filter(X)), X' = LN(H + FFN(H)), with GELU and an inner width of 4d by default."""

    def __init__(
        self,
        length: int,
        hidden_size: int,
        inner_size: int,
        *,
        dropout: float,
        hidden_act: str,
        layer_norm_eps: float,
        initializer_range: float,
    ) -> None:
        super().__init__()
        self.activation = activation(hidden_act)
        self.filter = FrequencyFilter(length, hidden_size, initializer_range=initializer_range)
        self.widen = nn.Linear(hidden_size, inner_size)
        self.narrow = nn.Linear(inner_size, hidden_size)
        for linear in (self.widen, self.narrow):
            nn.init.normal_(linear.weight, std=initializer_range)
            nn.init.zeros_(linear.bias)
        self.filter_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, *, circular: bool, last_only: bool = False) -> tuple[Tensor, Tensor]:
        """Return the states and the filter's output, both shaped as ``inputs``, (B, L, d), or (B, 1, d) of the last."""
        filtered = self.filter.circular(inputs) if circular else self.filter.causal(inputs)
        if last_only:
            inputs, filtered = inputs[:, -1:], filtered[:, -1:]
        hidden = self.filter_norm(inputs + self.dropout(filtered))
        inner = self.narrow(self.activation(self.widen(hidden)))
        return self.output_norm(hidden + self.dropout(inner)), filtered


@register("encoders", "fmlp")
class FMLPEncoder(Encoder):
    r"""FMLP-Rec: :math:`LN(M[item] + P)`, then filter layers; P is learned and counts from the end of the sequence.

    The published filter wraps around, so each state but the last depends on later items, and only the last may be
    supervised: the paper trains on every prefix as a row of its own. Here a state depends on no later item but on the
    length of its history, as with every encoder, in both settings of ``filter``, and all positions may be supervised:

    * ``causal`` (default): the filter without the wrap, one pass over the sequence. It is the published network with
      one layer; with more it is a different network of the same size, since in the published one the lower layers
      also carry later items of the prefix to earlier positions.
    * ``circular``: the published network. Each prefix is put into its own window of N positions, right-aligned as
      published, and the state of its last position is taken: about L times the work, as the prefix rows of the
      paper; memory is bounded by recomputation. A prefix of length m has positions m..1, so P is that of the prefix.

    Padding holds zeros at the input of each layer; in the published code P and the norms leak into it.

    Args:
        item_embedding, n_layers: the item vectors, whose row 0 is padding; filter layers.
        inner_size: width of the feed-forward network; None is 4d, as published.
        hidden_dropout_prob: after the input norm, the filter and the feed-forward network.
        max_length: N, the longest sequence and the length of the filter.

    Raises:
        ValueError: an unknown ``filter`` or activation, no layer, a ``layer_norm_eps`` or ``initializer_range`` not
            above 0, or sequences longer than ``max_length``.
    """

    model_defaults = {"initializer": "normal"}  # published code

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        n_layers: Annotated[Layers, "filter layers; published code"] = 2,
        inner_size: Annotated[
            InnerSize, "width inside the feed-forward part; published code; ~ is 4 x hidden_size"
        ] = 256,
        hidden_dropout_prob: Annotated[
            HiddenDropout, "of the input sum, the filters and the feed-forward part; published code"
        ] = 0.5,
        hidden_act: Annotated[Activation, "inside the feed-forward part; published code"] = "gelu",
        layer_norm_eps: Annotated[NormEps, "added to the variance; published code"] = 1e-12,
        initializer_range: Annotated[
            InitializerRange, "standard deviation of matrices and filters; published code"
        ] = 0.02,
        max_length: Annotated[Length, "newest items that a model sees, and length of the filters; published code"] = 50,
        filter: Annotated[
            str,
            Option(
                "causal or circular",
                "causal: one pass over a sequence (ours); circular: every prefix by itself (published)",
            ),
        ] = "causal",
    ) -> None:
        super().__init__(item_embedding)
        if filter not in FILTERS:
            raise ValueError(f"filter={filter!r} is unknown; known: {', '.join(FILTERS)}")
        if n_layers < 1:
            raise ValueError(f"n_layers={n_layers}: at least one layer is needed")
        check_above_zero(layer_norm_eps=layer_norm_eps, initializer_range=initializer_range)
        hidden_size = item_embedding.embedding_dim
        self.max_length = max_length
        self.circular = filter == "circular"
        self.position = nn.Parameter(torch.randn(max_length, hidden_size) * initializer_range)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(hidden_dropout_prob)
        self.layers = nn.ModuleList(
            FilterLayer(
                max_length,
                hidden_size,
                inner_size or 4 * hidden_size,
                dropout=hidden_dropout_prob,
                hidden_act=hidden_act,
                layer_norm_eps=layer_norm_eps,
                initializer_range=initializer_range,
            )
            for _ in range(n_layers)
        )

    @classmethod
    def size(cls, hidden_size: int, rows: int, length: int, options: Mapping[str, Any]) -> Size:
        positions = rows * length
        if options.get("filter") == "circular":  # windows of prefixes, so many at one time
            positions = max(positions, min(positions * length, PREFIX_POSITIONS))
        return Size(options.get("inner_size") or 4 * hidden_size, positions)

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return self.trace(items, lengths)[0]

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states and, per layer, the output of the filter as a single head (B, L, 1, d)."""
        real = self._real(items, lengths)
        if self.circular:
            return self._trace_prefixes(items, real)
        real = real.unsqueeze(-1)
        states = self._embed(items, self.position[positions_from_end(lengths, items.shape[1])], real)
        trace = Trace()
        for layer in self.layers:
            states, filtered = layer(states, circular=False)
            states = states * real
            trace.heads.append(filtered.unsqueeze(2))
        return states, trace

    def last(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, d) at the newest items; a circular filter needs one window per row for it, not L."""
        if not self.circular:
            return super().last(items, lengths)
        self._real(items, lengths)
        return self._in_pieces(items, torch.arange(items.shape[0], device=items.device), lengths - 1)[0]

    def _real(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, L) True where no padding is; ValueError for sequences that are too long."""
        length = items.shape[1]
        if length > self.max_length:
            raise ValueError(f"sequences of {length} items came, the limit is max_length={self.max_length}; cut them")
        return torch.arange(length, device=items.device) < lengths[:, None]

    def _trace_prefixes(self, items: Tensor, real: Tensor) -> tuple[Tensor, Trace]:
        """Run every prefix in its own right-aligned window and keep the last position of each."""
        users, ends = real.nonzero(as_tuple=True)
        states, *heads = self._in_pieces(items, users, ends)
        blank = states.new_zeros(*items.shape, states.shape[-1])
        found = [blank.index_put((users, ends), head).unsqueeze(2) for head in heads]
        return blank.index_put((users, ends), states), Trace(heads=found)

    def _in_pieces(self, items: Tensor, users: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
        """Return what ``_prefixes`` does, computed PREFIX_POSITIONS at a time."""
        if torch.compiler.is_exporting():
            return self._prefixes(items, users, ends)
        chunk = max(1, PREFIX_POSITIONS // self.max_length)
        parts = list(zip(users.split(chunk), ends.split(chunk), strict=True))
        if len(parts) > 1 and torch.is_grad_enabled():
            # recomputed in the backward pass: the windows of all prefixes at once would take L times the memory
            chunks = [checkpoint(self._prefixes, items, *part, use_reentrant=False) for part in parts]
        else:
            chunks = [self._prefixes(items, *part) for part in parts]
        return tuple(torch.cat(pieces) for pieces in zip(*chunks, strict=True))

    def _prefixes(self, items: Tensor, users: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
        """Return the last state (m, d) of m prefixes and the last output (m, d) of each layer's filter."""
        # window column c of the prefix that ends at place e holds place e - (N - 1) + c
        place = ends[:, None] - (self.max_length - 1) + torch.arange(self.max_length, device=items.device)
        real = (place >= 0).unsqueeze(-1)
        states = self._embed(items[users[:, None], place.clamp(min=0)], self.position.flip(0), real)  # (m, N, d)
        heads = []
        for layer in self.layers:
            last = layer is self.layers[-1]
            states, filtered = layer(states, circular=True, last_only=last)
            states = states if last else states * real
            heads.append(filtered[:, -1])
        return states[:, -1], *heads

    def _embed(self, items: Tensor, position: Tensor, real: Tensor) -> Tensor:
        return self.dropout(self.norm(self.item_embedding(items) + position)) * real
