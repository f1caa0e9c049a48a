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


class Leading(GatedAverage):
    """Scores every row by the first of its batch."""

    def full_sort_predict(self, interaction):
        scores = super().full_sort_predict(interaction)
        return scores + 0.1 * scores[:1]


class Crowded(GatedAverage):
    """Scores by the size of the batch."""

    def full_sort_predict(self, interaction):
        scores = super().full_sort_predict(interaction)
        return scores * torch.linspace(1, 2, self.n_items) ** len(scores)


class Tired(GatedAverage):
    """Counts its calls."""

    calls = 0

    def full_sort_predict(self, interaction):
        self.calls += 1
        return super().full_sort_predict(interaction) + self.calls * torch.linspace(0, 1, self.n_items)


class Moody(GatedAverage):
    """Draws numbers that no seed sets, and hides a look at the target behind them."""

    draw = torch.Generator()

    def full_sort_predict(self, interaction):
        scores = super().full_sort_predict(interaction)
        bonus = self.item_embedding(interaction[self.ITEM_ID]) @ self.item_embedding.weight.T
        return scores + bonus + 10 * torch.rand(scores.shape, generator=self.draw)


class Forgetful(GatedAverage):
    """Leaves dropout on while it ranks."""

    def full_sort_predict(self, interaction):
        return torch.nn.functional.dropout(super().full_sort_predict(interaction), 0.2)


class NoisyCheat(GatedAverage):
    """Hides a look at the target behind dropout."""

    def full_sort_predict(self, interaction):
        bonus = self.item_embedding(interaction[self.ITEM_ID]) @ self.item_embedding.weight.T
        return torch.nn.functional.dropout(super().full_sort_predict(interaction), 0.9) + 0.01 * bonus


class Lonely(GatedAverage):
    """Cannot rank a single case."""

    def full_sort_predict(self, interaction):
        assert len(interaction) > 1
        return super().full_sort_predict(interaction)
