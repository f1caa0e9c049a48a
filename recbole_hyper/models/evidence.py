"""Second part of the default model: it reads what is known of each proposed item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize

from recbole_hyper.models.item_votes import EaseWeights, ItemWeights, PairRates
from recbole_hyper.models.propose import Proposals

# of the memories of what comes after and before an item
_DECAYS = (0.4, 0.9)
# log-probabilities are at least this, and votes count e^-9 more in their logarithm
_LEAST, _NO_VOTES = -30.0, math.exp(-9)
_AGES = 0.9  # weight of an item in the mean cosine, relative to the next newer one
# of EASE^R's votes, and the number of newest items that vote
_EASE_DECAYS, _EASE_NEWEST = (0.8, 0.95, 0.99), 100
#: log-probabilities, popularity of two kinds, cosines, votes of what came after and before, EASE^R's votes
N_EVIDENCE = 2 + 2 + 3 + 2 * len(_DECAYS) + len(_EASE_DECAYS)


class Evidence(NamedTuple):
    """Proposed ``items`` (n, k), their log-probabilities by the mixture, and the evidence for them.

    An empty place has the item 0 and the log-probability -inf.
    """

    items: Tensor
    scores: Tensor  # (n, k)
    values: Tensor  # (n, k, N_EVIDENCE)


class EvidenceReader(nn.Module):
    """Reads the evidence for proposed items.

    ``counts`` (2, n_items) says how often each item was chosen in training and in its newest interactions, ``window``
    how many of the newest items of a history vote and are compared with the proposed ones.
    """

    counts: Tensor

    def __init__(self, after: PairRates, before: PairRates, ease: EaseWeights, counts: Tensor, *, window: int) -> None:
        super().__init__()
        self.after, self.before, self.ease, self.window = after, before, ease, window
        self.register_buffer("counts", counts.float().log1p(), persistent=False)

    def forward(self, proposals: Proposals, newest: Tensor, vectors: Tensor) -> Evidence:
        """Return the evidence after the ``newest`` items (n, L), by the item ``vectors`` (n_items, d)."""
        network, scores, items = proposals
        empty, recent = items == 0, newest[:, : self.window]
        own = scores.gather(1, items)
        best_vectors, recent_vectors = (normalize(embedding(part, vectors), dim=2) for part in (items, recent))
        cosines = best_vectors @ recent_vectors.transpose(1, 2) * (recent > 0)[:, None]
        weights = _AGES ** torch.arange(recent.shape[1], device=newest.device)
        numbers = torch.arange(1, items.shape[1] + 1, dtype=torch.uint8, device=items.device).expand_as(items)
        places = torch.zeros_like(scores, dtype=torch.uint8).scatter_(1, items, numbers)
        after, before = (_votes(rates, recent, places, items, _DECAYS) for rates in (self.after, self.before))
        parts = [
            network.gather(1, items).clamp(min=_LEAST), own.clamp(min=_LEAST), *self.counts[:, items],
            cosines[:, :, 0], cosines.amax(dim=2), cosines @ weights,
            *((votes + _NO_VOTES).log() for votes in (*after, *before)),
            *_votes(self.ease, newest[:, :_EASE_NEWEST], places, items, _EASE_DECAYS),
        ]  # fmt: skip
        return Evidence(items, own, torch.stack(parts, dim=2).masked_fill(empty[:, :, None], 0.0))


def _votes(
    table: ItemWeights, newest: Tensor, places: Tensor, items: Tensor, decays: Sequence[float]
) -> Sequence[Tensor]:
    """Return the votes (n, k) of the ``newest`` items (n, w) for ``items`` (n, k), which have ``places``, by decay."""
    if not table.weights.numel():
        return [torch.zeros_like(items, dtype=torch.float32)] * len(decays)
    return (table.ages(newest, decays) @ table(newest, places, items.shape[1])).unbind(dim=1)
