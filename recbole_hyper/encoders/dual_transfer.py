"""Bidirectional information transfer of DualRec: how far two directions differ, as symmetric KL divergences.

Both forms are symmetric, are 0 if the directions agree, ignore padding, and let gradients flow to both directions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.encoders.base import Trace


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return 1/2 [KL(p||q) + KL(q||p)] over the last dimension of two log distributions."""
    # 1/2 sum (p - q)(log p - log q), which is never negative
    return 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)


def transfer(past: Trace, future: Trace, lengths: Tensor, form: str = "heads") -> Tensor:
    """Return the transfer term, 0-d: the mean symmetric KL over users, heads and layers.

    With the mean over heads, as in the code, ``dual_beta`` does not depend on their number; the paper's slides sum.
    Both traces have the order of the items. Users with ``lengths`` 0 do not count.

    ``form`` "heads", the published code, compares the softmax over the d/h coordinates of the head outputs, averaged
    over real positions; the code averages over padding too. "attention", ours, compares the attention weights by
    distance from the query, averaged over real queries.
    """
    if form == "heads":
        logs = [[_head_log_distribution(one, lengths) for one in trace.heads] for trace in (past, future)]
    else:
        pairs = [(past.maps, "past"), (future.maps, "future")]
        shares = [[distance_distribution(one, lengths, direction) for one in maps] for maps, direction in pairs]
        # both directions reach the same distances, so clamped entries cancel
        logs = [[one.clamp(min=torch.finfo(one.dtype).tiny).log() for one in own] for own in shares]
    divergences = [symmetric_kl(p, f).mean(dim=-1) for p, f in zip(*logs, strict=True)]
    per_user = torch.stack(divergences).mean(dim=0)  # (B,)
    counted = lengths > 0
    return torch.where(counted, per_user, 0.0).sum() / counted.sum().clamp(min=1)


def _head_log_distribution(heads: Tensor, lengths: Tensor) -> Tensor:
    """Return the log-softmax of the mean head output over real positions, (B, h, d/h)."""
    real = torch.arange(heads.shape[1], device=heads.device) < lengths[:, None]
    # not a product: outputs at padding may be NaN
    total = torch.where(real[:, :, None, None], heads, 0.0).sum(dim=1)
    return F.log_softmax(total / lengths.clamp(min=1)[:, None, None], dim=-1)


def distance_distribution(maps: Tensor, lengths: Tensor, direction: str) -> Tensor:
    """Return the attention (B, h, L) at each distance from the query, averaged over the real queries of each user.

    ``maps`` (B, h, L, L) are attention weights, 0 on the side that ``direction`` (past or future) does not see.
    """
    length = maps.shape[-1]
    real = torch.arange(length, device=maps.device) < lengths[:, None]
    maps = torch.where(real[:, None, :, None], maps, 0.0)
    flat = maps.flatten(-2)
    # the inverse of relative_shift; entries of the unseen side move to other rows, but they are 0
    if direction == "past":
        rows = F.pad(flat, (length, 0)).unflatten(-1, (length, length + 1))[..., 1:].flip(-1)
    else:
        rows = F.pad(flat, (0, length)).unflatten(-1, (length, length + 1))[..., :length]
    return rows.sum(dim=-2) / lengths.clamp(min=1)[:, None, None]
