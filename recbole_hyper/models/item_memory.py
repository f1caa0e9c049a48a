"""An item-to-item memory: what other users chose near the newest items, mixed into a network's probabilities."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor, nn

from recbole_hyper.batches.loader import gather, history_items
from recbole_hyper.devices import free_memory
from recbole_hyper.evaluation.ranking import number_true
from recbole_hyper.models.ease_votes import VOTES, EaseTable, EaseVotes, log_probabilities, with_votes
from recbole_hyper.types import Cases, Prefixes

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

#: shares of the memory and decays to choose from
SHARES = tuple(round(0.1 * step, 1) for step in range(10))
DECAYS = (0.4, 0.6, 0.8, 0.9, 1.0)
# exponent of an item's count in its weight; 0.4 to 0.6 were equally good on the validation of Amazon Beauty
_EVIDENCE = 0.5
# to look up a few counts: counts that are copied at once, and places of items in a table
_ENTRIES, _PLACES = 1 << 22, 1 << 25
# shares and decays are compared by NDCG at this depth
_DEPTH = 10


class Mixture(NamedTuple):
    """How much the memory counts, and how fast it forgets."""

    share: float  # of the memory in the probability, in [0, 1)
    decay: float  # weight of an item relative to the next newer one


class ItemMemory:
    r"""A distribution over items for each of the newest items of a history, and their weighted mean.

    Item h remembers item j with probability C[h, j] / n[h], from the counts of ``data.pair_counts``. After a history
    with the newest items h_0, h_1, ..., newest first, the memory is

        m(j) = sum_k a_k C[h_k, j] / n[h_k],   a_k proportional to decay^k n[h_k]^0.5

    over the h_k with counts. ``counts`` (n_items, n_items) has the strongest neighbours of each item, ``totals``
    (n_items,) the sums over all neighbours. The memory uses the ``window`` newest items of a history.
    """

    def __init__(self, counts: scipy.sparse.csr_matrix, totals: Float32, *, window: int) -> None:
        self.counts, self.totals, self.window = counts, totals, window
        copied = window * int(np.diff(counts.indptr).max(initial=1))
        self._at_once = max(1, min(_ENTRIES // copied, _PLACES // counts.shape[1]))

    def newest(self, cases: Prefixes) -> Int64:
        """Return the newest items of the histories (n, window), newest first, padded with 0."""
        return newest_items(cases, self.window)

    def after(self, newest: Int64, decay: float) -> scipy.sparse.csr_matrix:
        """Return m (n, n_items) after the ``newest`` items (n, k), newest first; a row without counts is empty."""
        n, width = newest.shape
        places = np.arange(0, n * width + 1, width)
        weights = self._weights(newest, decay).ravel(), newest.ravel(), places
        found = scipy.sparse.csr_matrix(weights, shape=(n, len(self.totals))) @ self.counts
        found.eliminate_zeros()
        return found

    def votes(self, newest: Int64, items: Int64, decays: Sequence[float]) -> list[Float32]:
        """Return m (n, k) of ``items`` (n, k) alone after the ``newest`` items (n, L), for each of the ``decays``."""
        blocks = [
            self._votes(newest[first : first + self._at_once], items[first : first + self._at_once], decays)
            for first in range(0, max(1, len(newest)), self._at_once)
        ]
        return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]

    def _votes(self, newest: Int64, items: Int64, decays: Sequence[float]) -> list[Float32]:
        rows, ages = np.nonzero(newest)
        counts = entries(self.counts[newest[rows, ages]], items, rows)
        starts = np.searchsorted(rows, np.arange(len(newest) + 1))
        found = []
        for decay in decays:
            weights = self._weights(newest, decay)[rows, ages], np.arange(len(rows)), starts
            found.append(scipy.sparse.csr_matrix(weights, shape=(len(newest), len(rows))) @ counts)
        return found

    def _weights(self, newest: Int64, decay: float) -> Float32:
        """Return a / n (n, k) of the ``newest`` items (n, k), newest first."""
        totals = self.totals[newest]
        known = (newest > 0) & (totals > 0)
        weights = np.where(known, decay ** np.arange(newest.shape[1]) * np.where(known, totals, 1.0) ** _EVIDENCE, 0.0)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return (weights / np.where(known, totals, 1.0)).astype(np.float32)


def newest_items(cases: Prefixes, window: int) -> Int64:
    """Return the newest items of the histories (n, window), newest first, padded with 0."""
    starts = np.maximum(cases.ends - window, cases.starts)
    return newest_first(gather(cases.store, cases.rows, starts, cases.ends, window), cases.ends - starts)


def newest_first(items: Int64, lengths: Int64) -> Int64:
    """Return right-padded ``items`` (n, L) of ``lengths`` (n,) in the opposite order, padded at the right again."""
    places = lengths[:, None] - 1 - np.arange(items.shape[1])
    return np.take_along_axis(items, np.maximum(places, 0), axis=1) * (places >= 0)


def log_mixture(network: Tensor, memory: scipy.sparse.csr_matrix, share: float) -> Tensor:
    """Return log((1 - share) p_network + share m) of all items (n, n_items), -inf for padding.

    ``network`` (n, n_items) is log p_network. If a row of the ``memory`` m is empty, its result is the network's.
    """
    if not share or not len(memory.data):
        return network
    seen = torch.from_numpy(np.diff(memory.indptr) > 0).to(network.device)
    scores = network + (seen * math.log1p(-share)).unsqueeze(1)
    places = torch.from_numpy(_places(memory)).to(scores.device)
    added = torch.from_numpy(memory.data).to(scores).log() + math.log(share)
    all_scores = scores.view(-1)  # on a CPU, quicker than pairs of row and column
    all_scores.scatter_(0, places, torch.logaddexp(all_scores.index_select(0, places), added))
    return scores


def _places(matrix: scipy.sparse.csr_matrix, owners: Int64 | None = None) -> Int64:
    """Return the place of each entry in a flattened matrix: those of row i are in row ``owners[i]``, or in i itself."""
    n, width = matrix.shape
    return np.repeat((np.arange(n) if owners is None else owners) * width, np.diff(matrix.indptr)) + matrix.indices


class VoteTable(nn.Module):
    """An :class:`ItemMemory` for a device and an exported graph: all tensors are constants.

    ``neighbours`` (n_items, m) are the neighbours of each item, padded with 0, and ``rates`` (n_items, m) their C / n.
    ``weights`` (n_items,) are n^0.5, 0 for items without counts.
    """

    neighbours: Tensor
    rates: Tensor
    weights: Tensor

    def __init__(self, memory: ItemMemory) -> None:
        super().__init__()
        self.window = memory.window
        counts, sizes = memory.counts, np.diff(memory.counts.indptr)
        filled = np.arange(max(1, int(sizes.max(initial=0)))) < sizes[:, None]
        neighbours, rates = np.zeros(filled.shape, np.int32), np.zeros(filled.shape, np.float32)
        neighbours[filled], rates[filled] = counts.indices, counts.data / np.repeat(memory.totals, sizes)
        self.register_buffer("neighbours", torch.from_numpy(neighbours))
        self.register_buffer("rates", torch.from_numpy(rates))
        self.register_buffer("weights", torch.from_numpy(memory.totals**_EVIDENCE))

    @staticmethod
    def fits(memories: Iterable[ItemMemory], device: torch.device) -> bool:
        """Return whether the tables of these memories take at most a quarter of the free memory of a device."""
        sizes = [np.diff(memory.counts.indptr) for memory in memories]
        entries = sum(len(size) * int(size.max(initial=1)) for size in sizes)
        return device.type != "cpu" and 4 * 8 * entries <= free_memory(device)

    def after(self, newest: Tensor, decays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the memory m (n, n_items) after ``newest`` (n, k) with weights ``decays`` (k,), newest first.

        And the sum (n, 1) of the items' weights, 0 where m is empty, and the items (n, k m) of m, which may repeat.
        """
        weights = self.weights[newest] * decays
        totals = weights.sum(dim=1, keepdim=True)
        votes = (weights / totals.clamp(min=torch.finfo(torch.float32).tiny))[:, :, None] * self.rates[newest]
        neighbours = self.neighbours[newest].flatten(1).long()
        blank = votes.new_zeros(newest.shape[0], len(self.weights))  # a graph is for any number of rows
        return blank.scatter_add(1, neighbours, votes.flatten(1)), totals, neighbours


