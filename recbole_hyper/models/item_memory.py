"""An item-to-item memory, mixed into the probabilities of a network: what others chose near the newest items."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.data.loader import gather, history_matrix
from recbole_hyper.types import Cases, Prefixes

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

#: shares of the memory and decays that are tried
SHARES = tuple(round(0.1 * step, 1) for step in range(10))
DECAYS = (0.4, 0.6, 0.8, 0.9, 1.0)
# exponent of an item's count in its weight; flat from 0.4 to 0.6 on the validation of Amazon Beauty
_EVIDENCE = 0.5
# ranks beyond this one count nothing where shares are compared
_DEPTH = 10


class Mixture(NamedTuple):
    """How a memory and a network are mixed."""

    share: float  # of the memory in the probability, in [0, 1)
    decay: float  # weight of an item relative to the one after it in the history


class ItemMemory:
    r"""One distribution over items for each of the newest items of a history, and their mean.

    The memory of item h is the share C[h, j] / n[h] of its counts (``data.pair_counts``). After a history whose newest
    items are h_0, h_1, ..., newest first,

        m(j) = sum_k a_k C[h_k, j] / n[h_k],   a_k proportional to decay^k n[h_k]^0.5

    over the items that were counted. ``counts`` (n_items, n_items) are those of the strongest neighbours of each item,
    ``totals`` (n_items,) the sums of all; the ``window`` newest items of a history are used.
    """

    def __init__(self, counts: scipy.sparse.csr_matrix, totals: Float32, *, window: int) -> None:
        self.counts, self.totals, self.window = counts, totals, window

    def newest(self, cases: Prefixes) -> Int64:
        """Return the newest items of the histories (n, window), newest first, padded with 0."""
        starts = np.maximum(cases.ends - self.window, cases.starts)
        return newest_first(gather(cases.store, cases.rows, starts, cases.ends, self.window), cases.ends - starts)

    def after(self, newest: Int64, decay: float) -> scipy.sparse.csr_matrix:
        """Return m (n, n_items) after the ``newest`` items (n, k), newest first; rows without a counted item are 0."""
        totals = self.totals[newest]
        known = (newest > 0) & (totals > 0)
        weights = np.where(known, decay ** np.arange(newest.shape[1]) * np.where(known, totals, 1.0) ** _EVIDENCE, 0.0)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        weights /= np.where(known, totals, 1.0)
        n, width = newest.shape
        entries = weights.astype(np.float32).ravel(), newest.ravel(), np.arange(0, n * width + 1, width)
        counts = scipy.sparse.csr_matrix(entries, shape=(n, len(self.totals))) @ self.counts
        counts.eliminate_zeros()
        counts.sort_indices()
        return counts


def newest_first(items: Int64, lengths: Int64) -> Int64:
    """Return right-padded ``items`` (n, L) of ``lengths`` (n,) in the opposite order, padded at the right again."""
    places = lengths[:, None] - 1 - np.arange(items.shape[1])
    return np.take_along_axis(items, np.maximum(places, 0), axis=1) * (places >= 0)


def log_mixture(logits: Tensor, memory: scipy.sparse.csr_matrix, share: float) -> Tensor:
    """Return log((1 - share) p_network + share m) of all items (n, n_items), -inf for padding.

    ``logits`` (n, n_items) are overwritten. Where a row of the ``memory`` m is empty, the network alone counts.
    """
    logits[:, 0] = -math.inf
    scores = logits.log_softmax(dim=1)
    counts = np.diff(memory.indptr)
    if not share or not len(memory.data):
        return scores
    seen = torch.from_numpy(counts > 0).to(scores.device)
    scores += (seen * math.log1p(-share)).unsqueeze(1)
    rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(scores.device)
    columns = torch.from_numpy(memory.indices.astype(np.int64)).to(scores.device)
    added = torch.from_numpy(memory.data).to(scores).log() + math.log(share)
    scores[rows, columns] = torch.logaddexp(scores[rows, columns], added)
    return scores


class MixtureSearch:
    """NDCG@10 of every :data:`SHARES` and :data:`DECAYS`, over cases whose logits come block by block.

    The ten best items of a mixture are among the ten best of the network and the items of the memory: it compares
    these.
    """

    def __init__(self, memory: ItemMemory, *, exclude_seen: bool) -> None:
        self.memory, self.exclude_seen = memory, exclude_seen
        self.gains = np.zeros((len(DECAYS), len(SHARES)))
        self.cases = 0

    def add(self, logits: Tensor, cases: Cases) -> None:
        """Add cases with the network's ``logits`` (n, n_items), which are overwritten."""
        logits[:, 0] = -math.inf
        shares = logits.softmax(dim=1)
        n, rows = len(cases), torch.arange(len(cases), device=logits.device)
        targets = torch.from_numpy(cases.targets.astype(np.int64)).to(logits.device)
        of_target = shares[rows, targets].cpu().numpy()
        if self.exclude_seen:
            seen = history_matrix(cases).tocoo()
            shares[torch.from_numpy(seen.row).long(), torch.from_numpy(seen.col).long()] = -1.0
            hidden = (shares[rows, targets] < 0).cpu().numpy()
        else:
            hidden = np.zeros(n, dtype=bool)
        best = shares.topk(min(_DEPTH, shares.shape[1] - 1), dim=1)
        network = best.values.cpu().numpy(), best.indices.cpu().numpy()
        newest = self.memory.newest(cases)
        for number, decay in enumerate(DECAYS):
            memory = self.memory.after(newest, decay)
            owners = np.repeat(np.arange(n), np.diff(memory.indptr))
            theirs = shares[torch.from_numpy(owners), torch.from_numpy(memory.indices).long()].cpu().numpy()
            remembered = theirs, memory.data, owners
            ranks = _ranks(network, remembered, memory, (of_target, targets.cpu().numpy()))
            gains = np.where((ranks <= _DEPTH) & ~hidden, 1 / np.log2(ranks + 1.0), 0.0)
            self.gains[number] += gains.sum(axis=1)
        self.cases += n

    def best(self) -> tuple[Mixture, float, float]:
        """Return the best mixture, its NDCG@10, and that of the network alone; the smallest share of equal ones."""
        share, decay = max(
            itertools.product(range(len(SHARES)), range(len(DECAYS))),
            key=lambda pair: (self.gains[pair[1], pair[0]], -pair[0]),
        )
        n = max(1, self.cases)
        mixture = Mixture(SHARES[share], DECAYS[decay])
        return mixture, self.gains[decay, share] / n, self.gains[decay, 0] / n


