"""Models that keep what they learn outside their weights."""

import torch
from gated_average import GatedAverage


class Keeper(GatedAverage):
    """Counts the targets of training, and prefers them."""

    def calculate_loss(self, interaction):
        self.count(torch.bincount(interaction[self.ITEM_ID], minlength=self.n_items).float())
        return super().calculate_loss(interaction)

    def full_sort_predict(self, interaction):
        return super().full_sort_predict(interaction) + self.counted()


class PlainTensor(Keeper):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.counts = torch.zeros(self.n_items)

    def count(self, targets):
        self.counts = self.counts + targets

    def counted(self):
        return self.counts


class HiddenBuffer(PlainTensor):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        del self.counts
        self.register_buffer("counts", torch.zeros(self.n_items), persistent=False)


class KeptBuffer(PlainTensor):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        del self.counts
        self.register_buffer("counts", torch.zeros(self.n_items))


class Dictionary(Keeper):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.seen = {}

    def count(self, targets):
        for item in targets.nonzero().flatten().tolist():
            self.seen[item] = self.seen.get(item, 0) + 1

    def counted(self):
        return torch.tensor([float(self.seen.get(item, 0)) for item in range(self.n_items)])
