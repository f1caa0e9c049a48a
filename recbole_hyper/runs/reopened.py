"""Compares a third-party model with the one that its folder gives back: weights are kept, anything else is not."""

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.config import Config
from recbole_hyper.evaluation.scorers import full_sort_scorer
from recbole_hyper.random_numbers import seeded
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.runs.load import open_model
from recbole_hyper.training.checkpoint import CheckpointError
from recbole_hyper.types import Cases, Split

logger = logging.getLogger("recbole_hyper")

CASES = 8  # that both models rank
_ROUNDING = 1e-4  # of the largest score
SAME = "a freshly opened model gives the same scores"
_CANNOT = (
    "{model} keeps more than its weights (a plain tensor, a buffer with persistent=False or a dictionary): "
    "opened again, it {does}, so evaluate, recommend and a resume differ from this result. Only parameters and buffers "
    "are kept: use self.register_buffer(name, tensor)"
)


def check_reopened(
    model: Any, config: Config, data: SequenceDataset, split: Split, *, refitted: bool
) -> dict[str, str]:
    """Return the entry of result.json on a third-party model that was opened again; a difference is a warning.

    The weights of ``model`` are in ``config["output_dir"]``.
    """
    cases = split.test if len(split.test) else split.valid
    if type(model).origin != "third" or not len(cases):
        return {}
    chosen = cases[np.unique(np.linspace(0, len(cases) - 1, CASES).astype(np.int64))]
    try:
        fresh = open_model(config, data, split, refitted=refitted)
        before, now = (_scores(one, config, chosen) for one in (model, fresh))
        largest = float(before.nan_to_num(0.0, 0.0, 0.0).abs().max())
        if torch.allclose(before, now, rtol=0, atol=_ROUNDING * largest, equal_nan=True):
            return {"reopened": SAME}
        does = "scores the same cases differently"
    except (ValueError, CheckpointError) as error:
        does = f"fails: {error}"
    text = _CANNOT.format(model=type(model).__name__, does=does)
    logger.warning("%s", text)
    return {"reopened": text}


def _scores(model: Any, config: Config, cases: Cases) -> Tensor:
    with seeded(0):
        return full_sort_scorer(model.eval(), config)(cases)
