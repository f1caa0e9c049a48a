"""The values of ``auto``: settings that depend on the size and density of the training data.

The rules interpolate between settings that were chosen on validation (results/records.md): for Amazon Beauty and
Sports, with 16 interactions per item, and for MovieLens-1M, with 270.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_hyper.types import Split

# chosen by cost, after the others
SOFTMAX_ITEMS, VALID_CASES = "softmax_items", "valid_cases"
# keys that may be ``auto``
RULES = (
    *("hidden_dropout_prob", "attn_dropout_prob", "MAX_ITEM_LIST_LENGTH", "train_batch_size"),
    *("learning_rate", "weight_decay", "hidden_size", "epochs", SOFTMAX_ITEMS, VALID_CASES),
)
_WINDOWS = (50, 100, 200)
_KEPT = 0.8  # the share of interactions that a window of the newest items must cover
_SLOWEST, _FASTEST = 0.25, 4.0  # bounds on the factor that another batch size multiplies the learning rate by
_SPARSE, _DENSE = 4.0, 8.0  # log2 of the interactions per item
_STEPS_OF_AN_EPOCH = 100
_SMALLEST_BATCH, _LARGEST_BATCH = 32, 512
FEWEST_EPOCHS, MOST_EPOCHS = 2, 20
# steps of a whole training, ten times those of the data sets above; with more data, fewer epochs are enough
_MOST_STEPS = 20_000


@dataclass(frozen=True)
class TrainingStatistics:
    """Statistics of the training part, which the rules use."""

    n_sequences: int  # sequences of at least two items, which have a target
    interactions_per_item: float  # mean over the items that occur
    kept: tuple[float, ...]  # share of interactions that are among the newest 50, 100 and 200 of their sequence

    @classmethod
    def of(cls, split: Split) -> TrainingStatistics:
        """Compute the statistics of the first ``train_lengths`` interactions of each sequence of ``split``."""
        lengths = np.asarray(split.train_lengths)
        lengths = lengths[lengths >= 2]
        counts = np.asarray(split.store.matrix(split.train_lengths).sum(axis=0)).ravel()[1:]
        shares = tuple(float(np.minimum(lengths, n).sum() / max(1, lengths.sum())) for n in _WINDOWS)
        return cls(len(lengths), float(counts[counts > 0].mean()) if counts.any() else 0.0, shares)


def choose_values(keys: Sequence[str], statistics: TrainingStatistics, batch: int | None = None) -> dict[str, Any]:
    """Return the value of ``auto`` for each of ``keys``, which are in ``RULES``.

    From sparse to dense data, the width grows from 64 to 128, dropout falls from .5 to .3, weight decay from 1e-4 to 0,
    and the learning rate (Adam's, the peak of a cosine) from .005 to .002. The window is the smallest of 50, 100 and
    200 that covers 80 % of the interactions. The batch size is the power of two with which an epoch has about a hundred
    steps. If the user sets the ``batch`` size, the rate grows with the square root of its ratio (Adam's rule, Malladi
    et al. 2022). There are 20 epochs, or fewer if these would exceed 20,000 steps, but at least 2.
    """
    # 0 up to 16 interactions per item, 1 from 256, linear in their logarithm between
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
        SOFTMAX_ITEMS: None,
        VALID_CASES: None,
    }
    return {key: values[key] for key in keys}


def stand_ins(keys: Sequence[str]) -> dict[str, Any]:
    """Return possible values of ``keys``, which are ``auto``, for checks before the data are read."""
    return choose_values(keys, TrainingStatistics(1, 1.0, (1.0, 1.0, 1.0)))
