"""The values of ``auto``: settings that follow from the size and density of the training data.

The rules are two lines through settings that were chosen on validation (results/records.md): Amazon Beauty and Sports,
16 interactions an item, and MovieLens-1M, 270.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_hyper.options import AUTO
from recbole_hyper.types import Split

# the keys that may be ``auto``
RULES = (
    *("hidden_dropout_prob", "attn_dropout_prob", "MAX_ITEM_LIST_LENGTH", "train_batch_size"),
    *("learning_rate", "weight_decay", "hidden_size", "epochs"),
)
_WINDOWS = (50, 100, 200)
_KEPT = 0.8  # of the interactions, the share that a window of the newest items must keep
_SLOWEST, _FASTEST = 0.25, 4.0  # bounds, as multiples of the rule's rate, of the rate for another batch
_SPARSE, _DENSE = 4.0, 8.0  # log2 of the interactions of an item
_STEPS_OF_AN_EPOCH = 100
_SMALLEST_BATCH, _LARGEST_BATCH = 32, 512
FEWEST_EPOCHS, MOST_EPOCHS = 2, 20
# of a whole training, ten times what the data sets of the rules take; a large log needs fewer looks at each target
_MOST_STEPS = 20_000


@dataclass(frozen=True)
class TrainingStatistics:
    """What the rules look at, of the training part alone."""

    n_sequences: int  # sequences with at least two items, from which something is learned
    interactions_per_item: float  # mean over the items that occur
    kept: tuple[float, ...]  # share of their interactions that are among the newest 50, 100 and 200 of a sequence

    @classmethod
    def of(cls, split: Split) -> TrainingStatistics:
        """Look at the first ``train_lengths`` of each sequence of ``split``."""
        lengths = np.asarray(split.train_lengths)
        learned = lengths[lengths >= 2]
        counts = np.asarray(split.store.matrix(split.train_lengths).sum(axis=0)).ravel()[1:]
        shares = tuple(float(np.minimum(learned, n).sum() / max(1, learned.sum())) for n in _WINDOWS)
        return cls(len(learned), float(counts[counts > 0].mean()) if counts.any() else 0.0, shares)


def choose_values(keys: Sequence[str], statistics: TrainingStatistics, batch: int | None = None) -> dict[str, Any]:
    """Return what ``auto`` is for each of ``keys``, of ``RULES``.

    From sparse data to dense, the width is 64 and then 128, dropout falls from .5 to .3, weight decay from 1e-4 to 0,
    and the rate, for Adam and the highest of a cosine, from .005 to .002. The window is the least of 50, 100 and 200
    that keeps four fifths of the interactions, the batch the power of two that makes an epoch about a hundred steps. A
    ``batch`` of the user multiplies the rate by the square root of its ratio (Adam's rule, Malladi et al. 2022). There
    are 20 epochs, or as many as have 20,000 steps together, but at least 2.
    """
    # 0 up to 16 interactions an item, 1 from 256, and between them the share of the way in their logarithm
    share = (math.log2(max(statistics.interactions_per_item, 1.0)) - _SPARSE) / (_DENSE - _SPARSE)
    density = min(1.0, max(0.0, share))
    dropout = round(0.5 - 0.2 * density, 2)
    windows = 2 ** round(math.log2(max(1.0, statistics.n_sequences / _STEPS_OF_AN_EPOCH)))
    windows = min(_LARGEST_BATCH, max(_SMALLEST_BATCH, windows))
    faster = 1.0 if batch is None else min(_FASTEST, max(_SLOWEST, math.sqrt(batch / windows)))
    steps = math.ceil(max(1, statistics.n_sequences) / (batch or windows))
    shares = dict(zip(_WINDOWS, statistics.kept, strict=True))
    values = {
        "hidden_dropout_prob": dropout,
        "attn_dropout_prob": dropout,
        "MAX_ITEM_LIST_LENGTH": next((n for n in _WINDOWS if shares[n] >= _KEPT), _WINDOWS[-1]),
        "train_batch_size": windows,
        "learning_rate": round((0.005 - 0.003 * density) * faster, 6),
        "weight_decay": round(1e-4 * (1 - density), 6),
        "hidden_size": 64 if density < 0.5 else 128,
        "epochs": min(MOST_EPOCHS, max(FEWEST_EPOCHS, _MOST_STEPS // steps)),
    }
    return {key: values[key] for key in keys}


def auto_keys(config: Mapping[str, Any]) -> list[str]:
    """Return the keys of ``config`` that are ``auto`` and wait for the training data."""
    # no .get: RecBole's Config has none
    return [key for key in RULES if key in config and config[key] == AUTO]


def stand_ins(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that ``auto`` may turn out to be, for checks before any data are read."""
    return choose_values(auto_keys(config), TrainingStatistics(1, 1.0, (1.0, 1.0, 1.0)))