def _ranks(
    network: tuple[Float32, Int64],
    remembered: tuple[Float32, Float32, npt.NDArray[np.integer]],
    memory: scipy.sparse.csr_matrix,
    target: tuple[Float32, Int64],
) -> npt.NDArray[np.int64]:
    """Return the rank of each target in each of the mixtures, (shares, n); above ``_DEPTH`` a lower bound.

    ``network``: its best probabilities (n, k) and their items. ``remembered``, for each entry of the memory: the
    network's probability, below 0 for an item that is left out, the memory's, and the row. ``target``: the network's
    probability and the items (n,).
    """
    values, items = network
    theirs, own, owners = remembered
    of_network, targets = target
    of_memory = _entries(memory, targets[:, None])[:, 0]
    empty = np.diff(memory.indptr) == 0
    # an item that the memory has too is counted there, and the target is not above itself
    values = np.where((_entries(memory, items) > 0) | (items == targets[:, None]), -1.0, values)
    candidate = (theirs >= 0) & (memory.indices != targets[owners])
    ranks = []
    for share in SHARES:
        weight = np.where(empty, 1.0, 1.0 - share)
        threshold = weight * of_network + share * of_memory
        above = (weight[:, None] * values > threshold[:, None]).sum(axis=1)
        mixed = (1.0 - share) * theirs + share * own
        higher = candidate & (mixed > threshold[owners])
        ranks.append(1 + above + np.bincount(owners[higher], minlength=len(targets)))
    return np.stack(ranks)


def _entries(matrix: scipy.sparse.csr_matrix, columns: Int64) -> Float32:
    """Return the entries (n, k) of a matrix with sorted columns at ``columns`` (n, k) of each row."""
    n, width = matrix.shape
    keys = np.repeat(np.arange(n), np.diff(matrix.indptr)) * width + matrix.indices
    wanted = np.arange(n)[:, None] * width + columns
    if not len(keys):
        return np.zeros(wanted.shape, dtype=np.float32)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, matrix.data[places], np.float32(0))
