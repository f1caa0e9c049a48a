"""What a model of this package offers beside RecBole's methods, and what stands in for RecBole's own models."""

from abc import abstractmethod
from importlib import import_module
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import Scorer
from recbole_hyper.evaluation.scorers import fold_in_scorer, full_sort_scorer
from recbole_hyper.registry import Model
from recbole_hyper.types import Cases

# by its name: what comes before runs imports nothing of them
_ESTIMATOR = "recbole_hyper.runs.estimator"


class ModelClass(type):
    """Class of the models' classes: called as RecBole calls a model they make one, with options alone an estimator.

    ``HSASRecCE(config, dataset)`` is the network; ``HSASRecCE(hidden_size=64)`` has ``fit(frame)``.
    """

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        """Return the model, or the estimator of it."""
        if arguments or {"config", "dataset"} <= options.keys():
            return super().__call__(*arguments, **options)
        return import_module(_ESTIMATOR).Estimator(cls, options)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Return whether ``instance`` is a model of this class, or the estimator of one."""
        is_estimator = getattr(type(instance), "is_estimator", False)
        return super().__instancecheck__(instance) or (is_estimator and issubclass(instance.model, cls))


class OwnModel(Model, metaclass=ModelClass):
    """Mixin of every model of this package.

    Features of users, items or interactions are read, by RecBole and in its slower way, for a model that
    ``reads_features``.
    """

    reads_features: ClassVar[bool] = False

    @abstractmethod
    def training_loader(
        self, training: SequenceDataset, store: SequenceStore, lengths: npt.NDArray, config: Any
    ) -> Any:
        """Return the batches of an epoch: of the dataset ``training``, ``lengths`` (U,) of each row of ``store``."""

    @abstractmethod
    def case_scorer(self, config: Any) -> Scorer:
        """Return the function that scores evaluation cases against all items."""

    def complete(self) -> None:
        """Compute what a weights file that was read does not hold; by default it holds all."""

    def choose(self, cases: Cases) -> None:
        """Choose what a model does not learn but finds on the validation ``cases``, before they are ranked."""

    def choose_as(self, other: "OwnModel") -> None:
        """Take over what another model of this class chose, for a refit, which has no validation."""

    def item_vectors(self) -> Tensor | None:
        """Return the vectors (n_items, d) that states are scored against, None where the model has none."""
        return None

    def last_states(self, cases: Cases, config: Any) -> Tensor | None:
        """Return the states (n, d) behind whole histories, None where the model has none."""
        return None

    def similarity(self, items: Tensor, config: Any) -> tuple[str, Tensor] | None:
        """Return (what is measured, likeness (q, n_items) of ``items`` (q,) to all), None where vectors say nothing."""
        vectors = self.item_vectors()
        return None if vectors is None else cosine(items, vectors)

    # number of learned values, of a model that is fitted without gradients
    n_learned: int | None = None


def n_learned(model: Any) -> int:
    """Return the number of learned values of any model: its parameters with gradient, unless it knows better."""
    own = model.n_learned if isinstance(model, OwnModel) else None
    return sum(one.numel() for one in model.parameters() if one.requires_grad) if own is None else own


def make_scorer(model: Any, config: Any) -> Scorer:
    """Return the scorer of any model: its own, or for RecBole's by fold-in or full_sort_predict."""
    if isinstance(model, OwnModel):
        return model.case_scorer(config)
    return fold_in_scorer(model) or full_sort_scorer(model, config)


def cosine(items: Tensor, vectors: Tensor) -> tuple[str, Tensor]:
    """Return (the measure in words, the cosine (q, n_items) of the vectors of ``items`` (q,) with all)."""
    normed = torch.nn.functional.normalize(vectors.detach().float(), dim=1)
    return "cosine of the item vectors", normed[items] @ normed.T


def item_vectors(model: Any) -> Tensor | None:
    """Return the item vectors (n_items, d) of any model, padding included, or None where it has none.

    Of RecBole's: those behind its graph convolutions where it has them, else its item embedding.
    """
    if isinstance(model, OwnModel):
        return model.item_vectors()
    vectors = getattr(model, "restore_item_e", None)
    if vectors is None:
        vectors = getattr(getattr(model, "item_embedding", None), "weight", None)
    # BERT4Rec embeds its mask behind the items
    return None if not isinstance(vectors, Tensor) or vectors.dim() != 2 else vectors.detach()[: model.n_items]


def similarity(model: Any, items: Tensor, config: Any) -> tuple[str, Tensor] | None:
    """Return (what is measured, likeness (q, n_items) of ``items`` (q,) to all items) of any model, or None."""
    if isinstance(model, OwnModel):
        return model.similarity(items, config)
    vectors = item_vectors(model)
    return None if vectors is None else cosine(items, vectors)
