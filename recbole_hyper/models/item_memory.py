"""An item-to-item memory beside a network: what others chose near the newest items, mixed into its probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from recbole_hyper.data.pair_counts import weight_of

# smaller differences of counts are rounding: the least count is 1 / sqrt(window)
_ROUNDING = 1e-3
# positions x positions of the rows of a batch that are compared at one time
_COMPARED = 1 << 22


class Recent(NamedTuple):
    """The newest items of histories, newest first, and what is left of the memory's counts for each.

    Attributes:
        items: (n, W) item ids, 0 where a history is shorter.
        totals: (n, W) sum of an item's counts, without those of the history's own sequence in training.
    """

    items: Tensor
    totals: Tensor


class ItemMemory(nn.Module):
    r"""A mixture of a network's distribution over items and of one distribution for each of the newest W items.

    The memory of item h is the share C[h, j] / n[h] of its counts (``data.pair_counts``). After a history with the
    newest items h_1, h_2, ... and the state F,

        p(j) = a_0 p_network(j) + sum_k a_k C[h_k, j] / n[h_k]
        a = softmax(g(F), e_1 + s log n[h_1], e_2 + s log n[h_2], ...)

    with a linear g, a number e_k for each age and s: how far an item is trusted follows from its age and from how
    often it was counted. The mixture is that of pointer networks with a sentinel (Merity et al. 2017), with counts in
    place of attention.

    **Training.** A sequence must not find its own pairs in the counts: with few interactions an item these would be
    most of what the memory knows, and it would look far better than it is. So in training the counts are those of all
    other sequences, exactly, as long as a window holds the whole sequence (:func:`own_counts`).

    Args:
        counts: symmetric (n_items, n_items) counts, columns sorted; the strongest neighbours of each item.
        totals: (n_items,) sums of the rows of the uncut counts.
        window: W, and the most steps between the two items of a pair.
        width: d of the states.
    """

    def __init__(self, counts: scipy.sparse.csr_matrix, totals: Tensor, *, window: int, width: int) -> None:
        super().__init__()
        self.window, self.n_items = window, counts.shape[0]
        self.counts = counts
        rows = np.repeat(np.arange(self.n_items), np.diff(counts.indptr))
        keys = torch.from_numpy(rows * self.n_items + counts.indices)
        # of the training part, which is at hand wherever a model is built: no part of the weights
        self.register_buffer("keys", keys, persistent=False)
        self.register_buffer("values", torch.from_numpy(counts.data), persistent=False)
        self.register_buffer("totals", totals, persistent=False)
        self.gate = nn.Linear(width, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, 2.0)
        self.age = nn.Parameter(-0.5 * torch.arange(window, dtype=torch.float32))
        self.evidence = nn.Parameter(torch.tensor(0.3))

    keys: Tensor
    values: Tensor
    totals: Tensor

    def log_weights(self, states: Tensor, recent: Recent) -> Tensor:
        """Return log a, (n, 1 + W): of the network and of each recent item, -inf where nothing was counted."""
        known = (recent.items > 0) & (recent.totals > _ROUNDING)
        trust = self.age[: recent.items.shape[1]] + self.evidence * recent.totals.clamp_min(_ROUNDING).log()
        votes = torch.cat((self.gate(states), trust.masked_fill(~known, -math.inf)), dim=1)
        return votes.log_softmax(dim=1)

    # --- training ----------------------------------------------------------------------------------------------------
    def losses(self, states: Tensor, network: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        """Return -log p of each target (n,), in the order of ``targets.nonzero()``.

        Args:
            states: (n, d) behind the positions that have a target.
            network: (n,) the network's cross-entropy at these positions.
            items, targets: (B, L) right-padded windows and what follows each item, 0 where nothing does.
        """
        rows, columns = targets.nonzero(as_tuple=True)
        sequences = torch.cat((items, targets.new_zeros(len(items), 1)), dim=1)
        sequences[rows, columns + 1] = targets[rows, columns]
        places = columns.unsqueeze(1) - torch.arange(min(self.window, items.shape[1]), device=items.device)
        inside = places >= 0
        places = places.clamp_min(0)
        recent = sequences[rows.unsqueeze(1), places] * inside
        asked = sequences[rows, columns + 1].unsqueeze(1)
        with torch.no_grad():
            own, own_totals = own_counts(sequences, self.window, rows, columns + 1, places)
            counts = self._counts(recent, asked) - own
            totals = self.totals[recent] - own_totals
            shares = torch.where(counts > _ROUNDING, counts / totals.clamp_min(_ROUNDING), 0.0).clamp_max(1.0)
        weights = self.log_weights(states, Recent(recent, totals))
        return -torch.cat((-network.unsqueeze(1), shares.log()), dim=1).add(weights).logsumexp(dim=1)

    def _counts(self, items: Tensor, others: Tensor) -> Tensor:
        """Return C of each pair, of shapes that broadcast; 0 where it was not kept."""
        wanted = items * self.n_items + others
        if not len(self.keys):
            return torch.zeros(wanted.shape, device=wanted.device)
        places = torch.searchsorted(self.keys, wanted).clamp_max(len(self.keys) - 1)
        return torch.where(self.keys[places] == wanted, self.values[places], 0.0)

    # --- ranking -----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def log_mixture(self, states: Tensor, items: Tensor, logits: Tensor) -> Tensor:
        """Return log p (n, n_items) of all items, -inf for padding.

        Args:
            states: (n, d) behind the histories.
            items: (n, W) their newest items, newest first, 0 where there are no more.
            logits: (n, n_items) of the network; overwritten.
        """
        logits[:, 0] = -math.inf
        weights = self.log_weights(states, Recent(items, self.totals[items]))
        scores = logits.log_softmax(dim=1).add_(weights[:, :1])
        memory = self._memory(items, weights[:, 1:])
        rows = torch.from_numpy(np.repeat(np.arange(len(items)), np.diff(memory.indptr))).to(scores.device)
        columns = torch.from_numpy(memory.indices.astype(np.int64)).to(scores.device)
        added = torch.from_numpy(memory.data).to(scores).log()
        scores[rows, columns] = torch.logaddexp(scores[rows, columns], added)
        return scores

    def _memory(self, items: Tensor, log_weights: Tensor) -> scipy.sparse.csr_matrix:
        """Return the second sum of the mixture (n, n_items), as a sparse matrix without zeros."""
        shares = (log_weights.exp() / self.totals[items].clamp_min(_ROUNDING)).cpu().numpy()
        n, width = items.shape
        entries = shares.ravel(), items.cpu().numpy().ravel(), np.arange(0, n * width + 1, width)
        found = scipy.sparse.csr_matrix(entries, shape=(n, self.n_items)) @ self.counts
        found.sum_duplicates()
        found.eliminate_zeros()
        return found


def own_counts(sequences: Tensor, window: int, rows: Tensor, columns: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return what sequences themselves add to the counts of their pairs, and to the sums of their items.

    A pair counts as in ``data.pair_counts``: once, by its smallest distance, wherever it occurs in the sequence.

    Args:
        sequences: (B, N) item ids, right-padded with 0. window: the most steps between two items of a pair.
        rows, columns: (n,) which place of which sequence.
        places: (n, W) other places of the same sequence.

    Returns:
        (n, W) what the sequence adds to the pair of the items at ``columns`` and ``places``, and to the sum of the
        item at ``places``.
    """
    n, length = len(rows), sequences.shape[1]
    steps = torch.arange(length, device=sequences.device)
    distance = (steps[:, None] - steps).abs()
    near = torch.zeros(distance.shape, device=sequences.device)
    within = (distance >= 1) & (distance <= window)
    table = torch.from_numpy(weight_of(np.arange(1, window + 1))).to(near)
    near[within] = table[distance[within] - 1]
    pairs, sums = near.new_zeros(places.shape), near.new_zeros(places.shape)
    size = max(1, _COMPARED // length**2)
    for first in range(0, len(sequences), size):
        part = sequences[first : first + size]
        inside = (rows >= first) & (rows < first + size)
        if not bool(inside.any()):
            continue
        one = (part[:, :, None] == part[:, None, :]).int().argmax(dim=2)  # the first place of each item
        real = part > 0
        counted = near * (real[:, :, None] & real[:, None, :])
        cells = (one[:, :, None] * length + one[:, None, :]).flatten(1)
        table_of = counted.new_zeros(cells.shape).scatter_reduce_(1, cells, counted.flatten(1), "amax")
        table_of = table_of.view(len(part), length, length)
        table_of.diagonal(dim1=1, dim2=2).zero_()
        own_rows = rows[inside] - first
        here = one[own_rows, columns[inside]].unsqueeze(1)
        there = one[own_rows.unsqueeze(1), places[inside]]
        pairs[inside] = table_of[own_rows.unsqueeze(1), there, here]
        sums[inside] = table_of.sum(dim=2)[own_rows.unsqueeze(1), there]
    assert len(pairs) == n
    return pairs, sums
