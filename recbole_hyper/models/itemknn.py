"""ItemKNN, the item-based neighbourhood model: cosine similarities of the columns of the training matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.models._linear import LinearRecommender
from recbole_hyper.options import Option, keyed
from recbole_hyper.values import NonNegativeFloat, PositiveInt

_ENTRIES = 1 << 24  # similarities per block


def similarities(matrix: scipy.sparse.csr_matrix, k: int | None, shrink: float = 0.0) -> scipy.sparse.csr_matrix:
    """Return W (n_items, n_items): ``W_ij = C_ij / (|a_i| |a_j| + shrink)`` for the ``k`` items i most similar to j.

    ``matrix`` (n_users, n_items) has the columns a, and ``C = A^T A`` counts the users who have both items. The
    diagonal is 0; ``k=None`` keeps all. Of equal similarities at the end of the k, any may stay.
    """
    n_items = matrix.shape[1]
    columns = matrix.astype(np.float32).tocsc()
    rows = columns.T.tocsr()
    norms = np.sqrt(np.asarray(columns.multiply(columns).sum(axis=0), dtype=np.float64)).ravel()
    size, kept = max(1, _ENTRIES // n_items), n_items if k is None else min(k, n_items)
    blocks = []
    for start in range(0, n_items, size):
        stop = min(start + size, n_items)
        weights = (rows @ columns[:, start:stop]).toarray()
        weights[np.arange(start, stop), np.arange(stop - start)] = 0.0
        scale = np.outer(norms, norms[start:stop]) + shrink
        np.divide(weights, scale, out=weights, where=scale > 0)
        if kept < n_items:
            worst = np.argpartition(weights, n_items - kept, axis=0)[: n_items - kept]
            np.put_along_axis(weights, worst, 0.0, axis=0)
        blocks.append(scipy.sparse.csc_matrix(weights))
    return scipy.sparse.hstack(blocks, format="csr")


class ItemKNN(LinearRecommender):
    """ItemKNN (Deshpande and Karypis, 2004): a candidate's score is its similarity to the items of the history.

    The scores are ``x W`` of a binary history x, see :func:`similarities`. They equal those of RecBole's model of this
    name, which scores training users by their training part only; this one also reads later histories and new users.
    """

    own_options = keyed(
        k=Option("neighbours of an item; ~: all", kind=PositiveInt | None, default=100),
        shrink=Option(
            "added to the product of the norms: large for few users in common", kind=NonNegativeFloat, default=0.0
        ),
    )
    indptr: Tensor
    indices: Tensor
    values: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.k, self.shrink = config["k"], float(config["shrink"])
        self.n_learned = (self.n_items - 1) * min(self.k or self.n_items, self.n_items - 2)
        for name in ("indptr", "indices", "values"):
            self.keep_learned(name)
        self._weights: scipy.sparse.csr_matrix | None = None

    def fit(self) -> None:
        """Compute the similarities."""
        weights = similarities(self.matrix, self.k, self.shrink)
        self.indptr = torch.from_numpy(weights.indptr.astype(np.int64)).to(self.device)
        self.indices = torch.from_numpy(weights.indices.astype(np.int64)).to(self.device)
        self.values = torch.from_numpy(weights.data.astype(np.float32)).to(self.device)
        self._weights = None

    @property
    def weights(self) -> scipy.sparse.csr_matrix:
        """W (n_items, n_items)."""
        if self._weights is None:
            arrays = [part.cpu().numpy() for part in (self.values, self.indices, self.indptr)]
            self._weights = scipy.sparse.csr_matrix(tuple(arrays), shape=(self.n_items, self.n_items))
        return self._weights

    def fold_in(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        return torch.from_numpy((histories @ self.weights).toarray().astype(np.float32)).to(self.device)
