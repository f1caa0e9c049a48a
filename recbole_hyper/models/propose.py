"""First part of the default model: a network and a memory propose items, in a fixed mixture."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recbole_hyper.models.item_votes import PairRates

#: as many of the best items of the mixture are proposed
BEST = 100
# share of the memory, and weight of an item relative to the next newer one; docs/models/memory.md has others
SHARE, DECAY = 0.4, 0.9
_LEAST = -87.0  # of mixed log-probabilities: below, probabilities are subnormal numbers, which are slow
# columns whose maximum is taken first, where at least so many such blocks remain for each that is looked for
_BLOCK, _LEAST_PER_BEST = 8, 4


class Proposals(NamedTuple):
    """Log-probabilities (n, n_items) by the ``network`` and by the mixture (``scores``), and the best ``items`` (n, k).

    Padding has -inf. The places of items that are left out, if too few remain, have the item 0.
    """

    network: Tensor
    scores: Tensor
    items: Tensor


class Proposer(nn.Module):
    r"""Mixes the probabilities of a network with a memory, and proposes the best items.

    After a history with the newest items :math:`h_0, h_1, \dots`, the memory gives item j the probability

    .. math:: m(j) = \sum_k a_k C_{h_k j} / n_{h_k}, \qquad a_k \propto .9^k \sqrt{n_{h_k}}

    over the ``window`` newest items, by pair counts on ``both`` sides of an item. The mixture is .6 p + .4 m. With
    ``exclude_seen`` no item of the history is proposed.
    """

    def __init__(self, both: PairRates, *, window: int, exclude_seen: bool) -> None:
        super().__init__()
        self.both, self.window, self.exclude_seen = both, window, exclude_seen

    def forward(self, logits: Tensor, newest: Tensor) -> Proposals:
        """Return the proposals by the network's ``logits`` (n, n_items), after the ``newest`` items (n, L)."""
        network, scores = self.mixed(logits, newest)
        left_out = newest if self.exclude_seen else newest[:, :0]
        own = scores.gather(1, left_out)
        # for a moment only: a copy of the scores would take as long as the search
        scores.scatter_(1, left_out, -math.inf)
        values, items = best_columns(scores, min(BEST, scores.shape[1] - 1))
        return Proposals(network, scores.scatter_(1, left_out, own), items.masked_fill(values == -math.inf, 0))

    def mixed(self, logits: Tensor, newest: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities (n, n_items) by the network and by the mixture; ``logits`` are overwritten."""
        logits[:, 0] = -math.inf
        network, recent = logits.log_softmax(dim=1), newest[:, : self.window]
        ages = self.both.ages(recent, [DECAY])[:, 0]
        neighbours, weights = self.both.of(recent)
        near, votes = neighbours.flatten(1), (ages[:, :, None] * weights).flatten(1)
        # new memory for a million scores would cost more than what is computed in it, so that of the logits serves
        memory = logits.zero_().scatter_add_(1, near, votes).gather(1, near)
        # the network decides alone where nothing is known of any item
        known = (ages.sum(dim=1, keepdim=True) > 0) * math.log1p(-SHARE)
        scores = torch.add(network, known, out=logits)
        # only neighbours change, and logarithms stay finite where probabilities do not
        alone = scores.gather(1, near)
        mixed = torch.where(memory > 0, alone.clamp(min=_LEAST).exp_().add_(memory, alpha=SHARE).log_(), alone)
        return network, scores.scatter_(1, near, mixed)


def best_columns(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row of ``scores`` (n, m) in order, and their columns, each (n, k).

    In a long row they lie in the k blocks with the largest maxima, which are found in the same way. The columns of a
    block are far from each other, so that its maximum is that of whole rows of numbers, which is quick.
    """
    n, m = scores.shape
    blocks, device = m // _BLOCK, scores.device
    if blocks < _LEAST_PER_BEST * k:
        return scores.topk(k, dim=1)
    whole = blocks * _BLOCK
    first = best_columns(scores[:, :whole].view(n, _BLOCK, blocks).amax(dim=1), k)[1]
    columns = (first[:, None] + torch.arange(0, whole, blocks, device=device)[:, None]).flatten(1)
    columns = torch.cat((columns, torch.arange(whole, m, device=device).expand(n, -1)), dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, places)
