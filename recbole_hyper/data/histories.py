"""Histories of a request, their items, and as sparse binary rows for models that fold a history in."""

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.data.sequences import Int64, SequenceStore, binary_matrix, ranges
from recbole_hyper.types import Prefixes


def whole_histories(
    store: SequenceStore, offsets: Int64, items: npt.NDArray, users: Int64, times: npt.NDArray | None = None
) -> Prefixes:
    """Return histories that are in no store: ``items[offsets[i]:offsets[i + 1]]``, oldest first, maybe none.

    They are of ``users`` (n,), 0 for nobody; ``times`` None takes all for equal; ``store`` names items and users.
    """
    then = np.zeros(len(items)) if times is None else times
    own = SequenceStore(offsets, np.asarray(items, dtype=np.int32), then, users, store.user_tokens, store.item_tokens)
    return Prefixes.build(own, np.arange(len(offsets) - 1), np.diff(offsets))


def history_steps(cases: Prefixes) -> tuple[scipy.sparse.csr_matrix, npt.NDArray[np.bool_]]:
    """Return the binary (n, n_items) matrix of what each history adds to the case before, and (n,) True where it does.

    Elsewhere the row is the whole history. A model that is linear in the history needs one addition per case.
    """
    store = cases.store
    goes_on = np.zeros(len(cases), dtype=bool)
    goes_on[1:] = (np.diff(cases.rows) == 0) & (np.diff(cases.starts) == 0) & (np.diff(cases.ends) >= 0)
    begins = cases.starts.copy()
    begins[1:][goes_on[1:]] = cases.ends[:-1][goes_on[1:]]
    lengths = cases.ends - begins
    items = store.items[ranges(store.offsets[cases.rows] + begins, lengths)].astype(np.int64)
    owners = np.repeat(np.arange(len(cases)), lengths)
    _, first = np.unique(np.cumsum(~goes_on)[owners] * store.n_items + items, return_index=True)
    first.sort()
    counts = np.bincount(owners[first], minlength=len(cases))
    entries = np.ones(len(first), dtype=np.float32), items[first], np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_matrix(entries, shape=(len(cases), store.n_items)), goes_on


def history_items(cases: Prefixes) -> tuple[Int64, npt.NDArray[np.int32]]:
    """Return the length of each history, and the items of all of them one after another."""
    store, lengths = cases.store, cases.ends - cases.starts
    return lengths, store.items[ranges(store.offsets[cases.rows] + cases.starts, lengths)]


def history_matrix(cases: Prefixes) -> scipy.sparse.csr_matrix:
    """Return the binary (n, n_items) matrix of the histories."""
    lengths, items = history_items(cases)
    return binary_matrix(items, lengths, cases.store.n_items)


def multiply(matrix: scipy.sparse.csr_matrix, dense: Tensor) -> Tensor:
    """Return the product (n, m) of a sparse (n, n_items) and a dense (n_items, m) matrix, on the latter's device."""
    # above a density of about 0.04, and on a GPU always, the dense product is the faster one
    if dense.device.type != "cpu" or matrix.nnz > 0.04 * matrix.shape[0] * matrix.shape[1]:
        return torch.from_numpy(matrix.toarray()).to(dense) @ dense
    return torch.from_numpy(matrix @ dense.numpy())


def accumulate(values: Tensor, goes_on: npt.NDArray[np.bool_]) -> Tensor:
    """Add to each row of ``values`` (n, m) the row before it where it goes on, in place; returns ``values``."""
    for row in np.flatnonzero(goes_on).tolist():
        values[row] += values[row - 1]
    return values
