"""Models whose network and item-to-item memory propose items, which small networks rank by all evidence for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recbole_hyper.data.pair_counts import Side
from recbole_hyper.evaluation.scorers import Scorer, encode_cases, rows_of_a_block
from recbole_hyper.geometry.head import FrozenHead
from recbole_hyper.models._linear import binary_matrix
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.models.evidence import Evidence, EvidenceReader
from recbole_hyper.models.item_votes import EaseWeights, PairRates, is_offered
from recbole_hyper.models.propose import Proposals, Proposer
from recbole_hyper.models.rank import N_FOLDS, Ranker
from recbole_hyper.options import AUTO, Option, keyed
from recbole_hyper.protocols.base import repeated_targets
from recbole_hyper.types import Cases, Prefixes, gather
from recbole_hyper.values import Auto, PositiveInt

#: at most so many validation cases choose the epoch, and fit the ranker
EPOCH_CASES, RANKED_CASES = 5_000, 50_000
# share of the training interactions whose counts say what is chosen of late
_NEWEST = 0.05
# histories that are ranked at once: on a CPU what is read of them stays in the cache
_ROWS, _ROWS_ON_DEVICE = 256, 2048


class Ranking(nn.Module):
    """The three parts in turn: it proposes items, reads the evidence for them and ranks them.

    Without a ``reader`` the proposals keep their order.
    """

    def __init__(self, proposer: Proposer, reader: EvidenceReader | None) -> None:
        super().__init__()
        self.proposer, self.reader, self.ranker = proposer, reader, Ranker()

    def forward(self, logits: Tensor, newest: Tensor, vectors: Tensor, folds: Tensor | None = None) -> Tensor:
        """Return log-probabilities (n, n_items), -inf for padding.

        By the network's ``logits`` (n, n_items) and the ``vectors`` (n_items, d), after the ``newest`` items (n, L).
        With the ``folds`` (n,) of the users, by the small networks that were not fitted to them.
        """
        if self.reader is None:
            return self.proposer.mixed(logits, newest)[1]
        proposals = self.proposer(logits, newest)
        found = self.reader(proposals, newest, vectors)
        return proposals.scores.scatter_(1, found.items, self.ranker(found, folds))


class RankingTable(nn.Module):
    """:class:`Ranking` for an exported graph, with the item vectors as constants."""

    vectors: Tensor

    def __init__(self, ranking: Ranking, vectors: Tensor) -> None:
        super().__init__()
        self.ranking = ranking
        self.register_buffer("vectors", vectors)

    def forward(self, logits: Tensor, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores (B, n_items) for ``logits`` (B, n_items) after right-padded ``items`` (B, L)."""
        return self.ranking(logits, newest_first(items, lengths), self.vectors)


