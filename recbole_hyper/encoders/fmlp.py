"""FMLP-Rec (WWW 2022): layers that filter the sequence in the frequency domain, circular or causal."""

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.base import activation
from recbole_hyper.encoders.causal_convolution import causal_convolution
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.encoders.window_filters import WindowFilterEncoder
from recbole_hyper.registry import register


class FrequencyFilter(nn.Module):
    r"""A learned complex filter per coordinate over a window of N positions.

    The published layer multiplies the orthonormal spectrum of the window: ``irfft(rfft(x) * W)``. That is the circular
    convolution :math:`y_i = \sum_\delta w_\delta x_{(i - \delta) \bmod N}` with the real kernel :math:`w = irfft(W)`.

    * ``circular`` is that layer. Every position but the last sees later items through the wrap.
    * ``causal`` applies the same kernel without the wrap, :math:`y_i = \sum_{\delta \le i} w_\delta x_{i - \delta}`.
      At the last position of a full window both agree exactly.

    ``length`` is N; ``initializer_range`` the standard deviation of the real and imaginary parts of W.
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
        """Return the filter without the wrap, (B, L, d) with L <= N; position i sees positions 0..i."""
        length = inputs.shape[1]
        if torch.compiler.is_exporting():
            return self._convolved(nn.functional.pad(inputs, (0, 0, self.length - 1, 0)))
        # ortho on both sides scales the product once, so the kernel is the plain inverse transform
        kernel = torch.fft.irfft(torch.view_as_complex(self.weight), n=self.length, dim=0)[:length]
        return causal_convolution(inputs, kernel)

    def _convolved(self, inputs: Tensor) -> Tensor:
        """Return the convolution (B, L, d) of ``inputs`` (B, N - 1 + L, d) with w, without transforms.

        Graph formats have no transforms of variable length. w is a product of constants, which they compute once.
        """
        # numpy, because operations of torch would enter the graph
        units = np.eye(self.length // 2 + 1)
        real, imaginary = (
            torch.from_numpy(np.fft.irfft(part, n=self.length)).to(inputs) for part in (units, 1j * units)
        )
        kernel = self.weight[..., 0].t() @ real + self.weight[..., 1].t() @ imaginary  # (d, N)
        taps = kernel.flip(1).unsqueeze(1)
        return nn.functional.conv1d(inputs.transpose(1, 2), taps, groups=inputs.shape[2]).transpose(1, 2)


class FilterLayer(nn.Module):
    """Post-norm block: H = LN(X + filter(X)), X' = LN(H + FFN(H))."""

    def __init__(
        self,
        length: int,
        hidden_size: int,
        inner_size: int,
        *,
        circular: bool,
        dropout: float,
        hidden_act: str,
        layer_norm_eps: float,
        initializer_range: float,
    ) -> None:
        super().__init__()
        self.circular, self.activation = circular, activation(hidden_act)
        self.filter = FrequencyFilter(length, hidden_size, initializer_range=initializer_range)
        self.widen = nn.Linear(hidden_size, inner_size)
        self.narrow = nn.Linear(inner_size, hidden_size)
        for linear in (self.widen, self.narrow):
            nn.init.normal_(linear.weight, std=initializer_range)
            nn.init.zeros_(linear.bias)
        self.filter_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, real: Tensor, *, last_only: bool = False) -> tuple[Tensor, Tensor]:
        filtered = self.filter.circular(inputs) if self.circular else self.filter.causal(inputs)
        if last_only:
            inputs, filtered = inputs[:, -1:], filtered[:, -1:]
        hidden = self.filter_norm(inputs + self.dropout(filtered))
        inner = self.narrow(self.activation(self.widen(hidden)))
        return self.output_norm(hidden + self.dropout(inner)), filtered


@register("encoders", "fmlp")
class FMLPEncoder(WindowFilterEncoder):
    r"""FMLP-Rec: :math:`LN(M[item] + P)`, then filter layers; P is learned and counts from the end of the sequence.

    The published filter wraps around, so every state but the last depends on later items. The paper therefore trains on
    each prefix as a row, and only on its last state. Here no state depends on later items, and all positions train:

    * ``causal`` (default): the filter without the wrap, one pass over the sequence. With one layer it is the published
      network. With more it is another network of the same size: in the published one, lower layers also carry later
      items of the prefix to earlier positions.
    * ``circular``: the published network. Each prefix gets its own right-aligned window of N = ``max_length``
      positions, and its last state is used: about L times the work; recomputation bounds the memory.

    Padding is zero at the input of each layer; in the published code, P and the norms leak into it.
    """

    layer = FilterLayer
