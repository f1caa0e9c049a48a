"""Whole histories, as a model that ranks reads them: their items, and matrices of users or cases by items."""

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore, binary_matrix, ranges
from recbole_hyper.types import Int64, Prefixes


def whole_histories(
    store: SequenceStore, offsets: Int64, items: npt.NDArray, users: Int64, times: npt.NDArray | None = None
) -> Prefixes:
    """Return new histories ``items[offsets[i]:offsets[i + 1]]``, oldest first; a history may be empty.

    ``users`` (n,) are their users, 0 for an unknown one; ``store`` names users and items; all ``times`` are 0 if None.
    """
    times = np.zeros(len(items)) if times is None else times
    items = np.asarray(items, dtype=np.int32)
    histories = SequenceStore(offsets, items, times, users, store.user_tokens, store.item_tokens)
    return Prefixes.build(histories, np.arange(len(offsets) - 1), np.diff(offsets))


def history_steps(cases: Prefixes) -> tuple[scipy.sparse.csr_matrix, npt.NDArray[np.bool_]]:
    """Return what each history adds to the one before, as a binary (n, n_items) matrix, and (n,) whether it extends it.

    If it does not, the row is the whole history. So a model that is linear in the history needs one addition per case.
    """
    store = cases.store
    extends = np.zeros(len(cases), dtype=bool)
    extends[1:] = (np.diff(cases.rows) == 0) & (np.diff(cases.starts) == 0) & (np.diff(cases.ends) >= 0)
    starts = cases.starts.copy()
    starts[1:][extends[1:]] = cases.ends[:-1][extends[1:]]
    lengths = cases.ends - starts
    items = store.items[ranges(store.offsets[cases.rows] + starts, lengths)].astype(np.int64)
    owners = np.repeat(np.arange(len(cases)), lengths)
    _, first = np.unique(np.cumsum(~extends)[owners] * store.n_items + items, return_index=True)
    first.sort()
    counts = np.bincount(owners[first], minlength=len(cases))
    entries = np.ones(len(first), dtype=np.float32), items[first], np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_matrix(entries, shape=(len(cases), store.n_items)), extends


def history_items(cases: Prefixes) -> tuple[Int64, npt.NDArray[np.int32]]:
    """Return the length of each history, and the items of all histories, concatenated."""
    store, lengths = cases.store, cases.ends - cases.starts
    return lengths, store.items[ranges(store.offsets[cases.rows] + cases.starts, lengths)]


def history_matrix(cases: Prefixes) -> scipy.sparse.csr_matrix:
    """Return the binary (n, n_items) matrix of the histories."""
    lengths, items = history_items(cases)
    return binary_matrix(items, lengths, cases.store.n_items)


def multiply(matrix: scipy.sparse.csr_matrix, dense: Tensor) -> Tensor:
    """Return a sparse (n, n_items) times a dense (n_items, m) matrix, on the device of the dense one."""
    # the dense product is faster above a density of about 0.04, and always on a GPU
    if dense.device.type != "cpu" or matrix.nnz > 0.04 * matrix.shape[0] * matrix.shape[1]:
        return torch.from_numpy(matrix.toarray()).to(dense) @ dense
    return torch.from_numpy(matrix @ dense.numpy())


def accumulate(values: Tensor, extends: npt.NDArray[np.bool_]) -> Tensor:
    """Add the previous row to each row of ``values`` (n, m) that extends it, in place; returns ``values``."""
    for row in np.flatnonzero(extends).tolist():
        values[row] += values[row - 1]
    return values
