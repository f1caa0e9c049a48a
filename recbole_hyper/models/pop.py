"""Popularity, a baseline for every comparison."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.models._linear import LinearRecommender


class Pop(LinearRecommender):
    """Every user gets the items with the most training interactions.

    RecBole's model of this name counts an item only once per batch; this one counts every interaction.
    """

    counts: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._items, self.n_learned = dataset.inter_feat[self.ITEM_ID].numpy(), self.n_items - 1
        self.keep_learned("counts")

    def fit(self) -> None:
        counts = np.bincount(self._items, minlength=self.n_items)
        self.counts = torch.from_numpy(counts.astype(np.float32)).to(self.device)

    def fold_in(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        return self.counts.new_empty(histories.shape[0], 0)  # scores do not depend on the history

    def scores(self, states: Tensor) -> Tensor:
        return self.counts.repeat(len(states), 1)
