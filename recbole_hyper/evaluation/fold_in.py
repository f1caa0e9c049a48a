"""RecBole's general models on histories: folded in where the model is a function of a history, refused where not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.utils import ModelType
from torch import Tensor

from recbole_hyper.data.histories import history_matrix, multiply
from recbole_hyper.evaluation.ranking import Scorer
from recbole_hyper.types import Cases, Split


def fold_in_scorer(model: Any) -> Scorer | None:
    """Return a scorer that gives a model of RecBole the history of each case, None if the model cannot take one.

    Without it EASE, ItemKNN and the autoencoders would score a user by the training part alone, whatever happened
    since, and a new user not at all.
    """
    make = FOLD_IN.get(type(model).__name__)
    return None if make is None else make(model)


def learns_users(model_class: Any) -> bool:
    """Return whether a model of RecBole scores users by what it learned of each, and not by a history."""
    return model_class.type in (ModelType.GENERAL, ModelType.TRADITIONAL) and model_class.__name__ not in FOLD_IN


def require_known_users(model_class: type, split: Split) -> None:
    """Raise ValueError if a model of RecBole with a vector per user would be asked about users not trained on."""
    if not learns_users(model_class):
        return
    refitted = split.train_lengths if split.refit_lengths is None else split.refit_lengths
    for name, cases, lengths in (("validation", split.valid, split.train_lengths), ("test", split.test, refitted)):
        users = np.unique(cases.rows)
        unknown = users[lengths[users] == 0]
        if len(unknown):
            token = split.store.user_tokens[split.store.users[unknown[0]]]
            raise ValueError(
                f"{model_class.__name__} learns a vector per user, but {len(unknown)} of {len(users)} {name} users "
                f"have no training interaction (first: {str(token)!r}); use a split that trains every user (LS, RS), "
                f"a sequential model, or one that folds histories in (EASER, PureSVDN, {', '.join(sorted(FOLD_IN))})"
            )


def _similarity(model: Any) -> Scorer:
    weights: Tensor | None = None

    def score(cases: Cases) -> Tensor:
        nonlocal weights
        if weights is None:
            weights = torch.from_numpy(np.ascontiguousarray(model.item_similarity, dtype=np.float32)).to(model.device)
        return multiply(history_matrix(cases), weights)

    return score


def _neighbours(model: Any) -> Scorer:
    weights = model.w.tocsr()

    def score(cases: Cases) -> Tensor:
        return torch.from_numpy((history_matrix(cases) @ weights).toarray()).to(torch.float32)

    return score


def _autoencoder(model: Any) -> Scorer:
    @torch.no_grad()
    def score(cases: Cases) -> Tensor:
        ratings = torch.from_numpy(history_matrix(cases).toarray()).to(model.device)
        own = model.get_rating_matrix
        model.get_rating_matrix = lambda user: ratings
        try:
            users = torch.zeros(len(cases), dtype=torch.int64, device=model.device)
            scores = model.full_sort_predict(Interaction({model.USER_ID: users}))
        finally:
            model.get_rating_matrix = own
        return scores.view(len(cases), -1)

    return score


FOLD_IN: dict[str, Callable[[Any], Scorer]] = {
    "EASE": _similarity,
    "ItemKNN": _neighbours,
    "MultiVAE": _autoencoder,
    "MultiDAE": _autoencoder,
    "RecVAE": _autoencoder,
    "MacridVAE": _autoencoder,
}
