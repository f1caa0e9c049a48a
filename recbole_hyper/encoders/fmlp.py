"""FMLP-Rec (WWW 2022): layers that filter the sequence in the frequency domain, circular or causal."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.encoders._window_filters import WindowFilterEncoder, WindowFilterLayer, at_ends
from recbole_hyper.encoders.causal_convolution import causal_convolution


class FrequencyFilter(nn.Module):
    r"""A learned complex filter per coordinate over a window of N = ``length`` positions.

    * ``circular``, the published layer, multiplies the spectrum of the window: ``irfft(rfft(x) * W)``. This is the
      convolution :math:`y_i = \sum_\delta w_\delta x_{(i - \delta) \bmod N}` with the kernel :math:`w = irfft(W)`.
      It wraps around, so every position but the last sees later items.
    * ``causal`` applies the kernel without the wrap: :math:`y_i = \sum_{\delta \le i} w_\delta x_{i - \delta}`. At
      the last position of a full window both are equal.
    """

    def __init__(self, length: int, hidden_size: int, *, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.length = length
        # real and imaginary part side by side: every optimizer and checkpoint can handle real numbers
        self.weight = nn.Parameter(torch.randn(length // 2 + 1, hidden_size, 2) * initializer_range)

    def circular(self, inputs: Tensor) -> Tensor:
        """Apply the published filter to full windows (B, N, d)."""
        if torch.compiler.is_exporting():
            return self._convolved(torch.cat((inputs[:, 1:], inputs), dim=1))
        spectrum = torch.fft.rfft(inputs, dim=1, norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft(spectrum, n=self.length, dim=1, norm="ortho")

    def causal(self, inputs: Tensor) -> Tensor:
        """Apply the filter without the wrap to (B, L, d), L <= N; position i sees positions 0..i."""
        length = inputs.shape[1]
        if torch.compiler.is_exporting():
            return self._convolved(nn.functional.pad(inputs, (0, 0, self.length - 1, 0)))
        # both ortho transforms together scale the product once, so the kernel is the plain inverse transform
        kernel = torch.fft.irfft(torch.view_as_complex(self.weight), n=self.length, dim=0)[:length]
        return causal_convolution(inputs, kernel)

    def _convolved(self, inputs: Tensor) -> Tensor:
        """Return the convolution (B, L, d) of ``inputs`` (B, N - 1 + L, d) with w.

        Graph formats lack transforms of variable length. This needs none: the graph computes w from constants, once.
        """
        # numpy, because torch operations would enter the graph
        units = np.eye(self.length // 2 + 1)
        real, imaginary = (
            torch.from_numpy(np.fft.irfft(part, n=self.length)).to(inputs) for part in (units, 1j * units)
        )
        kernel = self.weight[..., 0].t() @ real + self.weight[..., 1].t() @ imaginary  # (d, N)
        taps = kernel.flip(1).unsqueeze(1)
        return nn.functional.conv1d(inputs.transpose(1, 2), taps, groups=inputs.shape[2]).transpose(1, 2)


class FilterLayer(WindowFilterLayer):
    """Post-norm layer: H = LN(X + filter(X)), X' = LN(H + FFN(H))."""

    filter: FrequencyFilter

    def __init__(self, length: int, hidden_size: int, circular: bool, **more: Any) -> None:
        filter = FrequencyFilter(length, hidden_size, initializer_range=more["initializer_range"])
        super().__init__(hidden_size, {"filter": filter}, **more)
        self.circular = circular
        self.draw()

    def forward(self, inputs: Tensor, real: Tensor, *, ends: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        filtered = self.filter.circular(inputs) if self.circular else self.filter.causal(inputs)
        if ends is not None:
            inputs, filtered = at_ends(inputs, ends), at_ends(filtered, ends)
        return self.feed_forward(self.filter_norm(inputs + self.dropout(filtered))), filtered


class FMLPEncoder(WindowFilterEncoder):
    r"""FMLP-Rec: :math:`LN(M[item] + P)`, then filter layers. P is learned and counts from the newest item.

    The paper trains on the last state of each prefix, because its filter wraps around. Here no state depends on later
    items, so all positions train:

    * ``causal`` (default): the filter without the wrap, one pass over the sequence. With one layer it is the published
      network. With more it differs: published lower layers also carry later items of the prefix to earlier positions.
    * ``circular``: the published network, with a window of N = ``max_length`` positions for each prefix.

    Padding is zero at the input of each layer; in the published code it has P and passes the norms.
    """

    made_of = (FilterLayer,)
