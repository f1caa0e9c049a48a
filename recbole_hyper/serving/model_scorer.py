"""Scores, states and vectors of a torch model, of this package or of RecBole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from recbole_hyper.batches.histories import whole_histories
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.scorers import has_users, rows_of_a_block, scores_of
from recbole_hyper.models.contract import OwnModel, item_vectors, make_scorer
from recbole_hyper.models.contract import similarity as model_similarity
from recbole_hyper.registry import reads_times
from recbole_hyper.serving.query import Query, Scorer
from recbole_hyper.types import Prefixes

if TYPE_CHECKING:
    from recbole_hyper.data.item_features import ItemFeatures

Scores = npt.NDArray[np.float32]


class ModelScorer(Scorer):
    """A trained model in evaluation mode, with its configuration, users and items.

    ``item_features`` are the features that the model reads. The key ``ranking_memory_budget`` limits how many scores
    are in memory at once.
    """

    def __init__(self, model: Any, config: Any, store: SequenceStore, item_features: ItemFeatures | None) -> None:
        self.model, self.config, self.store, self.item_features = model.eval(), config, store, item_features
        self.features = () if item_features is None else tuple(column.name for column in item_features.columns)
        self.reads_times = reads_times(config)
        self.learns_users = not isinstance(model, OwnModel) and has_users(model)
        self.score = make_scorer(model, config)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "score"}  # a closure

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, score=make_scorer(state["model"], state["config"]))

    @property
    def block(self) -> int:
        return rows_of_a_block(self.store.n_items, int(self.config["ranking_memory_budget"]))

    @torch.no_grad()
    def scores(self, query: Query) -> Scores:
        return _writable(scores_of(self.score, self._cases(query), self.store.n_items))

    def vectors(self) -> Scores | None:
        vectors = item_vectors(self.model)
        return None if vectors is None else vectors.detach().to("cpu", torch.float32).numpy()

    def add_items(self, tokens: npt.NDArray[np.str_], table: pa.Table) -> None:
        if self.item_features is None:
            super().add_items(tokens, table)
            return
        features = self.item_features.extended(table, self.config["seq_separator"])
        self.model.add_items(features, self.config)
        self.item_features = features
        self.store = replace(self.store, item_tokens=np.concatenate([self.store.item_tokens, tokens]))
        self.score = make_scorer(self.model, self.config)

    @torch.no_grad()
    def similarity(self, numbers: npt.NDArray[np.int64]) -> tuple[str, Scores] | None:
        measured = model_similarity(self.model, torch.from_numpy(numbers).to(self.config["device"]))
        return None if measured is None else (measured[0], _writable(measured[1]))

    @torch.no_grad()
    def states(self, query: Query) -> Scores:
        vectors, states = item_vectors(self.model), None
        if isinstance(self.model, OwnModel):
            if not len(query) and vectors is not None:
                return np.empty((0, vectors.shape[1]), dtype=np.float32)
            states = self.model.last_states(self._cases(query), self.config)
        if states is None:
            raise ConfigError(f"{self.config['model']} has no states: it scores histories as a whole")
        return states.float().cpu().numpy()

    def _cases(self, query: Query) -> Prefixes:
        return whole_histories(self.store, query.offsets, query.items, query.owners, query.times)


def _writable(values: torch.Tensor) -> Scores:
    return np.array(values.detach().to("cpu", torch.float32), order="C")
