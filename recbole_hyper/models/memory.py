"""Models that mix an item-to-item memory with their network."""

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.evaluation.ranking import SCORES_PER_BLOCK, Scorer
from recbole_hyper.evaluation.scorers import state_scorer
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.models.item_memory import (
    DECAYS,
    SHARES,
    ItemMemory,
    Mixture,
    MixtureSearch,
    MixtureTable,
    log_mixture,
    newest_first,
)
from recbole_hyper.options import Option, keyed
from recbole_hyper.registry import register
from recbole_hyper.types import Cases, Prefixes
from recbole_hyper.values import PositiveInt

logger = logging.getLogger("recbole_hyper")

# at most so many validation cases choose the mixture
_CASES = 10_000
# if there is no validation; chosen on the validation of Amazon Beauty (results/records.md)
_DEFAULT = Mixture(share=0.4, decay=0.9)


class MemoryRecommender(HyperRecommender):
    """A recommender that mixes the probabilities of its network with those of an :class:`ItemMemory`.

    The network can have any encoder, geometry and loss, and the memory does not change its training. Each validation
    chooses the share of the memory and its decay by NDCG@10 over at most 10,000 cases; a refit keeps the choice. A
    score is the logarithm of a probability, so it needs more than states and item vectors.
    """

    own_options = keyed(
        memory_window=Option(
            "largest distance of neighbours, and number of newest items that vote", kind=PositiveInt, default=10
        ),
        memory_neighbours=Option("strongest neighbours to keep for each item", kind=PositiveInt, default=200),
    )
    scores_by_head = False
    choice: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._length, self._exclude_seen = int(config["MAX_ITEM_LIST_LENGTH"]), bool(config["exclude_seen"])
        self._window = min(int(config["memory_window"]), self._length)
        counts, totals = pair_counts(
            dataset.store,
            np.asarray(dataset.train_lengths),
            window=self._window,
            neighbours=int(config["memory_neighbours"]),
        )
        self._memory = ItemMemory(counts, totals, window=self._window)
        # indices of share and decay: averaging weights leaves integers alone
        self.register_buffer("choice", torch.tensor([SHARES.index(_DEFAULT.share), DECAYS.index(_DEFAULT.decay)]))

    @property
    def mixture(self) -> Mixture:
        """Share of the memory and its decay."""
        share, decay = self.choice.tolist()
        return Mixture(SHARES[share], DECAYS[decay])

    @mixture.setter
    def mixture(self, mixture: Mixture) -> None:
        self.choice.copy_(torch.tensor([SHARES.index(mixture.share), DECAYS.index(mixture.decay)]))

    @torch.no_grad()
    def choose(self, cases: Cases) -> None:
        """Choose the share and the decay with the best NDCG@10 on ``cases``."""
        if len(cases) > _CASES:
            cases = cases[np.sort(np.random.default_rng(0).choice(len(cases), _CASES, replace=False))]
        self.eval()
        network = state_scorer(self, self._length, self.device)
        search = MixtureSearch(self._memory, exclude_seen=self._exclude_seen)
        size = max(1, SCORES_PER_BLOCK // self.n_items)
        for start in range(0, len(cases), size):
            part = cases[start : start + size]
            search.add(network(part), part)
        best, mixed, alone = search.best()
        self.mixture = best
        logger.info("memory: share %.1f, decay %.1f; NDCG@10 %.4f, %.4f without memory", *best, mixed, alone)

    def choose_as(self, other: OwnModel) -> None:
        assert isinstance(other, MemoryRecommender)
        self.mixture = other.mixture

    def case_scorer(self, config: Any) -> Scorer:
        share, decay = self.mixture
        network = state_scorer(self, self._length, config["device"])

        @torch.no_grad()
        def score(cases: Prefixes) -> Tensor:
            return log_mixture(network(cases), self._memory.after(self._memory.newest(cases), decay), share)

        return score

    @torch.no_grad()
    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return log p (B, n_items) of all items; column 0 is padding."""
        share, decay = self.mixture
        items, lengths, *times = self._histories(interaction)
        newest = newest_first(items.cpu().numpy(), lengths.cpu().numpy())[:, : self._window]
        logits = self.head.logits(self.forward(items, lengths, *times))
        return log_mixture(logits, self._memory.after(newest, decay), share)

    def score_table(self) -> nn.Module:
        return MixtureTable(self._memory, self.mixture)

    def predict(self, interaction: Any) -> Tensor:
        """Return log p (B,) of each row's item."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None])[:, 0]


@register("models")
class FMLPRecMemory(MemoryRecommender, encoder="fmlp"):
    """FMLPRecCE mixed with an item-to-item memory: what other users chose near the newest items; ours."""
