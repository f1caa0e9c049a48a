"""EASE^R where each item is regressed on the items nearest to it: its time grows with the items, not their cube."""

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch

#: with fewer items, an array of all counts is read before the kernel is compiled or loaded
KERNEL_FROM = 4096
_MOST_ERROR = 0.01  # relative, of weights in float32
_BLOCK = 128  # items whose regressions are solved at once: 20 MB with 200 nearest items each


def nearest_weights(matrix: scipy.sparse.csr_matrix, nearest: int, ridge: float) -> scipy.sparse.csr_matrix:
    r"""Return the weights (n_items, n_items), from row to column, of the binary ``matrix`` X (n_users, n_items).

    Those to item j minimize :math:`\|X_j - X_N b\|^2 + \lambda \|b\|^2` with the ``ridge`` :math:`\lambda`, where N are
    the ``nearest`` items: those with the largest :math:`G_{ij} / \sqrt{G_{ii} + \lambda}` in :math:`G = X^\top X`, if
    above 0. With all items in N these are the weights of EASE^R (Steck, 2019). fsSLIM (Ning and Karypis, 2011) chooses
    N by cosines.
    """
    n_items = matrix.shape[1]
    gram = (matrix.T @ matrix).tocsr()
    gram.sort_indices()
    scale = (1 / np.sqrt(gram.diagonal() + ridge)).astype(np.float32)
    if n_items >= KERNEL_FROM:
        from recbole_hyper.kernels.ridge import regressions  # imports numba, so only when it is needed

        counts = [gram.indptr, gram.indices, gram.data]
    else:
        regressions, counts = _regressions, [gram.toarray()]
    # errors grow with the largest eigenvalue over the ridge
    worst = float(gram.data.max(initial=0.0)) * nearest / ridge
    dtype = torch.float64 if worst * torch.finfo(torch.float32).eps > _MOST_ERROR else torch.float32
    near, weights = [], []
    for first in range(0, n_items, _BLOCK):
        stop = min(n_items, first + _BLOCK)
        items, *found = regressions(*counts, scale, first, stop, min(nearest, n_items), ridge)
        matrices, together = (torch.from_numpy(part).to(dtype) for part in found)
        near.append(items)
        weights.append(torch.cholesky_solve(together[:, :, None], torch.linalg.cholesky(matrices))[:, :, 0].numpy())
    rows, values = np.concatenate(near), np.concatenate(weights).astype(np.float32)
    columns = np.broadcast_to(np.arange(n_items)[:, None], rows.shape)
    return scipy.sparse.csr_matrix((values[rows > 0], (rows[rows > 0], columns[rows > 0])), shape=gram.shape)


def _regressions(
    gram: npt.NDArray[np.float32], scale: npt.NDArray[np.float32], first: int, stop: int, size: int, ridge: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Plain twin of ``kernels.ridge.regressions``, of the Gram matrix as an array; items come in another order."""
    items, last = np.arange(first, stop), len(gram) - 1
    nearness = gram[items] * scale
    nearness[items - first, items] = 0
    # bits of numbers from 0 on are ordered as these, ties follow the item, and nothing occurs with the padding item
    keys = (nearness.view(np.int32).astype(np.int64) << 32) + np.arange(last, -1, -1)
    largest = np.partition(keys, -size, axis=1)[:, -size:]
    near = np.where(largest >> 32 > 0, last - (largest & 0xFFFFFFFF), 0)
    # numbers of one row after another, in 32 bits, are found in a third of the time of pairs of indices
    rows = torch.from_numpy(near.astype(np.int32))
    places = rows[:, :, None] * len(gram) + rows[:, None]
    matrices = torch.from_numpy(gram).flatten().index_select(0, places.flatten()).numpy().reshape(places.shape)
    matrices[:, np.arange(size), np.arange(size)] += ridge
    return near, matrices, gram[items[:, None], near]
