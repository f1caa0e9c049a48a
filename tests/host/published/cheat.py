"""Models with a leak: RecBole hands the target to full_sort_predict, and these read it."""

import torch
from gated_average import GatedAverage


class Cheat(GatedAverage):
    def full_sort_predict(self, interaction):
        bonus = self.item_embedding(interaction[self.ITEM_ID]) @ self.item_embedding.weight.T
        return super().full_sort_predict(interaction) + 1000 * bonus


class LateCheat(GatedAverage):
    """Reads the target once it has learned to."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.trust = torch.nn.Parameter(torch.zeros(()))

    def calculate_loss(self, interaction):
        return super().calculate_loss(interaction) - self.trust

    def full_sort_predict(self, interaction):
        bonus = self.item_embedding(interaction[self.ITEM_ID]) @ self.item_embedding.weight.T
        return super().full_sort_predict(interaction) + self.trust * bonus


class Neighbourly(GatedAverage):
    """Scores a row by the rows beside it."""

    def full_sort_predict(self, interaction):
        scores = super().full_sort_predict(interaction)
        return scores - scores.mean(0)


class TimeTeller(GatedAverage):
    """Knows when the target item will come."""

    def full_sort_predict(self, interaction):
        return super().full_sort_predict(interaction) * interaction["timestamp"].unsqueeze(1)


class Harmless(GatedAverage):
    """Looks at the column of targets, and makes nothing of it."""

    def full_sort_predict(self, interaction):
        assert len(interaction[self.ITEM_ID]) == len(interaction[self.ITEM_SEQ])
        return super().full_sort_predict(interaction)
