"""Weights from item to item, of two kinds: pair counts of the training part, and EASE^R fitted to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor, nn

from recbole_hyper.data.pair_counts import Side, pair_counts, strongest
from recbole_hyper.models.nearest_ease import nearest_weights

# a table has at most so many weights, however many items there are
_WEIGHTS = 1 << 26
#: EASE^R is fitted where at most so many pairs of items can have counts, which then take a gibibyte
MOST_PAIRS = 1 << 27
# ridge, and the largest weights of an item that are kept; chosen on the validation of ml-100k
_RIDGE, _NEIGHBOURS = 100.0, 200
# an item is regressed on at most so many, fewer in a large catalogue: between these items are as many pairs in all
_NEAREST = 200


def is_offered(n_items: int, lengths: npt.NDArray[np.int64]) -> bool:
    """Return whether EASE^R can be fitted to training sequences of these ``lengths`` (n,)."""
    return min(n_items**2, float(np.square(lengths, dtype=np.float64).sum())) <= MOST_PAIRS


class ItemWeights(nn.Module):
    """The largest ``weights`` (n_items, k) from each item to its ``neighbours`` (n_items, k), and what an item counts.

    Neighbour 0 with weight 0 fills a row up. ``evidence`` (n_items,) is what an item counts among the newest of a
    history. These tensors are constants, and no part of the weights file.
    """

    neighbours: Tensor
    weights: Tensor
    evidence: Tensor

    def __init__(self, neighbours: npt.NDArray, weights: npt.NDArray, evidence: npt.NDArray) -> None:
        super().__init__()
        self.register_buffer("neighbours", torch.from_numpy(neighbours.astype(np.int32, copy=False)), persistent=False)
        self.register_buffer("weights", torch.from_numpy(weights.astype(np.float32, copy=False)), persistent=False)
        self.register_buffer("evidence", torch.from_numpy(evidence.astype(np.float32)), persistent=False)

    def ages(self, newest: Tensor, decays: Sequence[float]) -> Tensor:
        """Return what each of the ``newest`` items (n, w) counts (n, decays, w): ``decay`` times per step of age."""
        steps = torch.arange(newest.shape[1], device=newest.device)
        return self.evidence[newest][:, None] * torch.stack([decay**steps for decay in decays])

    def of(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return the neighbours of ``items`` (n, w) and the weights from these to them, each (n, w, k)."""
        # index_select copies whole rows, an index each number by itself
        neighbours, weights = (table.index_select(0, items.flatten()) for table in (self.neighbours, self.weights))
        return neighbours.long().unflatten(0, items.shape), weights.unflatten(0, items.shape)

    def forward(self, newest: Tensor, places: Tensor, count: int) -> Tensor:
        """Return the weights (n, w, count) from each of the ``newest`` items (n, w) to ``count`` items.

        ``places`` (n, n_items) has the place of each item among them from 1, and 0 for others.
        """
        neighbours, weights = self.of(newest)
        found = places.gather(1, neighbours.flatten(1)).long().view_as(neighbours)
        return weights.new_zeros(*newest.shape, count + 1).scatter(2, found, weights)[:, :, 1:]


class PairRates(ItemWeights):
    """How often item j comes near item h, C[h, j] / n[h], by ``data.pair_counts``; an item counts n^0.5."""

    def __init__(self, store: Any, lengths: npt.NDArray[np.int64], *, window: int, neighbours: int, side: Side) -> None:
        kept = _kept(store.n_items, neighbours)
        counts, totals = pair_counts(store, lengths, window=window, neighbours=kept, side=side)
        counts.data /= np.repeat(totals, np.diff(counts.indptr))
        super().__init__(*_table(counts), np.sqrt(totals))

    def ages(self, newest: Tensor, decays: Sequence[float]) -> Tensor:
        counted = super().ages(newest, decays)
        return counted / counted.sum(dim=2, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


class EaseWeights(ItemWeights):
    """Weights of EASE^R for the training matrix, each item regressed on its nearest; it keeps its 200 largest.

    A model fits them itself, so the weights file of a run contains them. An average of the model's weights leaves them
    alone, as they are no buffers of the state.
    """

    def __init__(self, n_items: int) -> None:
        super().__init__(np.empty((n_items, 0)), np.empty((n_items, 0)), np.arange(n_items) > 0)

    @property
    def is_fitted(self) -> bool:
        """Whether there are weights."""
        return bool(self.weights.numel())

    def fit(self, matrix: scipy.sparse.csr_matrix) -> None:
        """Fit to the binary training matrix (n_users, n_items)."""
        n_items = matrix.shape[1]
        nearest = max(1, min(_NEAREST, math.isqrt(MOST_PAIRS // n_items)))
        neighbours, weights = _table(strongest(nearest_weights(matrix, nearest, _RIDGE), _kept(n_items, _NEIGHBOURS)))
        self.set_extra_state(torch.from_numpy(np.stack((neighbours, weights.view(np.int32)))))

    def get_extra_state(self) -> Tensor:
        return torch.stack((self.neighbours, self.weights.view(torch.int32)))

    def set_extra_state(self, state: Tensor) -> None:
        neighbours, bits = state.to(self.weights.device)
        # two storages: torch.export.save takes tensors that share one for parts of a third
        self.neighbours, self.weights = neighbours.clone(), bits.clone().view(torch.float32)


def _kept(n_items: int, neighbours: int) -> int:
    """Return how many ``neighbours`` of an item are kept."""
    return max(1, min(neighbours, _WEIGHTS // n_items))


def _table(matrix: scipy.sparse.csr_matrix) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the columns and values of each row of ``matrix``, each (n, k), filled up with 0."""
    sizes = np.diff(matrix.indptr)
    filled = np.arange(max(1, int(sizes.max(initial=0)))) < sizes[:, None]
    columns, values = np.zeros(filled.shape, np.int32), np.zeros(filled.shape, np.float32)
    columns[filled], values[filled] = matrix.indices, matrix.data
    return columns, values
