"""Models with an item-to-item memory beside their network, trained together."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.data.dataset import TARGET_LIST
from recbole_hyper.data.loader import gather
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.ranking import Scorer
from recbole_hyper.evaluation.scorers import encode_cases
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.keys import KEYS
from recbole_hyper.losses.ce import CrossEntropy
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.item_memory import ItemMemory
from recbole_hyper.registry import register
from recbole_hyper.types import Cases


class MemoryRecommender(HyperRecommender):
    """A recommender whose probabilities are a mixture: of its network's, and of an :class:`ItemMemory`'s.

    Every encoder that reads the past alone and every geometry can be the network; the loss is the exact cross-entropy
    of the mixture. A score is the logarithm of a probability. States and item vectors are the network's: by themselves
    they do not give the scores.
    """

    scores_by_head = False

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        window = min(int(config["memory_window"]), int(config["MAX_ITEM_LIST_LENGTH"]))
        counts, totals = pair_counts(
            dataset.store, dataset.train_lengths, window=window, neighbours=int(config["memory_neighbours"])
        )
        width = int(config["hidden_size"])
        self.memory = ItemMemory(counts, torch.from_numpy(totals), window=window, width=width)

    @classmethod
    def check_config(cls, config: Any) -> None:
        super().check_config(config)
        for key in ("memory_window", "memory_neighbours"):
            KEYS[key].check(config[key])
        loss = cls.build_loss(config)
        if not isinstance(loss, CrossEntropy) or loss.label_smoothing:
            raise ConfigError(
                f"{cls.__name__} mixes probabilities of all items, which only loss_type=ce without label_smoothing "
                f"trains; loss_type={config['loss_type']}, label_smoothing={config['label_smoothing']}"
            )
        if registry.resolve("encoders", config["encoder"]).reads_future:
            raise ConfigError(f"{cls.__name__} needs an encoder of the past alone, not encoder={config['encoder']}")

    def calculate_loss(self, interaction: Any) -> Tensor:
        """Return the mean cross-entropy of the mixture over the targets of a batch, shape ()."""
        items, lengths, *times = self._histories(interaction)
        head = self.head.of_step()
        if TARGET_LIST in interaction:
            targets = interaction[TARGET_LIST]
        else:  # RecBole's (prefix, target) rows
            targets = torch.zeros_like(items)
            targets[torch.arange(len(items)), lengths - 1] = interaction[self.POS_ITEM_ID]

        def loss_of(states: Tensor, answers: Tensor, rows: Tensor) -> Tensor:
            if not torch.equal(answers, targets[targets > 0]):
                raise ValueError(
                    f"{type(self.encoder).__name__} does not give one state for each target in their order"
                )
            network = self._network_losses(states, answers, head)
            return self.memory.losses(states, network, items, targets).mean()

        total, terms = self.encoder.training_loss(items, targets, lengths, loss_of, *times)
        self.loss_terms = {name: float(value) for name, value in terms.items()}
        return total

    def _network_losses(self, states: Tensor, answers: Tensor, head: OutputHead) -> Tensor:
        assert isinstance(self.loss, CrossEntropy)
        return self.loss.per_target(states, self.head.numbered(answers), head)

    def case_scorer(self, config: Any) -> Scorer:
        head, length = self.head.frozen(), int(config["MAX_ITEM_LIST_LENGTH"])

        @torch.no_grad()
        def score(cases: Cases) -> Tensor:
            states = encode_cases(self, cases, length, config["device"])
            starts = np.maximum(cases.ends - self.memory.window, cases.starts)
            recent = gather(cases.store, cases.rows, starts, cases.ends, self.memory.window)
            items = newest_first(torch.from_numpy(recent), torch.from_numpy(cases.ends - starts)).to(states.device)
            return self.memory.log_mixture(states, items, head.scores(states, 0, head.n_items))

        return score

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return log p (B, n_items) of all items; column 0 is padding."""
        items, lengths, *times = self._histories(interaction)
        states = self.forward(items, lengths, *times)
        recent = newest_first(items, lengths)[:, : self.memory.window]
        return self.memory.log_mixture(states, recent, self.head.logits(states).detach())

    def predict(self, interaction: Any) -> Tensor:
        """Return log p (B,) of each row's own item."""
        return self.full_sort_predict(interaction).gather(1, interaction[self.ITEM_ID][:, None])[:, 0]


def newest_first(items: Tensor, lengths: Tensor) -> Tensor:
    """Return right-padded ``items`` (n, L) of ``lengths`` (n,) in the opposite order, padded at the right again."""
    places = lengths[:, None] - 1 - torch.arange(items.shape[1], device=items.device)
    return items.gather(1, places.clamp_min(0)) * (places >= 0)


@register("models")
class FMLPRecMemory(MemoryRecommender):
    """FMLPRecCE with an item-to-item memory: what others chose near the newest items, its weight learned; ours."""

    parts = {"encoder": "fmlp", "geometry": "euclidean", "loss_type": "ce"}
