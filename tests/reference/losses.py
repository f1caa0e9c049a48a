"""Every loss as a plain loop over rows and items, in float64, straight from its formula.

All take ``scores`` (n, n_items), a float64 tensor through which autograd may run, and integers; padding is class 0
where it is named.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_sum_exp(values: list[Tensor]) -> Tensor:
    """log(sum(exp(v))), shifted by the largest."""
    top = max(float(v.detach()) for v in values)
    return top + torch.log(sum(torch.exp(v - top) for v in values))


def cross_entropy(scores: Tensor, targets: list[int], padding: int | None = None) -> Tensor:
    """-s_t + log sum_j exp(s_j) for each row, over all items but the padding."""
    losses = []
    for row, target in enumerate(targets):
        items = [scores[row, j] for j in range(scores.shape[1]) if j != padding]
        losses.append(log_sum_exp(items) - scores[row, target])
    return torch.stack(losses)


def minus_log_sigmoid(x: Tensor) -> Tensor:
    """-log(1 / (1 + exp(-x)))."""
    return torch.log1p(torch.exp(-x)) if float(x.detach()) > 0 else -x + torch.log1p(torch.exp(x))


def binary_cross_entropy(scores: Tensor, targets: list[int], negatives: list[list[int]]) -> Tensor:
    """-log sigma(s_t) - sum_j log(1 - sigma(s_j)) for each row."""
    losses = []
    for row, target in enumerate(targets):
        loss = minus_log_sigmoid(scores[row, target])
        for j in negatives[row]:
            loss = loss + minus_log_sigmoid(-scores[row, j])
        losses.append(loss)
    return torch.stack(losses)
