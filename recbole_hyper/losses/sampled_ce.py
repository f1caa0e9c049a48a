"""CE-: softmax cross-entropy over the target and sampled negatives, shared by the positions of a sequence."""

import torch
from torch import Tensor

from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Negatives, SampledLoss, mean
from recbole_hyper.losses.negatives import uniform_set


class SampledCrossEntropy(SampledLoss):
    r"""CE- (SCE paper; "dross" in its code): one set N of k distinct unseen items per sequence, no correction.

    The loss of a row is :math:`-\log\big(e^{s_t}/(e^{s_t}+\sum_{j\in N} e^{s_j})\big)`, where the target is skipped in
    the set. If N contains all other items, this is the exact cross-entropy.
    """

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss, or the sum with the ``weights`` (n,); without ``negatives``, all rows share one set."""
        if negatives is None:
            sets = uniform_set(self.n_negatives, head.n_items, head.padding_idx, targets.device).unsqueeze(0)
            rows, grid = torch.zeros_like(targets), None
        else:
            (sets, rows), grid = negatives.per_sequence(self.n_negatives), negatives.grid
        order = torch.arange(len(targets), device=targets.device)
        whole = None if grid is None or states.is_cpu else _pairs.group_of_grid(grid[0], sets, targets, grid[1])
        if whole is None:
            order, groups = _pairs.groups_of_sets(order, rows, sets, targets, states.shape[1])
        else:
            groups = [whole]
        candidates, positive = _pairs.group_logsumexp(head, states, targets, groups)
        losses = _pairs.softmax_loss(candidates, positive.index_select(0, order))
        return mean(losses, None if weights is None else weights[order])
