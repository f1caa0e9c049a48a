"""Item vectors of a training matrix: truncated SVD, V Sigma, as the delta of the HSASRec paper takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from recbole_hyper.svd import Floats, check_rank, scaled_columns, top_eigenpairs


def item_vectors(train_matrix: Any, rank: int, *, scaling: float = 1.0, seed: int = 0) -> Floats:
    """V Sigma, (n_items, rank), of the truncated SVD of the binary user x item matrix (HSASRec paper, appendix B).

    They are neither centred nor normalised; items without interactions are zero vectors.

    Args:
        train_matrix: (n_users, n_items) sparse; training interactions only. Any non-zero entry counts as 1.
        rank: singular vectors kept, 1 to min(shape). The first k columns of the result are those of rank k.
        scaling: s of PureSVD-N: the columns are multiplied by (item count)^((s - 1) / 2) first; 1 is plain SVD.
        seed: of the random start of the iteration; it moves the result by rounding only.

    Raises:
        ValueError: an empty matrix, a rank out of range, or one whose iteration does not fit into memory.
    """
    matrix = scipy.sparse.csr_matrix(train_matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise ValueError(f"the training matrix {matrix.shape} holds no interaction: no item vectors to measure")
    if not 1 <= rank <= min(matrix.shape):
        users, items = matrix.shape
        most = min(matrix.shape)
        raise ValueError(f"rank {rank} is out of range for {users} users x {items} items: choose 1 to {most}")
    check_rank(min(matrix.shape), rank, ", or give the curvature as a number")
    matrix.data[:] = 1.0
    if scaling != 1.0:
        matrix = scaled_columns(matrix, scaling)
    by_user = matrix.shape[0] < matrix.shape[1]
    side = matrix.T.tocsr() if by_user else matrix  # (long, short): the Gram matrix is short x short
    values, vectors = top_eigenpairs(side, rank, seed)
    if by_user:
        return np.asarray(matrix.T @ vectors)  # A^T U = V Sigma
    return vectors * np.sqrt(np.maximum(values, 0.0))
