"""How often two items are chosen near each other: a sparse matrix of the strongest neighbours of each item."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse

from recbole_hyper.data.sequences import Int64, SequenceStore, ranges

# bytes of a pair while a block of sequences is counted: its key, its order, its weight, and copies of these
_BYTES_OF_A_PAIR = 64
# bytes of an entry of the sparse matrix while two of them are added
_BYTES_OF_AN_ENTRY = 32
_LARGEST_KEY = 1 << 62


def weight_of(distance: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return what two items that many steps apart count: one over the square root of the steps."""
    return np.asarray(distance, dtype=np.float64) ** -0.5


def pair_counts(
    store: SequenceStore, lengths: Int64, *, window: int, neighbours: int, memory_budget: int = 512 << 20
) -> tuple[scipy.sparse.csr_matrix, npt.NDArray[np.float32]]:
    """Count, for each pair of items, the sequences that hold both at most ``window`` steps apart.

    A sequence counts once for a pair, with the weight of the smallest distance (:func:`weight_of`), in both directions.
    Only the first ``lengths`` (U,) interactions of each row are read. Each row keeps its largest ``neighbours``
    entries, equal ones in item order. With less than ``memory_budget`` bytes beside the result the sequences are read
    several times.

    Returns the counts (n_items, n_items), columns sorted, and the sum (n_items,) of each row before the cut.
    """
    n_items = store.n_items
    blocks, totals = [], np.zeros(n_items)
    # an interaction has at most 2 x window neighbours; keys of pairs fit an int64
    entries, pairs = (2 * window * _BYTES_OF_AN_ENTRY) * store.counts(lengths), (window * _BYTES_OF_A_PAIR) * lengths
    for first, stop in _stretches(entries, memory_budget):
        counts = scipy.sparse.csr_matrix((stop - first, n_items))
        for block in _stretches(pairs, memory_budget, max(1, _LARGEST_KEY // n_items**2)):
            counts = counts + _counts_of(store, lengths, slice(*block), window, (first, stop))
        totals[first:stop] = np.asarray(counts.sum(axis=1)).ravel()
        blocks.append(_largest(counts.tocsr(), neighbours))
    return scipy.sparse.vstack(blocks, format="csr", dtype=np.float32), totals.astype(np.float32)


def _stretches(sizes: Int64, budget: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ranges of entries, at least one and at most ``most``, whose sizes together fit the budget."""
    load, first = np.cumsum(sizes), 0
    while first < len(load):
        before = load[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(load, before + budget, side="right")))
        stop = min(stop, len(load), first + (most or len(load)))
        yield first, stop
        first = stop


def _counts_of(
    store: SequenceStore, lengths: Int64, block: slice, window: int, item_range: tuple[int, int]
) -> scipy.sparse.csr_matrix:
    """Return the counts of some sequences for the rows ``item_range`` of the matrix."""
    sizes = lengths[block]
    items = store.items[ranges(store.offsets[:-1][block], sizes)].astype(np.int64)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    first, stop = item_range
    n_items = store.n_items
    keys, weights = [], []
    for distance in range(1, min(window, int(sizes.max(initial=0)) - 1) + 1):
        low, high = np.sort((items[:-distance], items[distance:]), axis=0)
        wanted = (owners[:-distance] == owners[distance:]) & (low != high)
        wanted &= ((low >= first) & (low < stop)) | ((high >= first) & (high < stop))
        keys.append((owners[:-distance][wanted] * n_items + low[wanted]) * n_items + high[wanted])
        weights.append(np.full(len(keys[-1]), weight_of(distance)))
    if not keys:
        return scipy.sparse.csr_matrix((stop - first, n_items))
    # of equal keys the first is the nearest
    pairs, places = np.unique(np.concatenate(keys), return_index=True)
    values = np.concatenate(weights)[places]
    low, high = pairs // n_items % n_items, pairs % n_items
    rows, columns = np.concatenate((low, high)), np.concatenate((high, low))
    own = (rows >= first) & (rows < stop)
    entries = np.concatenate((values, values))[own], (rows[own] - first, columns[own])
    return scipy.sparse.csr_matrix(entries, shape=(stop - first, n_items))


def _largest(counts: scipy.sparse.csr_matrix, neighbours: int) -> scipy.sparse.csr_matrix:
    """Return the matrix with the largest ``neighbours`` entries of each row."""
    counts.sort_indices()
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((counts.indices, -counts.data, rows))
    place = np.arange(len(order)) - counts.indptr[rows]  # rows are in order, before and after
    keep = np.sort(order[place < neighbours])
    entries = counts.data[keep].astype(np.float32), (rows[keep], counts.indices[keep])
    return scipy.sparse.csr_matrix(entries, shape=counts.shape)
