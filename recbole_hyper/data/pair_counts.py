"""Counts how often two items are chosen near each other, and keeps the strongest neighbours of each item."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse

from recbole_hyper.data.sequences import Int64, SequenceStore, ranges

# bytes per pair while a block of sequences is counted: key, order, weight, and copies of these
_BYTES_OF_A_PAIR = 64
# bytes per entry of a sparse matrix while two matrices are added
_BYTES_OF_AN_ENTRY = 32
_BITS_OF_A_KEY = 62

#: which items of a pair count for an item: both, those after it, or those before it
Side = Literal["both", "after", "before"]


def pair_counts(
    store: SequenceStore,
    lengths: Int64,
    *,
    window: int,
    neighbours: int,
    side: Side = "both",
    memory_budget: int = 512 << 20,
) -> tuple[scipy.sparse.csr_matrix, npt.NDArray[np.float32]]:
    """Count, for each pair of items, the sequences in which they are at most ``window`` steps apart.

    A sequence counts once for a pair, in both directions, with the weight of the smallest distance: one over the square
    root of the steps. With another ``side``, row i counts only the items after, or before, item i. Only the first
    ``lengths`` (U,) interactions of each row count. Each row keeps its ``neighbours`` largest entries, ties in
    item order. If ``memory_budget`` bytes are not enough for all counts at once, the sequences are read several times.

    Returns the counts (n_items, n_items), columns sorted, and the sum (n_items,) of each row before the cut.
    """
    n_items = store.n_items
    blocks, totals = [], np.zeros(n_items)
    of_item, of_distance = _bits(n_items, window)
    # an interaction has at most 2 x window neighbours; keys of pairs must fit int64
    entries, pairs = (2 * window * _BYTES_OF_AN_ENTRY) * store.counts(lengths), (window * _BYTES_OF_A_PAIR) * lengths
    for first, stop in _stretches(entries, memory_budget):
        counts = scipy.sparse.csr_matrix((stop - first, n_items))
        for block in _stretches(pairs, memory_budget, 1 << max(0, _BITS_OF_A_KEY - 2 * of_item - of_distance)):
            counts = counts + _counts_of(store, lengths, slice(*block), window, (first, stop), side)
        totals[first:stop] = np.asarray(counts.sum(axis=1)).ravel()
        blocks.append(strongest(counts.tocsr(), neighbours))
    return scipy.sparse.vstack(blocks, format="csr", dtype=np.float32), totals.astype(np.float32)


def _bits(n_items: int, window: int) -> tuple[int, int]:
    """Return how many bits an item and a distance less one take in the key of a pair."""
    return (n_items - 1).bit_length(), (window - 1).bit_length()


def _stretches(sizes: Int64, budget: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ranges of at least one and at most ``most`` entries whose total size fits the budget."""
    load, first = np.cumsum(sizes), 0
    while first < len(load):
        before = load[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(load, before + budget, side="right")))
        stop = min(stop, len(load), first + (most or len(load)))
        yield first, stop
        first = stop


def _counts_of(
    store: SequenceStore, lengths: Int64, block: slice, window: int, item_range: tuple[int, int], side: Side
) -> scipy.sparse.csr_matrix:
    """Return the counts in a block of sequences for the rows ``item_range`` of the matrix."""
    sizes = lengths[block]
    items = store.items[ranges(store.offsets[:-1][block], sizes)].astype(np.int64)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    first, stop = item_range
    n_items = store.n_items
    of_item, of_distance = _bits(n_items, window)
    keys, reach = [], min(window, int(sizes.max(initial=0)) - 1)
    for distance in range(1, reach + 1):
        one, other = items[:-distance], items[distance:]
        if side == "both":
            one, other = np.minimum(one, other), np.maximum(one, other)
        elif side == "before":
            one, other = other, one
        wanted = (one >= first) & (one < stop)
        if side == "both":
            wanted |= (other >= first) & (other < stop)
        wanted &= (owners[:-distance] == owners[distance:]) & (one != other)
        pairs = (((owners[:-distance][wanted] << of_item) | one[wanted]) << of_item) | other[wanted]
        keys.append((pairs << of_distance) | (distance - 1))
    if not keys:
        return scipy.sparse.csr_matrix((stop - first, n_items))
    # a plain sort is many times faster than one that returns places, so a key ends with its distance
    sorted_keys = np.sort(np.concatenate(keys))
    pairs = sorted_keys >> of_distance
    nearest = np.diff(pairs, prepend=-1) > 0
    pairs, steps = pairs[nearest], (sorted_keys[nearest] & ((1 << of_distance) - 1)) + 1
    values = (np.arange(1.0, reach + 1) ** -0.5)[steps - 1]
    rows, columns = (pairs >> of_item) & ((1 << of_item) - 1), pairs & ((1 << of_item) - 1)
    if side == "both":
        rows, columns = np.concatenate((rows, columns)), np.concatenate((columns, rows))
        values = np.concatenate((values, values))
    own = (rows >= first) & (rows < stop)
    entries = values[own], (rows[own] - first, columns[own])
    return scipy.sparse.csr_matrix(entries, shape=(stop - first, n_items))


def strongest(counts: scipy.sparse.csr_matrix, neighbours: int) -> scipy.sparse.csr_matrix:
    """Return the matrix with the ``neighbours`` entries of each row that are largest in size, ties in column order."""
    counts.sort_indices()
    sizes = np.diff(counts.indptr)
    rows = np.repeat(np.arange(counts.shape[0]), sizes)
    kept = sizes[rows] <= neighbours
    cut = np.flatnonzero(~kept)  # of a huge catalogue few rows are longer, and only these are sorted
    order = cut[np.lexsort((-np.abs(counts.data[cut]), rows[cut]))]  # stable: columns stay in order
    kept[order[cut - counts.indptr[rows[cut]] < neighbours]] = True
    entries = counts.data[kept].astype(np.float32), (rows[kept], counts.indices[kept])
    return scipy.sparse.csr_matrix(entries, shape=counts.shape)
