"""Softmax cross-entropy over the target and a sample of items that all rows share, corrected for how it was drawn."""

import torch
from torch import Tensor

from recbole_hyper.geometry import _gather
from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, mean


def sampled_softmax(
    states: Tensor,
    targets: Tensor,
    head: Head,
    items: Tensor,
    log_expected: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Return the mean of :math:`-\log\big(e^{s_t} / (e^{s_t} + \sum_{j \in S, j \ne t} e^{s_j} / E_j)\big)`.

    S are ``items`` (k,), drawn with replacement, and ``log_expected`` (k,) is :math:`\log E_j`, how often j is expected
    among them: the sum is then an unbiased estimate of that over all other items (Bengio and Senecal 2008), so the loss
    tends to the exact cross-entropy as k grows. With ``weights`` (n,) the result is the weighted sum. The logits
    (n, k) exist piece by piece.
    """
    rows = torch.arange(len(targets), device=targets.device)
    size = max(1, _gather.numbers_at_once(targets.device, _gather.LOGITS) // len(items))
    groups = [_pairs.Group(part[None], items[None], targets[part][None]) for part in rows.split(size)]
    candidates, positive = _pairs.group_logsumexp(head, states, targets, groups, lambda *_: log_expected)
    return mean(_pairs.softmax_loss(candidates, positive), weights)
