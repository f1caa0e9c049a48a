"""EASE^R, the closed-form item-item model of the HSASRec paper's comparison."""

from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import scipy.linalg
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.batches.histories import multiply
from recbole_hyper.models._linear import LinearRecommender
from recbole_hyper.options import Option, keyed
from recbole_hyper.values import PositiveFloat

_BLOCK = 2048  # columns per block
# one float64 array for the Gram matrix and its inverse, and float32 weights
BYTES_PER_ENTRY = 8 + 4


def gram_matrix(matrix: scipy.sparse.csr_matrix) -> npt.NDArray[np.float64]:
    """Return ``A^T A`` as a dense (n_items, n_items) array in column order, without one large sparse product."""
    n_items = matrix.shape[1]
    columns = matrix.astype(np.float64).tocsc()
    rows = columns.T.tocsr()
    result = np.empty((n_items, n_items), order="F")
    for start in range(0, n_items, _BLOCK):
        result[:, start : start + _BLOCK] = (rows @ columns[:, start : start + _BLOCK]).toarray()
    return result


def item_weights(gram: npt.NDArray[np.float64], reg_weight: float) -> npt.NDArray[np.float32]:
    """Return B (n_items, n_items), ``B_ij = -P_ij / P_jj``, ``B_jj = 0``, with ``P = (gram + reg_weight I)^-1``.

    This overwrites ``gram``.
    """
    gram[np.diag_indices_from(gram)] += reg_weight
    factor, status = scipy.linalg.lapack.dpotrf(gram, lower=1, overwrite_a=1, clean=0)
    if status:
        raise ValueError(f"reg_weight={reg_weight}: the Gram matrix is not positive definite; use a larger reg_weight")
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    diagonal = np.diagonal(inverse).copy()
    weights = np.empty(gram.shape, dtype=np.float32)
    # LAPACK fills only the lower triangle: what a block of columns lacks is the transpose of a block of rows
    for start in range(0, len(weights), _BLOCK):
        stop = start + _BLOCK
        weights[stop:, start:stop] = -inverse[stop:, start:stop] / diagonal[start:stop]
        weights[start:stop, stop:] = -inverse[stop:, start:stop].T / diagonal[stop:]
        square = np.tril(inverse[start:stop, start:stop])
        square += np.tril(square, -1).T
        weights[start:stop, start:stop] = -square / diagonal[start:stop]
    np.fill_diagonal(weights, 0.0)
    return weights


class EASER(LinearRecommender):
    """EASE^R (Steck, 2019; HSASRec paper, appendix E): scores ``x B`` of a binary history x."""

    own_options = keyed(
        reg_weight=Option("ridge; HSASRec appendix E: 8 to 3072 by powers of two", kind=PositiveFloat, default=256.0),
    )
    weights: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.reg_weight = float(config["reg_weight"])
        self.n_learned = (self.n_items - 1) * (self.n_items - 2)  # all but the diagonal
        self.keep_learned("weights")

    def fit(self) -> None:
        """Compute B; ValueError if it needs too much memory."""
        needed, free = BYTES_PER_ENTRY * self.n_items**2, psutil.virtual_memory().available
        if needed > (allowed := 0.8 * free):
            fits = int((allowed / BYTES_PER_ENTRY) ** 0.5)
            raise ValueError(
                f"EASER needs {needed / 1e9:.1f} GB for {self.n_items - 1:,} items, but may use {allowed / 1e9:.1f} GB "
                f"({free / 1e9:.1f} GB are free), enough for {fits:,} items. Drop rare items "
                "(item_inter_num_interval: '[5,inf)' or more), or use PureSVDN, whose memory grows with n_items x rank"
            )
        weights = item_weights(gram_matrix(self.matrix), self.reg_weight)
        self.weights = torch.from_numpy(weights).to(self.device)

    def fold_in(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        return multiply(histories, self.weights)
