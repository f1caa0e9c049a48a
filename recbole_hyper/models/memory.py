"""Models that mix an item-to-item memory with their network."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recbole_hyper.data.pair_counts import Side, pair_counts
from recbole_hyper.evaluation.ranking import Scorer, is_large, rows_of_a_block
from recbole_hyper.evaluation.scorers import encode_cases, state_scorer
from recbole_hyper.models._linear import binary_matrix
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.models.ease_votes import VOTES, EaseVotes, Votes, is_offered, log_probabilities, with_votes
from recbole_hyper.models.item_memory import (
    DECAYS,
    SHARES,
    ItemMemory,
    Mixture,
    MixtureSearch,
    MixtureTable,
    RankedCases,
    VoteTable,
    log_mixture,
    newest_first,
    newest_items,
)
from recbole_hyper.models.known_cases import KnownCases, Places
from recbole_hyper.models.reranker import (
    N_FOLDS,
    CasesOfReranker,
    Changes,
    Evidence,
    EvidenceReader,
    Reranker,
    RerankingTable,
    SparseVotes,
    VoteTables,
    reranked,
)
from recbole_hyper.options import AUTO, Option, keyed
from recbole_hyper.types import Cases, Prefixes
from recbole_hyper.values import Auto, PositiveInt

logger = logging.getLogger("recbole_hyper")

# at most so many validation cases choose the mixture
_CASES = 10_000
# and so many fit the reranker
RERANKED_CASES = 20_000
# if there is no validation; chosen on the validation of Amazon Beauty (results/records.md)
_DEFAULT = Mixture(share=0.4, decay=0.9)


class Chosen(NamedTuple):
    """What validation chose, read once for many cases."""

    mixture: Mixture
    votes: Votes
    reranks: bool


def _decay(votes: Votes) -> float:
    return votes.decay


def _sharpness(votes: Votes) -> float:
    return votes.sharpness


def drawn(cases: Cases, count: int) -> Cases:
    """Return at most ``count`` of the cases, drawn alike each time."""
    if len(cases) <= count:
        return cases
    return cases[np.sort(np.random.default_rng(0).choice(len(cases), count, replace=False))]


def _folds(cases: Prefixes) -> Tensor:
    """Return the fold (n,) of the reranker that the user of each case belongs to."""
    return torch.from_numpy(cases.rows % N_FOLDS)


class MemoryRecommender(HyperRecommender):
    """A recommender that mixes the probabilities of its network with those of an :class:`ItemMemory`.

    The network can have any encoder, geometry and loss, and the memory does not change its training. Each validation
    chooses the share of the memory and its decay by NDCG@10 over at most 10,000 cases; a refit keeps the choice. A
    score is the logarithm of a probability, so it needs more than states and item vectors.

    Where ``memory_ease`` offers them, each validation then chooses :class:`EaseVotes` by the same measure: their share,
    how fast they forget, and how sharp they are.

    With ``memory_rerank``, each validation then fits a :class:`Reranker` to the same cases, and keeps it if NDCG@10
    gains where no network has seen the user. Validation is ranked in this way too.
    """

    own_options = keyed(
        memory_window=Option(
            "largest distance of neighbours, and number of newest items that vote", kind=PositiveInt, default=10
        ),
        memory_neighbours=Option("strongest neighbours to keep for each item", kind=PositiveInt, default=200),
        memory_ease=Option(
            "offer EASE^R to the mixture; auto: where it is fitted in a tenth of the network's training",
            kind=bool | Auto,
            default=AUTO,
        ),
        memory_rerank=Option(
            "rerank the best items by two small networks, each fitted to the validation of half the users",
            kind=bool,
            default=True,
        ),
    )
    scores_by_head = False
    choice: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._length, self._exclude_seen = int(config["MAX_ITEM_LIST_LENGTH"]), bool(config["exclude_seen"])
        self._ranking_budget = int(config["ranking_memory_budget"])
        self._window = min(int(config["memory_window"]), self._length)
        lengths, neighbours = np.asarray(dataset.train_lengths), int(config["memory_neighbours"])

        def memory_of(side: Side) -> ItemMemory:
            counts = pair_counts(dataset.store, lengths, window=self._window, neighbours=neighbours, side=side)
            return ItemMemory(*counts, window=self._window)

        self._memory = memory_of("both")
        self._sides = [memory_of("after"), memory_of("before")] if config["memory_rerank"] else []
        self._counts = torch.from_numpy(dataset.store.counts(lengths))
        self._on_device: tuple[MixtureTable] | None = None
        self._reader: tuple[EvidenceReader] | None = None
        # of a validation, from the choices to the ranking
        self._known = KnownCases()
        self._note = _EXPLAINED
        self._ease, offered = EaseVotes(), config["memory_ease"]
        self._reranker = Reranker()
        if offered == AUTO:
            offered = is_offered(self.n_items, int(np.sum(lengths)))
        # the training part, to fit EASE^R at the first validation
        self._training = dataset if offered else None
        # indices of share and decay: averaging weights leaves integers alone
        self.register_buffer("choice", torch.tensor([SHARES.index(_DEFAULT.share), DECAYS.index(_DEFAULT.decay)]))

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in every module; training changes the weights, so nothing is known any more."""
        self._known = KnownCases() if mode else self._known
        return super().train(mode)

    @property
    def mixture(self) -> Mixture:
        """Share of the memory and its decay."""
        share, decay = self.choice.tolist()
        return Mixture(SHARES[share], DECAYS[decay])

    @mixture.setter
    def mixture(self, mixture: Mixture) -> None:
        self.choice.copy_(torch.tensor([SHARES.index(mixture.share), DECAYS.index(mixture.decay)]))

    def _chosen(self) -> Chosen:
        return Chosen(self.mixture, self._ease.chosen, self._reranker.is_fitted)

    @torch.no_grad()
    def choose(self, cases: Cases) -> None:
        """Choose the share and the decay with the best NDCG@10 on ``cases``, and the votes of EASE^R if offered."""
        few, cases = drawn(cases, RERANKED_CASES), drawn(cases, _CASES)
        self.eval()
        self._known = self._encoded(few)
        self._choose_shares(cases, self._known)
        if self._sides:
            self._choose_reranker(few, self._known)

    def _encoded(self, cases: Cases) -> KnownCases:
        """Return the cases with their states."""
        parts = [self._encode(part) for part in self._parts(cases)]
        return KnownCases(cases, torch.cat(parts)) if parts else KnownCases()

    def _encode(self, cases: Prefixes) -> Tensor:
        return encode_cases(self, cases, self._length, self.device)

    def _choose_shares(self, cases: Cases, known: KnownCases) -> None:
        """Choose the mixture and the votes of EASE^R."""
        search = MixtureSearch(self._memory, exclude_seen=self._exclude_seen, table=self._vote_table())
        for logits, part in self._blocks(cases, known):
            search.add(logits, part)
        best, mixed, alone = search.best()
        votes = VOTES[0]
        if self._training is not None:
            best, votes, mixed = self._choose_votes(self._blocks(cases, known), best, mixed)
        self.mixture, self._ease.chosen = best, votes
        logger.info(
            "memory: share %.1f, decay %.1f; NDCG@10 %.4f, %.4f without memory%s", *best, mixed, alone, self._note
        )
        self._note = ""
        if votes.share:
            logger.info("memory: EASE^R has a share of %.1f, decay %.2f, sharpness %.0f", *votes)

    def _choose_reranker(self, cases: Cases, known: KnownCases) -> None:
        """Fit the reranker to the cases, and keep it if NDCG@10 gains."""
        self._reranker.reset()
        if not len(cases):
            return
        read = self.cases_of_reranker(cases, known)
        self._reranker.fit(read)
        changes = self._reranker(read.evidence, read.folds)
        if (gain := read.gain(changes)) > 0:
            known.changes = Changes(read.items.to(self.device), changes.to(self.device))
            logger.info("memory: the best items are reranked, for %.4f more NDCG@10 in cross-validation", gain)
        else:
            self._reranker.reset()

    @torch.no_grad()
    def cases_of_reranker(self, cases: Cases, known: KnownCases) -> CasesOfReranker:
        """Return what the reranker is fitted to, for the chosen mixture."""
        parts, chosen, large = [], self._chosen(), self._has_kernel(len(cases))
        for logits, part in self._blocks(cases, known):
            newest = newest_items(part, self._length)
            network = log_probabilities(logits)
            scores = self._mixture_of(network, newest, chosen)
            found = self._evidence(scores, network, newest, large=large)
            ranked = RankedCases(part, scores, exclude_seen=self._exclude_seen)
            best = scores.gather(1, found.items).masked_fill_(ranked.hidden.gather(1, found.items), -torch.inf)
            hits = (found.items == ranked.targets) & ranked.shown[:, None]
            places = torch.where(hits.any(dim=1), hits.int().argmax(dim=1), -1)
            columns = found.items, found.values, best, places, _folds(part)
            parts.append(CasesOfReranker(*(column.cpu() for column in columns)))
        return CasesOfReranker(*map(torch.cat, zip(*parts, strict=True)))

    def _parts(self, cases: Cases) -> list[Cases]:
        """Return the ``cases`` in the blocks of a ranking."""
        size = rows_of_a_block(self.n_items, self._ranking_budget, self.device)
        return [cases[slice(start, start + size)] for start in range(0, len(cases), size)]

    def _blocks(self, cases: Cases, known: KnownCases) -> Iterator[tuple[Tensor, Cases]]:
        """Yield the logits of the network for ``cases`` in the blocks of a ranking."""
        network = self._network(known)
        for part in self._parts(cases):
            yield network(part), part

    def _network(self, known: KnownCases) -> Scorer:
        """Return the scorer of the network, which encodes no known case."""

        def states_of(cases: Prefixes) -> Tensor:
            return known.states_of(cases, lambda places: self._encode(cases[places]))

        return state_scorer(self, self._length, self.device, states_of)

    def _choose_votes(
        self, blocks: Iterable[tuple[Tensor, Cases]], mixture: Mixture, before: float
    ) -> tuple[Mixture, Votes, float]:
        """Return the best mixture with votes of EASE^R, these votes and the NDCG@10; the decay of the memory stays.

        With votes the memory has the share of ``mixture``, or half of it.
        """
        self._fit_ease()
        shares = sorted({mixture.share, SHARES[SHARES.index(mixture.share) // 2]})
        mixtures = [Mixture(share, mixture.decay) for share in shares]
        gains = dict.fromkeys(itertools.product(mixtures, VOTES[1:]), 0.0)
        n_cases = 0
        for logits, part in blocks:
            n_cases += len(part)
            for choice, gain in self._gains(logits, part, mixtures):
                gains[choice] += float(gain)
        best, votes = max(gains, key=lambda one: gains[one])
        value = gains[best, votes] / max(1, n_cases)
        return (best, votes, value) if value > before else (mixture, VOTES[0], before)

    def _gains(
        self, logits: Tensor, cases: Cases, mixtures: Sequence[Mixture]
    ) -> Iterator[tuple[tuple[Mixture, Votes], Tensor]]:
        """Yield each of the ``mixtures``, which have one decay, with all votes, and the sum of NDCG@10 of ``cases``."""
        logits[:, 0] = -torch.inf
        network, newest = logits.softmax(dim=1), self._on(newest_items(cases, self._length))
        counts = self._memory.after(self._memory.newest(cases), mixtures[0].decay)
        known = torch.from_numpy(np.diff(counts.indptr) > 0).to(logits.device)[:, None]
        memory = torch.from_numpy(counts.toarray()).to(logits.device)
        ranked = RankedCases(cases, network, exclude_seen=self._exclude_seen)
        # a hidden item with a probability of 0 is above no target
        for part in (network, memory):
            part.masked_fill_(ranked.hidden, 0.0)
        for decay, by_decay in itertools.groupby(sorted(VOTES[1:], key=_decay), key=_decay):
            scores = self._ease.scores(newest, decay)
            near = ranked.within_reach(network, memory, scores)
            few, of_network, of_memory, remembers = ranked[near], network[near], memory[near], known[near]
            scores = scores[near]
            scores[:, 0] = -torch.inf
            for sharpness, by_sharpness in itertools.groupby(sorted(by_decay, key=_sharpness), key=_sharpness):
                ease = (scores * sharpness).softmax(dim=1).masked_fill_(few.hidden, 0.0)
                for votes, mixture in itertools.product(by_sharpness, mixtures):
                    rest = torch.where(remembers, 1.0 - mixture.share, 1.0)
                    mixed = torch.lerp(of_network, ease, votes.share).mul_(rest).add_(of_memory, alpha=mixture.share)
                    yield (mixture, votes), few.gain(mixed, mixed.gather(1, few.targets))

    def _fit_ease(self) -> None:
        if not self._ease.bits.numel() and self._training is not None:
            self._ease.fit(binary_matrix(self._training))

    def choose_as(self, other: OwnModel) -> None:
        assert isinstance(other, MemoryRecommender)
        self.mixture, self._ease.chosen = other.mixture, other._ease.chosen
        self._reranker.bits.copy_(other._reranker.bits)
        if self._ease.chosen.share or self._reranker.is_fitted:
            self._fit_ease()

    def _mixed(self, logits: Tensor, newest: npt.NDArray[np.int64], chosen: Chosen) -> Tensor:
        """Return the scores (n, n_items) for the network's ``logits`` (n, n_items) after the ``newest`` items."""
        network = log_probabilities(logits)
        scores = self._mixture_of(network, newest, chosen)
        return reranked(scores, self._changes(scores, network, newest)) if chosen.reranks else scores

    def _mixture_of(self, network: Tensor, newest: npt.NDArray[np.int64], chosen: Chosen) -> Tensor:
        """Return log p (n, n_items) of the mixture after the ``newest`` items, for log p of the ``network``."""
        mixture, votes, _ = chosen
        if votes.share:
            network = with_votes(network, self._ease.scores(self._on(newest), votes.decay), votes)
        newest, table = newest[:, : self._window], self._table()
        if table is not None:
            return table.use(mixture).mixed(network, self._on(newest))
        return log_mixture(network, self._memory.after(newest, mixture.decay), mixture.share)

    def _evidence(
        self, scores: Tensor, network: Tensor, newest: npt.NDArray[np.int64], *, large: bool = False
    ) -> Evidence:
        """Return the evidence for the best items by the log-probabilities of the mixture and of the ``network``."""
        return self._evidence_reader()(scores, network, self._on(newest), self.item_vectors(), large=large)

    def _changes(
        self,
        scores: Tensor,
        network: Tensor,
        newest: npt.NDArray[np.int64],
        folds: Tensor | None = None,
        *,
        large: bool = False,
    ) -> Changes:
        """Return the changes of the best items; with the ``folds`` of users by the networks not fitted to them."""
        evidence = self._evidence(scores, network, newest, large=large)
        return Changes(evidence.items, self._reranker(evidence.values, folds))

    def _has_kernel(self, n_cases: int) -> bool:
        """Return whether a kernel ranks so many cases in the end, so that it can find their best items too."""
        return self.device.type == "cpu" and is_large(n_cases, self.n_items)

    def _on(self, items: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(items).to(self.device)

    def _evidence_reader(self) -> EvidenceReader:
        """Return the reader of the evidence on the model's device, made once."""
        if self._reader is None:
            votes = (SparseVotes if self._table() is None else VoteTables)(self._sides, self._ease)
            self._reader = (self._reader_of(votes).to(self.device),)
        return self._reader[0]

    def _reader_of(self, votes: SparseVotes | VoteTables) -> EvidenceReader:
        return EvidenceReader(votes, self._counts, window=self._window, exclude_seen=self._exclude_seen)

    def _table(self) -> MixtureTable | None:
        """Return the memory on the model's device, made once; None on a CPU, and for a memory that does not fit."""
        if self._on_device is None and VoteTable.fits([self._memory, *self._sides], self.device):
            # in a tuple, because it is no part of the model's state
            self._on_device = (MixtureTable(VoteTable(self._memory), _DEFAULT).to(self.device),)
        return None if self._on_device is None else self._on_device[0]

    def _vote_table(self) -> VoteTable | None:
        return None if (table := self._table()) is None else table.table

    def case_scorer(self, config: Any) -> Scorer:
        network, chosen = self._network(KnownCases()), self._chosen()
        return torch.no_grad()(lambda cases: self._mixed(network(cases), newest_items(cases, self._length), chosen))

    def validation_scorer(self, config: Any) -> Scorer:
        """Return the scorer that reranks each user by the network that was not fitted to it."""
        known, self._known = self._known, KnownCases()  # the ranking ends the validation
        network, chosen, large = self._network(known), self._chosen(), self._has_kernel(len(known))

        @torch.no_grad()
        def score(cases: Prefixes) -> Tensor:
            probabilities, newest = log_probabilities(network(cases)), newest_items(cases, self._length)
            scores = self._mixture_of(probabilities, newest, chosen)
            if not chosen.reranks:
                return scores

            def read(places: Places) -> Changes:
                parts = scores[places], probabilities[places], newest[places], _folds(cases)[places]
                return self._changes(*parts, large=large)

            return reranked(scores, known.changes_of(cases, read))

        return score

    @torch.no_grad()
    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return log p (B, n_items) of all items; column 0 is padding."""
        items, lengths, *times = self._histories(interaction)
        newest = newest_first(items.cpu().numpy(), lengths.cpu().numpy())
        logits = self.head.logits(self.forward(items, lengths, *times))
        return self._mixed(logits, newest, self._chosen())

    def score_table(self) -> nn.Module:
        rerank = None
        if self._reranker.is_fitted:
            rerank = RerankingTable(
                self._reader_of(VoteTables(self._sides, self._ease)), self._reranker, self.item_vectors()
            )
        table = VoteTable(self._memory)
        return MixtureTable(table, self.mixture, ease=self._ease, length=self._length, rerank=rerank)

    def predict(self, interaction: Any) -> Tensor:
        """Return log p (B,) of each row's item."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None])[:, 0]


# said once in a training
_EXPLAINED = (
    " (the memory counts which items follow each other: it gives this share of a score, the network the rest; an item "
    "counts decay times as much as the next newer one)"
)


class FMLPRecMemory(MemoryRecommender, encoder="fmlp"):
    """FMLPRecCE mixed with an item-to-item memory: what other users chose near the newest items; ours."""
