"""What the models with two directions add to the composition: the objective over both."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from recbole_hyper.data.dataset import TARGET_LIST
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.models.base import HyperRecommender


class DualRecommender(HyperRecommender):
    """A composition whose encoder is a :class:`~recbole_hyper.encoders.dual.DualEncoder`; any geometry and any loss.

    ``loss_terms`` holds past_loss, future_loss and transfer_loss before weighting, and the statistics of the loss,
    those of the future direction with the prefix ``future_``.
    """

    def calculate_loss(self, interaction: Any) -> Tensor:
        """Return alpha past + (1 - alpha) future + beta transfer for a batch of windows.

        Raises:
            ValueError: the batch holds (prefix, target) rows, in which no future can be read.
        """
        if not isinstance(self.encoder, DualEncoder):
            return super().calculate_loss(interaction)
        if TARGET_LIST not in interaction:
            raise ValueError(f"{type(self).__name__} trains on windows; batches without {TARGET_LIST!r} hold no future")
        users = interaction[self.USER_ID]
        statistics: list[dict[str, float]] = []

        def loss_of(states: Tensor, answers: Tensor, rows: Tensor) -> Tensor:
            loss = self._loss(states, answers, users, rows)
            statistics.append(self.loss_terms)
            return loss

        total, terms = self.encoder.training_loss(
            interaction[self.ITEM_SEQ], interaction[TARGET_LIST], interaction[self.ITEM_SEQ_LEN], loss_of
        )
        self.loss_terms = {name: float(value) for name, value in terms.items()} | statistics[0]
        for name, value in statistics[1].items() if len(statistics) > 1 else ():
            self.loss_terms[f"future_{name}"] = value
        return total
