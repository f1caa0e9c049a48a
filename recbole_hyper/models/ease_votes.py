"""Votes of EASE^R for the item after a history: a part of the mixture of a network and a memory."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from recbole_hyper.models.easer import gram_matrix, item_weights

# EASE^R is offered to the validation up to this number of items, whose matrix takes 5 GB while it is fitted
MOST_ITEMS = 20_000
# and where items x items / interactions is at most this. A fit costs items^3, and training items x interactions: at 560
# (10,000 items) the fit takes 20 s of a CPU, a tenth of the training, and at 950 (Amazon Beauty) a fifth
MOST_WORK = 600
# ridge, and the largest weights of an item that are kept; chosen on the validation of ml-100k
_RIDGE, _NEIGHBOURS = 100.0, 200
# votes in memory at once
_BLOCK = 1 << 22


class Votes(NamedTuple):
    """How much EASE^R counts, how fast it forgets, and how sharply its scores become probabilities."""

    share: float  # of EASE^R in the probability of network and EASE^R, in [0, 1)
    decay: float  # weight of an item relative to the next newer one
    sharpness: float  # of the softmax of the scores


#: the votes to choose from; the first one leaves EASE^R out
VOTES = (
    Votes(0.0, 1.0, 1.0),
    *itertools.starmap(Votes, itertools.product((0.2, 0.4, 0.6), (0.9, 0.95, 0.98), (10.0, 20.0, 40.0))),
)


def is_offered(n_items: int, n_interactions: int) -> bool:
    """Return whether EASE^R is fitted to such data in about a tenth of the network's training, or less."""
    return n_items <= min(MOST_ITEMS, MOST_WORK * n_interactions / max(1, n_items))


class EaseVotes(nn.Module):
    r"""A distribution over items by EASE^R (Steck, 2019) on a history that fades.

    After a history with the items h_0, h_1, ..., newest first, it is

        e = softmax(sharpness x sum_k decay^k B[h_k])

    with EASE^R's weights B of the training matrix. Each row of B keeps its 200 largest weights. ``neighbours`` and
    ``weights`` (n_items, 200) are empty before :meth:`fit`; the weights file of a run contains them.
    """

    neighbours: Tensor
    bits: Tensor
    choice: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("neighbours", torch.empty(0, 0, dtype=torch.int32))
        # the weights as integers, because an average of the model's weights leaves integers alone
        self.register_buffer("bits", torch.empty(0, 0, dtype=torch.int32))
        self.register_buffer("choice", torch.zeros((), dtype=torch.int64))

    @property
    def weights(self) -> Tensor:
        """The weights (n_items, k) of the neighbours."""
        return self.bits.view(torch.float32)

    @property
    def chosen(self) -> Votes:
        """The votes that count."""
        return VOTES[int(self.choice)]

    @chosen.setter
    def chosen(self, votes: Votes) -> None:
        self.choice.fill_(VOTES.index(votes))

    def fit(self, matrix: scipy.sparse.csr_matrix) -> None:
        """Fit to the binary training matrix (n_users, n_items)."""
        weights = item_weights(gram_matrix(matrix), _RIDGE)
        count = min(_NEIGHBOURS, weights.shape[1])
        neighbours = np.argpartition(-np.abs(weights), count - 1, axis=1)[:, :count]
        kept = np.take_along_axis(weights, neighbours, axis=1)
        device = self.choice.device
        self.neighbours = torch.from_numpy(neighbours.astype(np.int32)).to(device)
        self.bits = torch.from_numpy(kept).to(device).view(torch.int32)

    def scores(self, newest: Tensor, decay: float) -> Tensor:
        """Return :func:`ease_scores` (B, n_items), to the same bits on a CPU, where a sparse product is quicker."""
        if newest.device.type == "cpu":
            return torch.from_numpy((_histories(newest, decay, len(self.bits)) @ self._sparse()).toarray())
        rows = max(1, _BLOCK // max(1, newest.shape[1] * self.bits.shape[1]))
        blocks = newest.split(rows)
        return torch.cat([ease_scores(block, self.neighbours, self.weights, decay) for block in blocks])

    def _sparse(self) -> scipy.sparse.csr_matrix:
        n, kept = self.bits.shape
        entries = self.weights.numpy().ravel(), self.neighbours.numpy().ravel(), np.arange(0, n * kept + 1, kept)
        return scipy.sparse.csr_matrix(entries, shape=(n, n))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        for name in ("neighbours", "bits", "choice"):
            # the shapes follow from the data; a file of an earlier version has no votes
            own = state_dict.setdefault(prefix + name, getattr(self, name))
            setattr(self, name, own.to(self.choice.device).clone())
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class EaseTable(nn.Module):
    """The weights of :class:`EaseVotes` as float32 constants: an exported graph cannot read the bits of integers."""

    neighbours: Tensor
    weights: Tensor

    def __init__(self, votes: EaseVotes) -> None:
        super().__init__()
        self.register_buffer("neighbours", votes.neighbours)
        self.register_buffer("weights", votes.weights)

    def forward(self, newest: Tensor, decay: float) -> Tensor:
        """Return :func:`ease_scores`."""
        return ease_scores(newest, self.neighbours, self.weights, decay)


def ease_scores(newest: Tensor, neighbours: Tensor, weights: Tensor, decay: float) -> Tensor:
    """Return the scores (B, n_items) after the ``newest`` items (B, L), newest first and padded with 0.

    Each has these ``neighbours`` and ``weights`` (n_items, k), and counts ``decay`` times as much as the next newer.
    """
    ages = decay ** torch.arange(newest.shape[1], device=newest.device)
    votes = (ages * (newest > 0))[:, :, None] * weights[newest]
    scores = votes.new_zeros(newest.shape[0], weights.shape[0])
    return scores.scatter_add(1, neighbours[newest].flatten(1).long(), votes.flatten(1))


def _histories(newest: Tensor, decay: float, n_items: int) -> scipy.sparse.csr_matrix:
    """Return the weight of each of the ``newest`` items (n, L), newest first, as a matrix (n, n_items)."""
    rows, places = np.nonzero(newest.numpy())
    ages, starts = (decay ** torch.arange(newest.shape[1])).numpy(), np.searchsorted(rows, np.arange(len(newest) + 1))
    return scipy.sparse.csr_matrix((ages[places], newest.numpy()[rows, places], starts), shape=(len(newest), n_items))


def log_probabilities(scores: Tensor) -> Tensor:
    """Return the logarithm of the softmax of ``scores`` (n, n_items) in their place; padding has -inf."""
    scores[:, 0] = -math.inf
    return torch.log_softmax(scores, dim=1, out=scores)


def with_votes(network: Tensor, scores: Tensor, votes: Votes) -> Tensor:
    """Return log((1 - share) p_network + share e) (n, n_items), of log p_network and :meth:`EaseVotes.scores`."""
    if not votes.share:
        return network
    ease = log_probabilities(votes.sharpness * scores)
    return torch.logaddexp(network + math.log1p(-votes.share), ease + math.log(votes.share))
