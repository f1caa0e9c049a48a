"""The methods that our models have in addition to RecBole's, and functions that work for both."""

from abc import abstractmethod
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.scorers import Scorer, fold_in_scorer, full_sort_scorer
from recbole_hyper.host.dataset import StoreDataset
from recbole_hyper.matmul import gpu_precision
from recbole_hyper.registry import Model
from recbole_hyper.types import Cases, Prefixes


class OwnModel(Model):
    """Mixin of every model of this package."""

    @abstractmethod
    def training_loader(self, training: StoreDataset, store: SequenceStore, lengths: npt.NDArray, config: Any) -> Any:
        """Return the batches of an epoch, from the first ``lengths`` (U,) items of each row of ``store``."""

    @abstractmethod
    def case_scorer(self, config: Any, part: str = "test") -> Scorer:
        """Return a function that scores evaluation cases against all items.

        ``part`` is "epoch" for the validation that chooses the epoch, "valid" with the best weights, or "test".
        """

    def epoch_cases(self, cases: Cases) -> Cases:
        """Return the validation cases that choose the epoch, by default all."""
        return cases

    def complete(self) -> None:
        """Compute what the weights file lacks; by default nothing."""

    def choose(self, cases: Cases) -> bool:
        """Choose settings on the validation ``cases``, with the best weights; return whether there are any."""
        return False

    def choose_as(self, other: "OwnModel") -> None:
        """Copy the settings that ``other`` chose; a refit has no validation."""

    def item_vectors(self) -> Tensor | None:
        """Return the vectors (n_items, d) that states are scored against, or None."""
        return None

    def last_states(self, cases: Prefixes, config: Any) -> Tensor | None:
        """Return the states (n, d) after whole histories, or None."""
        return None

    def similarity(self, items: Tensor) -> tuple[str, Tensor] | None:
        """Return the model's own :func:`similarity`, None for the cosine."""
        return None

    # how names of weights begin that the model fits itself, so that a warm start fits them again
    fits_itself: tuple[str, ...] = ()
    # number of learned values, for a model without gradients
    n_learned: int | None = None


def n_learned(model: Any) -> int:
    """Return the number of learned values of any model, by default of its trained parameters."""
    counted = model.n_learned if isinstance(model, OwnModel) else None
    return sum(p.numel() for p in model.parameters() if p.requires_grad) if counted is None else counted


def make_scorer(model: Any, config: Any, *, part: str = "test") -> Scorer:
    """Return the scorer of any model for a ``part``, see :meth:`OwnModel.case_scorer`.

    RecBole's models score by fold-in or full_sort_predict.
    """
    if isinstance(model, OwnModel):
        scorer = model.case_scorer(config, part)
    else:
        scorer = fold_in_scorer(model) or full_sort_scorer(model, config)
    return scorer if config["device"].type == "cpu" else gpu_precision(config["matmul_precision"])(scorer)


def item_vectors(model: Any) -> Tensor | None:
    """Return the item vectors (n_items, d) of any model with the padding, or None.

    RecBole's graph models have them as output of the convolutions, its other models as item embedding.
    """
    if isinstance(model, OwnModel):
        return model.item_vectors()
    vectors = getattr(model, "restore_item_e", None)
    if vectors is None:
        vectors = getattr(getattr(model, "item_embedding", None), "weight", None)
    # BERT4Rec has a row for its mask after the items
    return None if not isinstance(vectors, Tensor) or vectors.dim() != 2 else vectors.detach()[: model.n_items]


def similarity(model: Any, items: Tensor) -> tuple[str, Tensor] | None:
    """Return (name of the similarity, similarity (q, n_items) of ``items`` (q,) to all items) of any model, or None."""
    own = model.similarity(items) if isinstance(model, OwnModel) else None
    if own is not None or (vectors := item_vectors(model)) is None:
        return own
    normed = torch.nn.functional.normalize(vectors.detach().float(), dim=1)
    return "cosine of the item vectors", normed[items] @ normed.T
