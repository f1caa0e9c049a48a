"""A model whose base class is in the file beside it."""

from pooled_base import PooledBase
from torch import nn


class WeightedPool(PooledBase):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.score = nn.Linear(config["embedding_size"], 1)

    def pool(self, x, mask):
        weight = self.score(x).squeeze(-1).masked_fill(~mask, -1e9).softmax(-1)
        return (weight.unsqueeze(-1) * x).sum(1)
