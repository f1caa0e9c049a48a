"""FuXi-alpha (Ye et al., 2025): separate channels of attention for content, time and position over the same values.

Where paper and published code differ, this follows the code: see :class:`FuXiBlock`.
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders._relations import LATER, RelationalBlock, RelationalEncoder, Relations, looked_up
from recbole_hyper.encoders.ligr import GatedFeedForward


class FuXiBlock(RelationalBlock):
    r"""Adaptive multi-channel self-attention (AMS) and the multi-stage feed-forward network (MFFN).

    .. math::
        U, V, Q, K &= \mathrm{SiLU}(\mathrm{RMS}(X) W) \\
        A^s_{ij} = \mathrm{SiLU}(q_i^T k_j) / N, \quad
        A^t_{ij} &= \alpha_{b(t_i - t_j)}, \quad A^p_{ij} = \beta_{i-j}, \quad j \le i \\
        O &= X + W_0\, \mathrm{drop}(\mathrm{RMS}([A^p V, A^t V, A^s V]) \odot U) + c \\
        X' &= O + W_3 (\mathrm{SiLU}(W_1 z) \odot W_2 z), \quad z = \mathrm{drop}(\mathrm{RMS}(O))

    with N = ``max_length``. All heads share the learned :math:`\alpha` and :math:`\beta`. From the code, not the
    paper: RMS norms without weights, a bias c of W_0 but none of W_1 to W_3, the dropouts, a gate U over all three
    channels, and the inner width d.
    """

    norm, channels = nn.RMSNorm, 3

    def __init__(
        self,
        hidden_size: int,
        *,
        inner_size: Annotated[opt.InnerSize, "inside the feed-forward part; ~ is hidden_size; published code"] = None,
        **more: Any,
    ) -> None:
        super().__init__(hidden_size, **more)
        self.feed_norm = nn.RMSNorm(hidden_size, eps=self.input_norm.eps, elementwise_affine=False)
        self.feed_forward = GatedFeedForward(hidden_size, inner_size or hidden_size, 0.0)

    def draw(self) -> None:
        super().draw()
        # the code has one matrix for the gate of SwiGLU and one for the value
        for matrix in (*self.feed_forward.inner.weight.chunk(2), self.feed_forward.outer.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        states, gates, queries, values, keys = self.projected(memory, query)
        later = torch.where(relations.places == self.max_length, LATER, 0.0)
        channels = (
            _by_place(looked_up(self.weights.place, relations.places, 0.0), values),
            looked_up(self.weights.gap, relations.gaps, 0.0) @ values,
            # (Q, L), or (B, 1, L) for each head
            self.attended(queries, keys, values, later if later.dim() == 2 else later.unsqueeze(1)),
        )
        states = states + self.output(self.dropout(self.attended_norm(torch.cat(channels, dim=-1)) * gates))
        return states + self.feed_forward(self.dropout(self.feed_norm(states)))


def _by_place(weights: Tensor, values: Tensor) -> Tensor:
    """Return the product (B, Q, w) of weights (Q, L) or (B, 1, L) with values (B, L, w)."""
    if weights.dim() == 3:
        return weights @ values
    # one matrix product for all rows, also in the backward pass
    return torch.tensordot(weights, values, dims=([1], [1])).transpose(0, 1)


class FuXiEncoder(RelationalEncoder):
    """FuXi-alpha's blocks over item vectors and learned positions."""

    made_of = (FuXiBlock,)