class MemoryRecommender(HyperRecommender):
    """A recommender whose network and memory propose items, which small networks rank.

    The network can have any encoder, geometry and loss, and what comes after it does not change its training. Three
    parts follow it: :class:`Proposer`, :class:`EvidenceReader` and :class:`Ranker`. The mixture of the proposer chooses
    the epoch. Then the ranker is fitted to validation, whose figures rank each user by the small network that was
    fitted to the other half of the users. A refit keeps the ranker. Items that are not proposed keep the order of the
    mixture.
    """

    own_options = keyed(
        memory_window=Option("largest distance of neighbours; as many newest items vote", kind=PositiveInt, default=10),
        memory_neighbours=Option("strongest neighbours to keep for each item", kind=PositiveInt, default=200),
        memory_ease=Option(
            "read the scores of EASE^R; auto: where the counts of all pairs of items take at most a gigabyte",
            kind=bool | Auto,
            default=AUTO,
        ),
        memory_rerank=Option("rank the best items by small networks fitted to validation", kind=bool, default=True),
    )
    scores_by_head = False
    fits_itself = ("ranking.",)

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._length, self._ranking_budget = int(config["MAX_ITEM_LIST_LENGTH"]), int(config["ranking_memory_budget"])
        window, neighbours = min(int(config["memory_window"]), self._length), int(config["memory_neighbours"])
        lengths = np.asarray(dataset.train_lengths)

        def rates(side: Side) -> PairRates:
            return PairRates(dataset.store, lengths, window=window, neighbours=neighbours, side=side)

        proposer, reader = Proposer(rates("both"), window=window, exclude_seen=bool(config["exclude_seen"])), None
        if config["memory_rerank"]:
            counts, newest = dataset.store.counts(lengths), dataset.store.newest_counts(lengths, _NEWEST)
            chosen, ease = torch.from_numpy(np.stack((counts, newest))), EaseWeights(self.n_items)
            reader = EvidenceReader(rates("after"), rates("before"), ease, chosen, window=window)
        self.ranking, offered = Ranking(proposer, reader), config["memory_ease"]
        # EASE^R is fitted to the training part before the ranker
        self._training, self._reads_ease = dataset, bool(offered)
        if offered == AUTO:
            self._reads_ease = is_offered(self.n_items, lengths)

    @torch.no_grad()
    def choose(self, cases: Cases) -> bool:
        """Fit EASE^R, where it is offered, and the ranker to at most 50,000 of the ``cases``; return whether."""
        exclude_seen = self.ranking.proposer.exclude_seen
        if self.ranking.reader is None or not len(few := ranker_cases(cases, exclude_seen=exclude_seen)):
            return False
        self.eval()
        self._fit_ease()
        targets, folds = self._on(few.targets.astype(np.int64)), self._on(folds_of(few))
        evidence, rows = self._read(few, targets)
        self.ranking.ranker.fit(evidence, targets, folds, rows)
        return True

    def choose_as(self, other: OwnModel) -> None:
        assert isinstance(other, MemoryRecommender)
        self.ranking.ranker.load_state_dict(other.ranking.ranker.state_dict())
        # the ranker reads what it was fitted to, also if the larger training part crosses the border of auto
        self._reads_ease = other.ranking.reader is not None and other.ranking.reader.ease.is_fitted
        self._fit_ease()

    def _fit_ease(self) -> None:
        reader = self.ranking.reader
        if reader is not None and self._reads_ease and not reader.ease.is_fitted:
            reader.ease.fit(binary_matrix(self._training))

    def _on(self, values: npt.NDArray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _parts(
        self, cases: Prefixes, states: Tensor, head: FrozenHead
    ) -> Iterator[tuple[Tensor, Prefixes, Tensor, Tensor]]:
        """Yield rows (n,) of the ``cases``, those cases, the network's logits for them and their newest items (n, L).

        Cases with histories of like lengths come together, as what is read takes time for each place up to the longest.
        """
        size = rows_of_a_block(self.n_items, self._ranking_budget, self.device)
        size = min(size, _ROWS if self.device.type == "cpu" else _ROWS_ON_DEVICE)
        starts = np.maximum(cases.ends - self._length, cases.starts)
        order = np.argsort(cases.ends - starts, kind="stable") if len(cases) > size else np.arange(len(cases))
        for start in range(0, len(cases), size):
            rows = order[start : start + size]
            part, first = cases[rows], starts[rows]
            lengths = part.ends - first
            longest = max(self.ranking.proposer.window, int(lengths.max()))
            newest = newest_first(self._on(gather(part.store, part.rows, first, part.ends, longest)), self._on(lengths))
            place = self._on(rows)
            yield place, part, head.scores(states[place], 0, head.n_items), newest

    def _read(self, cases: Prefixes, targets: Tensor | None = None) -> tuple[Evidence, Tensor]:
        """Return the evidence for the items that are proposed for some of the ``cases``, and the rows (m,) of these.

        With ``targets`` (n,) they are those whose target is proposed, but on a device all, as it would wait for them.
        """
        states, vectors = encode_cases(self, cases, self._length, self.device), self.item_vectors()
        reader, found = self.ranking.reader, list[tuple[Tensor, ...]]()
        assert reader is not None
        for place, _, logits, newest in self._parts(cases, states, self.head.frozen()):
            proposals = self.ranking.proposer(logits, newest)
            if targets is not None and self.device.type == "cpu":
                hit = (proposals.items == targets[place, None]).any(dim=1)
                proposals, place, newest = Proposals(*(part[hit] for part in proposals)), place[hit], newest[hit]
            found.append((place, *reader(proposals, newest, vectors)))
        rows, *parts = map(torch.cat, zip(*found, strict=True))
        order = rows.argsort()
        return Evidence(*(part[order] for part in parts)), rows[order]

    def case_scorer(self, config: Any, part: str = "test") -> Scorer:
        """Return the scorer of a part.

        An epoch is chosen by the mixture, which needs no fitted part. Then validation ranks each user by the small
        network that was not fitted to it.
        """
        head, vectors = self.head.frozen(), self.item_vectors()

        def ranked(cases: Prefixes, logits: Tensor, newest: Tensor) -> Tensor:
            if part == "epoch":
                return self.ranking.proposer.mixed(logits, newest)[1]
            folds = self._on(folds_of(cases)) if part == "valid" else None
            return self.ranking(logits, newest, vectors, folds)

        @torch.no_grad()
        def score(cases: Prefixes) -> Tensor:
            states = encode_cases(self, cases, self._length, self.device)
            scores = None
            for place, some, logits, newest in self._parts(cases, states, head):
                found = ranked(some, logits, newest)
                if len(found) == len(cases):
                    return found  # a single block is not copied
                scores = found.new_empty(len(cases), found.shape[1]) if scores is None else scores
                scores[place] = found
            assert scores is not None
            return scores

        return score

    def epoch_cases(self, cases: Cases) -> Cases:
        """Return at most 5,000 of the ``cases``: all of them are ranked at the end."""
        return drawn(cases, EPOCH_CASES if self.ranking.reader is not None else len(cases))

    @torch.no_grad()
    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return log p (B, n_items) of all items; column 0 is padding."""
        items, lengths, *times = self._histories(interaction)
        logits = self.head.logits(self.forward(items, lengths, *times))
        return self.ranking(logits, newest_first(items, lengths), self.item_vectors())

    def score_table(self) -> nn.Module:
        return RankingTable(self.ranking, self.item_vectors())

    def predict(self, interaction: Any) -> Tensor:
        """Return log p (B,) of each row's item."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None])[:, 0]


def drawn(cases: Cases, count: int) -> Cases:
    """Return at most ``count`` of the cases, drawn alike each time."""
    if len(cases) <= count:
        return cases
    return cases[np.sort(np.random.default_rng(0).choice(len(cases), count, replace=False))]


def ranker_cases(cases: Cases, *, exclude_seen: bool) -> Cases:
    """Return the cases that fit the ranker: at most 50,000, and with ``exclude_seen`` none whose target is left out."""
    return drawn(cases[np.flatnonzero(~repeated_targets(cases))] if exclude_seen else cases, RANKED_CASES)


def folds_of(cases: Prefixes) -> npt.NDArray[np.int64]:
    """Return the fold (n,) of the user of each case."""
    return cases.store.users[cases.rows].astype(np.int64) % N_FOLDS


def newest_first(items: Tensor, lengths: Tensor) -> Tensor:
    """Return right-padded ``items`` (n, L) of ``lengths`` (n,) in the opposite order, padded at the right again."""
    places = lengths[:, None] - 1 - torch.arange(items.shape[1], device=items.device)
    return items.gather(1, places.clamp(min=0)).masked_fill(places < 0, 0)


class FMLPRecMemory(MemoryRecommender, encoder="fmlp"):
    """FMLPRecCE and a memory of what other users chose near the newest items, ranked by all evidence; ours."""
