"""CE-: softmax cross-entropy over the target and sampled negatives, shared by the positions of a sequence."""

import torch
from torch import Tensor

from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Negatives, SampledLoss, mean
from recbole_hyper.losses.negatives import uniform_set


def sampled_cross_entropy(
    states: Tensor,
    targets: Tensor,
    head: Head,
    negatives: Tensor,
    rows: Tensor,
    grid: tuple[Tensor, int] | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Return the mean of :math:`-\log\big(e^{s_t}/(e^{s_t}+\sum_{j\in N} e^{s_j})\big)`.

    There is no correction for sampling. If N contains all other items, this is the exact cross-entropy. ``negatives``
    (S, k) has a set of items per sequence, ``rows`` (n,) the set of each row. A row skips its target in the set.
    ``grid`` is that of ``BoundNegatives``; with ``weights`` (n,) the result is the weighted sum.
    """
    whole = None if grid is None or states.is_cpu else _pairs.group_of_grid(grid[0], negatives, targets, grid[1])
    if whole is not None:
        candidates, positive = _pairs.group_logsumexp(head, states, targets, [whole])
        return mean(_pairs.softmax_loss(candidates, positive), weights)
    all_rows = torch.arange(len(targets), device=targets.device)
    order, groups = _pairs.groups_of_sets(all_rows, rows, negatives, targets, states.shape[1])
    candidates, positive = _pairs.group_logsumexp(head, states, targets, groups)
    losses = _pairs.softmax_loss(candidates, positive.index_select(0, order))
    return mean(losses, None if weights is None else weights[order])


class SampledCrossEntropy(SampledLoss):
    """CE- (SCE paper; "dross" in its code): one set of k distinct unseen items per sequence, no correction."""

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss; without ``negatives``, all rows share one set."""
        if negatives is None:
            drawn = uniform_set(self.n_negatives, head.n_items, head.padding_idx, targets.device).unsqueeze(0)
            rows = torch.zeros_like(targets)
        else:
            drawn, rows = negatives.per_sequence(self.n_negatives, exclude_seen=True, replacement=False)
        grid = None if negatives is None else negatives.grid
        return sampled_cross_entropy(states, targets, head, drawn, rows, grid, weights)
