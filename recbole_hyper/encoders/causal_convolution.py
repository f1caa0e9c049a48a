"""Causal convolution with one filter per coordinate, by matrix products or by Fourier transforms."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# up to this length, products of L x L matrices take 0.2 to 0.7 of the time of transforms on a CPU; on a device they
# need two thirds of the launches
_LONGEST_PRODUCT = 256


def causal_convolution(inputs: Tensor, kernel: Tensor) -> Tensor:
    r"""Return :math:`y_{ic} = \sum_{j \le i} w_{(i - j) c} x_{jc}` (B, L, d), of ``inputs`` x and ``kernel`` w (L, d).

    Short sequences use a matrix per coordinate, others Fourier transforms of length 2 L.
    """
    batch, length, width = inputs.shape
    if length > _LONGEST_PRODUCT:
        spectrum = torch.fft.rfft(inputs, n=2 * length, dim=1) * torch.fft.rfft(kernel, n=2 * length, dim=0)
        return torch.fft.irfft(spectrum, n=2 * length, dim=1)[:, :length]
    # torch copies one transposed matrix six times faster than it permutes three dimensions
    columns = inputs.reshape(batch * length, width).t().contiguous().view(width, batch, length)
    output = torch.bmm(columns, _Toeplitz.apply(kernel))
    return output.view(width, batch * length).t().contiguous().view(batch, length, width)


class _Toeplitz(torch.autograd.Function):
    """The matrices T (d, L, L) of filters w (L, d): T[c, j, i] is w[i - j, c], 0 where i < j."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor) -> Tensor:
        length = len(kernel)
        return F.pad(kernel.t(), (length - 1, 0)).unfold(1, length, 1).flip(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        width, length, _ = gradient.shape
        # rows that start L + 1 apart turn diagonals into columns; L more numbers make room for the last one
        skewed = gradient.new_zeros(width, length * length + length)
        torch.triu(gradient, out=skewed[:, : length * length].view(width, length, length))
        return skewed.as_strided((width, length, length), (skewed.shape[1], length + 1, 1)).sum(1).t()
