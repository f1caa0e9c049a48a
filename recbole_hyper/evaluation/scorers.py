"""How a model scores the cases of a slice: this project's models by states, RecBole's by their full_sort_predict."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.data.loader import case_interaction, gather
from recbole_hyper.encoders.base import length_groups
from recbole_hyper.evaluation.ranking import Scorer
from recbole_hyper.types import Cases

# input positions encoded at one time: bounds activations whatever eval_batch_size and MAX_ITEM_LIST_LENGTH are
TOKENS_PER_BATCH = 1 << 16


def encode_cases(model: Any, cases: Cases, max_length: int, device: torch.device) -> Tensor:
    """Return the states (n, d) of the newest position of each case's history, cut to its last ``max_length`` items."""
    columns = (False, True) if model.encoder.reads_times else (False,)
    starts = np.maximum(cases.ends - max_length, cases.starts)
    lengths = cases.ends - starts
    order = np.argsort(lengths, kind="stable")
    ordered = torch.from_numpy(lengths[order])
    states: Tensor | None = None
    # histories of like length share a batch, so that little padding is encoded
    for group in length_groups(ordered):
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
    def score(cases: Cases) -> Tensor:
        return head.scores(encode_cases(model, cases, max_length, device), 0, head.n_items)

    return score


def full_sort_scorer(model: Any, config: Any) -> Scorer:
    """Return the scorer of a model of RecBole by its full_sort_predict."""
    length, device, n_items = int(config["MAX_ITEM_LIST_LENGTH"]), config["device"], model.n_items
    size = max(1, min(int(config["eval_batch_size"]), TOKENS_PER_BATCH // length))

    @torch.no_grad()
    def score(cases: Cases) -> Tensor:
        parts = []
        for start in range(0, len(cases), size):
            batch = case_interaction(cases[slice(start, start + size)], length, config)
            # RecBole asks for scores of all items without naming one
            del batch.interaction[config["ITEM_ID_FIELD"]]
            parts.append(model.full_sort_predict(batch.to(device)).view(-1, n_items))
        return torch.cat(parts).to(torch.float32)

    return score
