"""Scorers: functions from cases to scores of all items.

Models of this package score by their states, RecBole's by full_sort_predict or predict. RecBole's general models that
are functions of a history read the history of each case; the others refuse unknown users.
"""

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.batches.histories import history_matrix, multiply
from recbole_hyper.devices import CPU
from recbole_hyper.encoders.base import length_groups
from recbole_hyper.host.models import has_full_ranking, one_line
from recbole_hyper.types import Prefixes, Split, gather

logger = logging.getLogger("recbole_hyper")

# most positions encoded at once; bounds the activations for any eval_batch_size and MAX_ITEM_LIST_LENGTH
TOKENS_PER_BATCH = 1 << 16


Scorer = Callable[[Prefixes], Tensor]
# a float32 score and the result of one comparison
_BYTES_PER_SCORE = 5
# most scores computed at once, unless 256 rows have more
SCORES_PER_BLOCK = 6 << 20


class ScoresError(ValueError):
    """A scorer did not return a score per case and item."""


def encode_cases(model: Any, cases: Prefixes, max_length: int, device: torch.device) -> Tensor:
    """Return the (n, d) states after the last ``max_length`` items of each case's history."""
    columns = (False, True) if model.encoder.reads_times else (False,)
    starts = np.maximum(cases.ends - max_length, cases.starts)
    lengths = cases.ends - starts
    order = np.argsort(lengths, kind="stable")
    ordered = torch.from_numpy(lengths[order])
    states: Tensor | None = None
    # histories of similar length share a batch, to encode little padding
    for group in length_groups(ordered, model.encoder.step_rows):
        size = max(1, TOKENS_PER_BATCH // int(ordered[group.stop - 1]))
        for first in range(group.start, group.stop, size):
            index = order[first : min(first + size, group.stop)]
            width = int(lengths[index].max())
            histories = cases.store, cases.rows[index], starts[index], cases.ends[index], width
            items, *times = (torch.from_numpy(gather(*histories, times=timed)).to(device) for timed in columns)
            encoded = model(items, torch.from_numpy(lengths[index]).to(device), *times)
            if states is None:
                states = encoded.new_empty(len(order), encoded.shape[1])
            states[torch.from_numpy(index).to(device)] = encoded
    if states is None:
        raise ValueError("there are no cases to encode")
    return states


def state_scorer(
    model: Any, max_length: int, device: torch.device, states_of: Callable[[Prefixes], Tensor] | None = None
) -> Scorer:
    """Return the scorer of a model with an encoder and a ``head``; it reads the last ``max_length`` items.

    ``states_of`` returns the states (n, d) of cases where they need not be encoded.
    """
    head = model.head.frozen()

    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        states = encode_cases(model, cases, max_length, device) if states_of is None else states_of(cases)
        return head.scores(states, 0, head.n_items)

    return score


def full_sort_scorer(model: Any, config: Any) -> Scorer:
    """Return the scorer of a RecBole model, by its full_sort_predict or else its predict."""
    from recbole_hyper.batches.loader import BatchSettings, history_interaction

    length, device = int(config["MAX_ITEM_LIST_LENGTH"]), config["device"]
    size = max(1, min(int(config["eval_batch_size"]), TOKENS_PER_BATCH // length))
    settings, has_all = BatchSettings.of(config), has_full_ranking(type(model))

    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        # a model's own n_items may count a token for masks, which no case has
        n_items, parts = cases.store.n_items, []
        predict = functools.partial(_by_predict, model, settings.item, n_items, max(1, TOKENS_PER_BATCH // length))
        score_all = model.full_sort_predict if has_all else predict
        for start in range(0, len(cases), size):
            # RecBole also passes the target, which no score may depend on; here it is left out
            batch = history_interaction(cases[slice(start, start + size)], length, settings)
            with one_line(config, "while it ranked"):
                parts.append(score_all(batch.to(device)).view(-1, n_items))
        return as_float32(torch.cat(parts))

    return score


def as_float32(scores: Tensor) -> Tensor:
    """Return scores as float32; warn if that makes different ones of a row's 100 best equal."""
    result = scores.to(torch.float32)
    if scores.dtype in (torch.float64, torch.int64, torch.int32):
        best = scores.topk(min(100, scores.shape[1]), dim=1).values
        tied = ((best[:, 1:] != best[:, :-1]) & (best[:, 1:].float() == best[:, :-1].float())).any(dim=1)
        if bool(tied.any()):
            logger.warning(
                "%d of %d cases have %s scores that float32 cannot tell apart: they tie, and a target ranks behind all "
                "items with its score; subtract a row's mean or multiply, so that differences have 6 digits",
                int(tied.sum()), len(tied), str(scores.dtype).removeprefix("torch."),
            )  # fmt: skip
    return result


def _by_predict(model: Any, item: str, n_items: int, size: int, batch: Any) -> Tensor:
    """Return the scores of all items by ``predict`` (NeuMF), for ``size`` pairs of row and item at once."""
    from recbole_hyper.batches.loader import as_batch

    scores = []
    for start in range(0, len(batch) * n_items, size):
        pair = torch.arange(start, min(start + size, len(batch) * n_items), device=batch[item].device)
        part = as_batch({name: batch[name][pair // n_items] for name in batch.columns})
        part[item] = pair % n_items
        scores.append(model.predict(part).reshape(-1))
    return torch.cat(scores)


def fold_in_scorer(model: Any) -> Scorer | None:
    """Return a scorer that passes the history of each case to a RecBole model, None if the model cannot take one.

    In RecBole, EASE and autoencoders score a user by the training part only, and new users not at all.
    """
    make = FOLD_IN.get(type(model).__name__)
    return None if make is None else make(model)


def learns_users(model_class: Any) -> bool:
    """Return whether a RecBole model has parameters per user, instead of reading a history."""
    return model_class.type.name in ("GENERAL", "TRADITIONAL") and model_class.__name__ not in FOLD_IN


def has_users(model: Any) -> bool:
    """Return whether a model of RecBole has a parameter for each user, beside a history or instead of one."""
    return learns_users(type(model)) or hasattr(model, "n_users") or hasattr(model, "n_user")


def require_known_users(model_class: Any, split: Split) -> None:
    """Raise ValueError if a RecBole model with a vector per user would have to rank for users it was not trained on.

    A third-party model may handle unknown users, so it only gets a warning.
    """
    if not learns_users(model_class):
        return
    refitted = split.train_lengths if split.refit_lengths is None else split.refit_lengths
    for name, cases, lengths in (("validation", split.valid, split.train_lengths), ("test", split.test, refitted)):
        users = np.unique(cases.rows)
        unknown = users[lengths[users] == 0]
        if len(unknown):
            token = split.store.user_tokens[split.store.users[unknown[0]]]
            if model_class.origin == "third":
                logger.warning(
                    "%d of %d %s users have no training interaction; their lists depend on how %s treats unknown users",
                    *(len(unknown), len(users), name, model_class.__name__),
                )
                continue
            raise ValueError(
                f"{model_class.__name__} learns a vector per user, but {len(unknown)} of {len(users)} {name} users "
                f"have no training interaction (first: {str(token)!r}); use a split that trains every user (LS, RS), "
                f"a sequential model, or one that reads histories (EASER, PureSVDN, {', '.join(sorted(FOLD_IN))})"
            )


def _similarity(model: Any) -> Scorer:
    weights = torch.from_numpy(np.ascontiguousarray(model.item_similarity, dtype=np.float32)).to(model.device)
    return lambda cases: multiply(history_matrix(cases), weights)


def _autoencoder(model: Any) -> Scorer:
    from recbole_hyper.batches.loader import as_batch

    @torch.no_grad()
    def score(cases: Prefixes) -> Tensor:
        ratings = torch.from_numpy(history_matrix(cases).toarray()).to(model.device)
        # a shallow copy shares the weights but not the histories, so threads do not read each other's
        own = copy.copy(model)
        own.get_rating_matrix = lambda user: ratings
        users = torch.zeros(len(cases), dtype=torch.int64, device=model.device)
        return own.full_sort_predict(as_batch({model.USER_ID: users})).view(len(cases), -1)

    return score


FOLD_IN: dict[str, Callable[[Any], Scorer]] = {
    "EASE": _similarity,
    "MultiVAE": _autoencoder,
    "MultiDAE": _autoencoder,
    "RecVAE": _autoencoder,
    "MacridVAE": _autoencoder,
}


def rows_of_a_block(n_items: int, memory_budget: int, device: torch.device = CPU) -> int:
    """Return how many rows of ``n_items`` scores to compute at once within ``memory_budget`` bytes."""
    size = max(1, int(memory_budget) // (n_items * _BYTES_PER_SCORE))
    if device.type != "cpu":  # each block waits for its results once
        return size
    # small blocks stay in the cache and in memory that the allocator reuses; 256 rows make an efficient product
    return min(size, max(256, SCORES_PER_BLOCK // n_items))


def scores_of(score: Scorer, cases: Prefixes, n_items: int) -> Tensor:
    """Return the (n, n_items) scores of ``cases``; ScoresError if the scorer returns anything else."""
    scores = score(cases)
    if not isinstance(scores, Tensor) or scores.shape != (len(cases), n_items) or not scores.is_floating_point():
        kind = f"{scores.dtype} of shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise ScoresError(
            f"the scorer returned {kind}; it must return a floating-point tensor of shape ({len(cases)}, {n_items}), a "
            "row per case and a column per item id"
        )
    return scores.detach()
