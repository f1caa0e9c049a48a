"""Base of the linear models: one fit on the training matrix, then scores from any history."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor, nn

from recbole_hyper.batches.histories import accumulate, history_steps
from recbole_hyper.batches.loader import as_batch
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.scorers import Scorer
from recbole_hyper.host.dataset import StoreDataset
from recbole_hyper.models.base import OneStepRecommender
from recbole_hyper.types import Prefixes


def binary_matrix(dataset: Any) -> scipy.sparse.csr_matrix:
    """Return the training matrix (n_users, n_items) of ``dataset``: repeated interactions count once."""
    matrix = dataset.inter_matrix("csr").astype(np.float32)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


class LinearRecommender(OneStepRecommender):
    """A model that fits in one step, its only epoch, and folds binary histories into linear states to score them.

    New users and successive evaluation therefore need no new fit. The learned values are buffers
    (:meth:`keep_learned`), which the weights file contains if ``save_data`` is True.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.matrix = binary_matrix(dataset)
        self._is_saved = bool(config["save_data"])
        # RecBole's trainer needs a parameter
        self.nothing = nn.Parameter(torch.zeros(1))
        self.fitted = False

    def keep_learned(self, name: str) -> None:
        """Register the buffer ``self.<name>``, which :meth:`fit` or a weights file fills."""
        self.register_buffer(name, torch.empty(0), persistent=self._is_saved)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        for name in set(self._buffers) - self._non_persistent_buffers_set:
            if prefix + name in state_dict:  # its shape is unknown before the fit
                setattr(self, name, state_dict[prefix + name].to(self.device))
                self.fitted = True
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def complete(self) -> None:
        """Fit if the weights file has no learned values, with ``save_data=False``."""
        if not self.fitted:
            self.fit()
            self.fitted = True

    @abstractmethod
    def fit(self) -> None:
        """Fit to ``self.matrix``."""

    @abstractmethod
    def fold_in(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        """Return the states (n, d) of binary histories (n, n_items), which are linear in the histories."""

    def scores(self, states: Tensor) -> Tensor:
        """Return the scores (n, n_items) of states (n, d); by default the states are the scores."""
        return states

    def score_cases(self, cases: Prefixes) -> Tensor:
        """Return the scores (n, n_items) of cases; a successive case only adds its newest items to the state before."""
        steps, continues = history_steps(cases)
        return self.scores(accumulate(self.fold_in(steps), continues))

    def training_loader(
        self, training: StoreDataset, store: SequenceStore, lengths: npt.NDArray, config: Any
    ) -> OneStep:
        """Return a loader of one batch, so that the trainer calls :meth:`calculate_loss` once."""
        return OneStep(training)

    def case_scorer(self, config: Any, part: str = "test") -> Scorer:
        return self.score_cases

    def calculate_loss(self, interaction: Any) -> Tensor:
        """Fit at the first call, and return 0."""
        self.complete()
        return 0.0 * self.nothing.sum()

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return the scores (B, n_items) of training users, from their training histories."""
        return self.scores(self.fold_in(self.matrix[interaction[self.USER_ID].cpu().numpy()]))

    def predict(self, interaction: Any) -> Tensor:
        """Return the score (B,) of each row's user and item, which RecBole asks for when candidates are drawn."""
        scores = self.full_sort_predict(interaction)
        return scores.gather(1, interaction[self.ITEM_ID].to(scores.device)[:, None])[:, 0]


class OneStep(list[Any]):
    """A training loader of one empty batch."""

    shuffle = False

    def __init__(self, dataset: Any) -> None:
        super().__init__([as_batch({})])
        self.dataset = self._dataset = dataset
