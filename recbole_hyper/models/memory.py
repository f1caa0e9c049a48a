"""Models with an item-to-item memory beside their network."""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.data.loader import WindowLoader
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import SCORES_PER_BLOCK, Scorer
from recbole_hyper.evaluation.scorers import state_scorer
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.item_memory import ItemMemory, Trials, log_mixture, newest_first
from recbole_hyper.options import Option, keyed
from recbole_hyper.registry import register
from recbole_hyper.types import Cases

logger = logging.getLogger("recbole_hyper")

# of the training targets, the most that are held out to find the mixture, and their share at most
_HELD_OUT, _HELD_OUT_SHARE = 2048, 0.02


class MemoryRecommender(HyperRecommender):
    """A recommender whose probabilities are a mixture: of its network's, and of an :class:`ItemMemory`'s.

    Every encoder, geometry and loss can be the network's, which is trained as without the memory. The share of the
    memory, and how fast it forgets, are those with the best NDCG@10 on targets that neither part has seen: the newest
    training item of some sequences, at most 2048 and one in fifty targets. They are found anew before each ranking of
    weights that were trained further. Then the memory counts these items too; the network never learns them.

    A score is the logarithm of a probability. States and item vectors are the network's: by themselves they do not
    give the scores.
    """

    own_options = keyed(
        memory_window=Option(
            "int >= 1", "steps between two items that count as neighbours, and newest items that are asked", 10
        ),
        memory_neighbours=Option("int >= 1", "neighbours of an item that its memory keeps, the strongest", 200),
    )
    scores_by_head = False
    mixture: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._length, self._exclude_seen = int(config["MAX_ITEM_LIST_LENGTH"]), bool(config["exclude_seen"])
        self._window = min(int(config["memory_window"]), self._length)
        self._neighbours = int(config["memory_neighbours"])
        store, lengths = dataset.store, np.asarray(dataset.train_lengths)
        held = held_out(lengths, int(config["seed"]))
        self._lengths = lengths - held
        self._held_out = Cases.build(store, np.flatnonzero(held), self._lengths[held])
        self._memory = self._counted(store, lengths)
        self._earlier: ItemMemory | None = None  # without what is held out; only training asks for it
        # share and decay; not known before the first ranking
        self.register_buffer("mixture", torch.full((2,), torch.nan, dtype=torch.float64))
        self._trained_further = False

    def _counted(self, store: SequenceStore, lengths: npt.NDArray[np.int64]) -> ItemMemory:
        counts, totals = pair_counts(store, lengths, window=self._window, neighbours=self._neighbours)
        return ItemMemory(counts, totals, window=self._window)

    def training_loader(
        self, training: Any, store: SequenceStore, lengths: npt.NDArray[np.int64], config: Any
    ) -> WindowLoader:
        """Return the batches of an epoch, without the targets that are held out."""
        return super().training_loader(training, store, self._lengths, config)

    def calculate_loss(self, interaction: Any) -> Tensor:
        self._trained_further = True
        return super().calculate_loss(interaction)

    def case_scorer(self, config: Any) -> Scorer:
        self._find_mixture()
        share, decay = self.mixture.tolist()
        network = state_scorer(self, self._length, config["device"])

        @torch.no_grad()
        def score(cases: Cases) -> Tensor:
            return log_mixture(network(cases), self._memory.after(self._memory.newest(cases), decay), share)

        return score

    @torch.no_grad()
    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return log p (B, n_items) of all items; column 0 is padding."""
        self._find_mixture()
        share, decay = self.mixture.tolist()
        items, lengths, *times = self._histories(interaction)
        newest = newest_first(items.cpu().numpy(), lengths.cpu().numpy())[:, : self._window]
        logits = self.head.logits(self.forward(items, lengths, *times))
        return log_mixture(logits, self._memory.after(newest, decay), share)

    def predict(self, interaction: Any) -> Tensor:
        """Return log p (B,) of each row's own item."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None])[:, 0]

    @torch.no_grad()
    def _find_mixture(self) -> None:
        """Find share and decay for the weights at hand, unless they are known."""
        if not (self._trained_further or bool(self.mixture.isnan().any())):
            return
        if self._earlier is None:
            self._earlier = self._counted(self._held_out.store, self._lengths)
        training = self.training
        self.eval()
        network = state_scorer(self, self._length, self.device)
        trials = Trials(self._earlier, exclude_seen=self._exclude_seen)
        size = max(1, SCORES_PER_BLOCK // self.n_items)
        for start in range(0, len(self._held_out), size):
            part = self._held_out[start : start + size]
            trials.add(network(part), part)
        found, mixed, alone = trials.best()
        self.train(training)
        self.mixture.copy_(torch.tensor(found, dtype=torch.float64))
        self._trained_further = False
        logger.info(
            "memory: share %.1f, decay %.1f; NDCG@10 of %d held-out items %.4f, of the network alone %.4f",
            *found, trials.cases, mixed, alone,
        )  # fmt: skip


def held_out(lengths: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.bool_]:
    """Return (U,) True for the sequences whose newest item is held out; each of them keeps two items at least."""
    rows = np.flatnonzero(lengths >= 3)
    most = min(_HELD_OUT, len(rows), int(_HELD_OUT_SHARE * np.maximum(lengths - 1, 0).sum()))
    chosen = np.zeros(len(lengths), dtype=bool)
    chosen[np.random.default_rng(seed).choice(rows, most, replace=False)] = True
    return chosen


@register("models")
class FMLPRecMemory(MemoryRecommender):
    """FMLPRecCE with an item-to-item memory: what others chose near the newest items, mixed in; ours."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "ce"}