class MixtureTable(nn.Module):
    """:func:`log_mixture` for a device and an exported graph, whose steps do not depend on values.

    ``rerank`` takes the scores, those of the network and the newest items (n, L), newest first, and returns others.
    """

    decays: Tensor

    def __init__(
        self,
        table: VoteTable,
        mixture: Mixture,
        *,
        ease: EaseVotes | None = None,
        length: int | None = None,
        rerank: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.table, self.share, self.length, self.rerank = table, mixture.share, length, rerank
        self.votes = VOTES[0] if ease is None else ease.chosen
        # without a share it is no part of the mixture
        self.ease = EaseTable(ease) if ease is not None and self.votes.share else None
        self.register_buffer("decays", mixture.decay ** torch.arange(table.window))

    def use(self, mixture: Mixture) -> MixtureTable:
        """Change the mixture and return this table."""
        self.share = mixture.share
        self.decays = mixture.decay ** torch.arange(len(self.decays), device=self.decays.device)
        return self

    def forward(self, logits: Tensor, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores (B, n_items) for ``logits`` (B, n_items) after right-padded ``items`` (B, L)."""
        length = items.shape[1] if self.length is None else self.length
        newest = _newest(items, lengths, max(length, len(self.decays)))
        network = log_probabilities(logits)
        mixed = network if self.ease is None else with_votes(network, self.ease(newest, self.votes.decay), self.votes)
        mixed = self.mixed(mixed, newest[:, : len(self.decays)])
        return mixed if self.rerank is None else self.rerank(mixed, network, newest)

    def mixed(self, scores: Tensor, newest: Tensor) -> Tensor:
        """Return the scores for those of the network (n, n_items) after ``newest`` (n, window), newest first."""
        if not self.share:
            return scores
        whole, totals, neighbours = self.table.after(newest, self.decays)
        memory = whole.gather(1, neighbours)
        mixed = ((1 - self.share) * scores.gather(1, neighbours).exp() + self.share * memory).log()
        scores = scores + (totals > 0) * math.log1p(-self.share)
        return scores.scatter(1, neighbours, torch.where(memory > 0, mixed, scores.gather(1, neighbours)))


def _newest(items: Tensor, lengths: Tensor, window: int) -> Tensor:
    """Return the newest of right-padded ``items`` (B, L) of ``lengths`` (B,): (B, window), newest first."""
    places = lengths[:, None] - 1 - torch.arange(window, device=items.device)
    return items.gather(1, places.clamp(min=0)).masked_fill(places < 0, 0)


def sum_of_gains(ranks: Tensor, counted: Tensor) -> Tensor:
    """Return the sum of NDCG at the search's depth for the ``ranks`` (n,) of targets, over the ``counted`` ones."""
    return torch.where((ranks <= _DEPTH) & counted, 1 / torch.log2(ranks + 1.0), 0.0).double().sum()


class RankedCases:
    """Cases whose targets are ranked by one dense matrix of probabilities (n, n_items) after another."""

    def __init__(self, cases: Cases, like: Tensor, *, exclude_seen: bool) -> None:
        self.targets = torch.from_numpy(cases.targets.astype(np.int64)).to(like.device)[:, None]
        self.hidden = torch.zeros_like(like, dtype=torch.bool)
        if exclude_seen:
            lengths, seen = history_items(cases)
            rows = np.repeat(np.arange(len(cases)), lengths)
            places = torch.from_numpy(np.stack((rows, seen.astype(np.int64)))).to(like.device)
            self.hidden[places[0], places[1]] = True
        self.shown = ~self.hidden.gather(1, self.targets)[:, 0]

    def __getitem__(self, rows: Tensor) -> RankedCases:
        part = copy.copy(self)
        part.targets, part.hidden, part.shown = self.targets[rows], self.hidden[rows], self.shown[rows]
        return part

    def within_reach(self, first: Tensor, *others: Tensor) -> Tensor:
        """Return the cases (m,) in which the target may be among the best of a mixture of these parts (n, n_items).

        In the others enough items are before it in the first part, and not behind it in any other.
        """
        ahead = first > first.gather(1, self.targets)
        for part in others:
            ahead &= part >= part.gather(1, self.targets)
        return (number_true(ahead) < _DEPTH).nonzero()[:, 0]

    def gain(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the sum of NDCG at the search's depth over the cases, for ``scores`` (n, n_items).

        ``target`` (n, 1) are those of the targets, and no hidden item scores more.
        """
        return sum_of_gains(1 + number_true(scores > target), self.shown)


class MixtureSearch:
    """NDCG@10 of each pair of :data:`SHARES` and :data:`DECAYS`, over cases whose logits come block by block.

    The ten best items of a mixture are among the network's ten best and the memory's items, so only these are compared.
    """

    def __init__(self, memory: ItemMemory, *, exclude_seen: bool, table: VoteTable | None = None) -> None:
        self.memory, self.exclude_seen, self.table = memory, exclude_seen, table
        self._sums: Tensor | None = None  # of the gains of all cases, on a device
        self.gains = np.zeros((len(DECAYS), len(SHARES)))
        self.cases = 0

    def add(self, logits: Tensor, cases: Cases) -> None:
        """Add cases with the network's ``logits`` (n, n_items), which this overwrites."""
        self.cases += len(cases)
        logits[:, 0] = -math.inf
        if self.table is not None:
            self._add_on_device(self.table, logits.softmax(dim=1), cases)
            return
        ranked, newest = RankedCases(cases, logits, exclude_seen=self.exclude_seen), self.memory.newest(cases)
        # a target that no item remembers, behind so many items of the network, is behind them in every mixture
        few = number_true((logits > logits.gather(1, ranked.targets)) & ~ranked.hidden) < _DEPTH
        remembered = torch.from_numpy(self.memory.votes(newest, ranked.targets.cpu().numpy(), (1.0,))[0][:, 0] > 0)
        near = (ranked.shown & (few | remembered.to(logits.device))).nonzero()[:, 0]
        ranked, network, rows = ranked[near], logits[near].softmax(dim=1), near.cpu().numpy()
        of_target = network.gather(1, ranked.targets)
        network.masked_fill_(ranked.hidden, -1.0)
        values, items = (part.cpu().numpy() for part in network.topk(min(_DEPTH, network.shape[1] - 1), dim=1))
        probabilities, newest, targets = network.cpu().numpy(), newest[rows], ranked.targets.cpu().numpy()
        votes = self.memory.votes(newest, np.column_stack((items, targets)), DECAYS)
        # the last column, of the target, is not above itself
        values = np.column_stack((np.where(items == targets, -1.0, values), of_target.cpu().numpy()))
        starts = np.zeros(0, dtype=np.int32)
        for number, decay in enumerate(DECAYS):
            memory = self.memory.after(newest, decay)
            # the entries are the same for each decay, unless a weight becomes 0
            if not np.array_equal(starts, memory.indptr):
                starts, owners = memory.indptr, np.repeat(np.arange(len(rows)), np.diff(memory.indptr))
                network_values = probabilities.take(_places(memory))
            ranks = _ranks((memory, owners, network_values), targets[:, 0], values, votes[number])
            self.gains[number] += np.where(ranks <= _DEPTH, 1 / np.log2(ranks + 1.0), 0.0).sum(axis=1)

    def _add_on_device(self, table: VoteTable, network: Tensor, cases: Cases) -> None:
        """Add cases with the probabilities of the ``network``, by counting what is above the target in each mixture."""
        device = network.device
        ranked = RankedCases(cases, network, exclude_seen=self.exclude_seen)
        newest = torch.from_numpy(self.memory.newest(cases)).to(device)
        ages = torch.arange(newest.shape[1], device=device)
        of_target = network.gather(1, ranked.targets)
        network.masked_fill_(ranked.hidden, -torch.inf)
        gains = []
        for decay in DECAYS:
            memory, _, _ = table.after(newest, decay**ages)
            memory_of_target = memory.gather(1, ranked.targets)
            for share in SHARES:
                # the order of (1 - share) network + share memory, also where the memory is empty
                odds = share / (1.0 - share)
                mixed = torch.add(network, memory, alpha=odds)
                gains.append(ranked.gain(mixed, torch.add(of_target, memory_of_target, alpha=odds)))
        found = torch.stack(gains).view(len(DECAYS), len(SHARES))
        self._sums = found if self._sums is None else self._sums + found

    def best(self) -> tuple[Mixture, float, float]:
        """Return the best mixture, its NDCG@10 and the network's; of equally good mixtures the smallest share."""
        if self._sums is not None:
            self.gains = self._sums.cpu().numpy()
        share, decay = max(
            itertools.product(range(len(SHARES)), range(len(DECAYS))),
            key=lambda pair: (self.gains[pair[1], pair[0]], -pair[0]),
        )
        n = max(1, self.cases)
        mixture = Mixture(SHARES[share], DECAYS[decay])
        return mixture, self.gains[decay, share] / n, self.gains[decay, 0] / n


def _ranks(
    remembered: tuple[scipy.sparse.csr_matrix, Int64, Float32], targets: Int64, values: Float32, votes: Float32
) -> Int64:
    """Return the rank of each of the ``targets`` (n,) in each mixture, (shares, n); above ``_DEPTH`` a lower bound.

    ``remembered``: the memory, and for each of its entries the row and the network's probability, which is negative for
    a hidden item. ``values`` and ``votes`` (n, k + 1): the probabilities by network and memory of the network's best
    items and, last, of the target.
    """
    memory, owners, network_values = remembered
    empty = np.diff(memory.indptr) == 0
    # items of the memory are counted there
    best = np.where(votes[:, :-1] > 0, -1.0, values[:, :-1])
    candidate = (network_values >= 0) & (memory.indices != targets[owners])
    by_network, by_memory = network_values > values[owners, -1], memory.data > votes[owners, -1]
    # a target behind so many items in both parts is behind them in every mixture
    behind = np.bincount(owners[candidate & by_network & by_memory], minlength=len(targets)) >= _DEPTH
    compared = candidate & (by_network | by_memory) & ~behind[owners]
    owners, network_values, memory_values = owners[compared], network_values[compared], memory.data[compared]
    ranks = []
    for share in SHARES:
        weight = np.where(empty, 1.0, 1.0 - share)
        threshold = weight * values[:, -1] + share * votes[:, -1]
        above = (weight[:, None] * best > threshold[:, None]).sum(axis=1)
        higher = (1.0 - share) * network_values + share * memory_values > threshold[owners]
        ranks.append(1 + above + _DEPTH * behind + np.bincount(owners[higher], minlength=len(targets)))
    return np.stack(ranks)


def entries(matrix: scipy.sparse.csr_matrix, columns: Int64, owners: Int64) -> Float32:
    """Return the entries (m, k) of a matrix (m, width): those of row i in the columns ``columns[owners[i]]`` (k,)."""
    n, k = columns.shape
    table = np.full((n, matrix.shape[1]), -1, np.int8 if k < 128 else np.int16)
    np.put_along_axis(table, columns, np.arange(k, dtype=table.dtype)[None], axis=1)
    places = table.ravel().take(_places(matrix, owners))
    wanted = np.flatnonzero(places >= 0)
    rows = np.searchsorted(matrix.indptr, wanted, side="right") - 1
    found = np.zeros((len(owners), k), np.float32)
    found[rows, places[wanted]] = matrix.data[wanted]
    last = np.take_along_axis(table, columns, axis=1)
    if (last == np.arange(k)).all():
        return found
    return np.take_along_axis(found, last[owners].astype(np.int64), axis=1)  # of equal columns, the last has the entry
