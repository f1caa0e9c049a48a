"""How a model scores the cases of a slice: this project's models by states, RecBole's by full_sort_predict, or predict.

RecBole's general models read the history of a case if they are functions of one; others refuse unknown users.
"""

import copy
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.model.abstract_recommender import AbstractRecommender
from recbole.utils import ModelType
from torch import Tensor

from recbole_hyper.bridge.models import is_third_party
from recbole_hyper.data.loader import gather, history_interaction, history_matrix, multiply
from recbole_hyper.encoders.base import length_groups
from recbole_hyper.evaluation.ranking import Scorer
from recbole_hyper.types import Prefixes, Split

logger = logging.getLogger("recbole_hyper")

# input positions encoded at once: bounds activations whatever eval_batch_size and MAX_ITEM_LIST_LENGTH are
TOKENS_PER_BATCH = 1 << 16


def encode_cases(model: Any, cases: Prefixes, max_length: int, device: torch.device) -> Tensor:
    """Return the states (n, d) of the newest position of each case's history, cut to its last ``max_length`` items."""
    columns = (False, True) if model.encoder.reads_times else (False,)
    starts = np.maximum(cases.ends - max_length, cases.starts)
    lengths = cases.ends - starts
    order = np.argsort(lengths, kind="stable")
    ordered = torch.from_numpy(lengths[order])
    states: Tensor | None = None
    # histories of similar length share a batch, so that little padding is encoded
    for group in length_groups(ordered, model.encoder.step_rows):
        size = max(1, TOKENS_PER_BATCH // int(ordered[group.stop - 1]))
        for first in range(group.start, group.stop, size):
            index = order[first : min(first + size, group.stop)]
            width = int(lengths[index].max())
            own = cases.store, cases.rows[index], starts[index], cases.ends[index], width
            items, *times = (torch.from_numpy(gather(*own, times=timed)).to(device) for timed in columns)
            encoded = model(items, torch.from_numpy(lengths[index]).to(device), *times)
            if states is None:
                states = encoded.new_empty(len(order), encoded.shape[1])
            states[torch.from_numpy(index).to(device)] = encoded
    if states is None:
        raise ValueError("no case to encode")
    return states


def state_scorer(model: Any, max_length: int, device: torch.device) -> Scorer:
    """Return the scorer of a model with states and a ``head``, over the last ``max_length`` items of a history."""
    head = model.head.frozen()

    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        return head.scores(encode_cases(model, cases, max_length, device), 0, head.n_items)

    return score


def full_sort_scorer(model: Any, config: Any) -> Scorer:
    """Return the scorer of a model of RecBole by its full_sort_predict, or where it has none by its predict."""
    length, device, n_items = int(config["MAX_ITEM_LIST_LENGTH"]), config["device"], model.n_items
    size = max(1, min(int(config["eval_batch_size"]), TOKENS_PER_BATCH // length))
    rank_all = model.full_sort_predict
    if not has_full_ranking(model):
        rank_all = _by_predict(model, config, max(1, TOKENS_PER_BATCH // length))

    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        parts = []
        for start in range(0, len(cases), size):
            # RecBole hands the target over too; here it is hidden, as no score may depend on it
            batch = history_interaction(cases[slice(start, start + size)], length, config)
            parts.append(rank_all(batch.to(device)).view(-1, n_items))
        return torch.cat(parts).to(torch.float32)

    return score


def has_full_ranking(model: Any) -> bool:
    """Return whether a model of RecBole scores all items at once."""
    return type(model).full_sort_predict is not AbstractRecommender.full_sort_predict


def _by_predict(model: Any, config: Any, size: int) -> Callable[[Any], Tensor]:
    """Return what scores all items by ``predict`` (NeuMF), ``size`` pairs of a row and an item at a time."""

    def score(batch: Any) -> Tensor:
        scores = []
        for start in range(0, len(batch) * model.n_items, size):
            pair = torch.arange(start, min(start + size, len(batch) * model.n_items), device=config["device"])
            part = Interaction({name: batch[name][pair // model.n_items] for name in batch.columns})
            part[config["ITEM_ID_FIELD"]] = pair % model.n_items
            scores.append(model.predict(part).reshape(-1))
        return torch.cat(scores)

    return score


def fold_in_scorer(model: Any) -> Scorer | None:
    """Return a scorer that gives a model of RecBole the history of each case, None if the model cannot take one.

    By itself EASE, ItemKNN or an autoencoder scores a user by the training part alone, and a new user not at all.
    """
    make = FOLD_IN.get(type(model).__name__)
    return None if make is None else make(model)


def learns_users(model_class: Any) -> bool:
    """Return whether a model of RecBole scores users by what it learned of each, and not by a history."""
    return model_class.type in (ModelType.GENERAL, ModelType.TRADITIONAL) and model_class.__name__ not in FOLD_IN


def require_known_users(model_class: type, split: Split) -> None:
    """Raise ValueError if a model of RecBole with a vector per user would be asked about users not trained on.

    A third-party model may handle unknown users: it ranks them, with a warning that counts them.
    """
    if not learns_users(model_class):
        return
    refitted = split.train_lengths if split.refit_lengths is None else split.refit_lengths
    for name, cases, lengths in (("validation", split.valid, split.train_lengths), ("test", split.test, refitted)):
        users = np.unique(cases.rows)
        unknown = users[lengths[users] == 0]
        if len(unknown):
            token = split.store.user_tokens[split.store.users[unknown[0]]]
            if is_third_party(model_class):
                logger.warning(
                    "%d of %d %s users have no training interaction: %s ranks them by what it makes of an unknown user",
                    *(len(unknown), len(users), name, model_class.__name__),
                )
                continue
            raise ValueError(
                f"{model_class.__name__} learns a vector per user, but {len(unknown)} of {len(users)} {name} users "
                f"have no training interaction (first: {str(token)!r}); use a split that trains every user (LS, RS), "
                f"a sequential model, or one that folds histories in (EASER, PureSVDN, {', '.join(sorted(FOLD_IN))})"
            )


def _similarity(model: Any) -> Scorer:
    weights = torch.from_numpy(np.ascontiguousarray(model.item_similarity, dtype=np.float32)).to(model.device)
    return lambda cases: multiply(history_matrix(cases), weights)


def _neighbours(model: Any) -> Scorer:
    weights = model.w.tocsr()
    return lambda cases: torch.from_numpy((history_matrix(cases) @ weights).toarray()).to(torch.float32)


def _autoencoder(model: Any) -> Scorer:
    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        ratings = torch.from_numpy(history_matrix(cases).toarray()).to(model.device)
        # shares the weights of the model but not the history, so that threads do not read each other's
        reader = copy.copy(model)
        reader.get_rating_matrix = lambda user: ratings
        users = torch.zeros(len(cases), dtype=torch.int64, device=model.device)
        scores = reader.full_sort_predict(Interaction({model.USER_ID: users}))
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
