"""Bidirectional information transfer of DualRec: the distance of two directions as symmetric KL terms.

Both forms are symmetric, 0 if the directions agree, and ignore padding. Neither stops a gradient.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.encoders.base import Trace


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return 1/2 [KL(p||q) + KL(q||p)] over the last dimension of two log distributions."""
    # the two sums share their logarithms: 1/2 sum (p - q)(log p - log q), never negative
    return 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)


def transfer(past: Trace, future: Trace, lengths: Tensor, form: str = "heads") -> Tensor:
    """Return the transfer term: the mean of the symmetric KL over users, heads and layers (a 0-d tensor).

    The mean over heads, as in the code, makes ``dual_beta`` independent of their number; the paper's slides sum. Traces
    are by natural position. Users with 0 of ``lengths`` (B,) real positions do not count.

    Args:
        form: ``heads``, the published code: the softmax over the d/h coordinates of the head outputs, averaged over
            the real positions (the code averages over padding too). ``attention``, ours: the attention weights by
            distance to the query, averaged over the real queries.
    """
    if form == "heads":
        logs = [[_head_log_distribution(one, lengths) for one in trace.heads] for trace in (past, future)]
    else:
        pairs = [(past.maps, "past"), (future.maps, "future")]
        shares = [[distance_distribution(one, lengths, direction) for one in maps] for maps, direction in pairs]
        # both directions reach the same distances, so the clamped entries cancel
        logs = [[one.clamp(min=torch.finfo(one.dtype).tiny).log() for one in own] for own in shares]
    divergences = [symmetric_kl(p, f).mean(dim=-1) for p, f in zip(*logs, strict=True)]
    per_user = torch.stack(divergences).mean(dim=0)  # (B,)
    counted = lengths > 0
    return torch.where(counted, per_user, 0.0).sum() / counted.sum().clamp(min=1)


def _head_log_distribution(heads: Tensor, lengths: Tensor) -> Tensor:
    """Return the log-softmax of the mean head output over real positions, (B, h, d/h)."""
    real = torch.arange(heads.shape[1], device=heads.device) < lengths[:, None]
    # where, not a product: outputs at padding can be anything
    total = torch.where(real[:, :, None, None], heads, 0.0).sum(dim=1)
    return F.log_softmax(total / lengths.clamp(min=1)[:, None, None], dim=-1)


def distance_distribution(maps: Tensor, lengths: Tensor, direction: str) -> Tensor:
    """Return (B, h, L) the attention at each distance from the query, averaged over the real queries of each user.

    ``maps`` (B, h, L, L) are attention weights, zero on the side that ``direction`` (past or future) does not see.
    """
    length = maps.shape[-1]
    real = torch.arange(length, device=maps.device) < lengths[:, None]
    maps = torch.where(real[:, None, :, None], maps, 0.0)
    flat = maps.flatten(-2)
    # the inverse of relative_shift; entries of the unseen side move into other rows, but they are zero
    if direction == "past":
        rows = F.pad(flat, (length, 0)).unflatten(-1, (length, length + 1))[..., 1:].flip(-1)
    else:
        rows = F.pad(flat, (0, length)).unflatten(-1, (length, length + 1))[..., :length]
    return rows.sum(dim=-2) / lengths.clamp(min=1)[:, None, None]
