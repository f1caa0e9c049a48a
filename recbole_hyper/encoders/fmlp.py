"""FMLP-Rec (WWW 2022): layers that filter the sequence in the frequency domain, causal where they must be."""

from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.base import activation
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
from recbole_hyper.encoders.window_filters import WindowFilter, WindowFilterEncoder
from recbole_hyper.registry import register


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
class FMLPEncoder(WindowFilterEncoder):
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
        hidden_size = item_embedding.embedding_dim
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
