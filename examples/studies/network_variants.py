"""Changes to the default model that gained nothing, or not on all data: network_variants.csv. None is in the package.

    recbole-hyper run --plugins=examples/studies/network_variants.py --model=FMLPRecMemoryVariant --near_targets=0.2 ...

A row of the table has the keys of a run and its best validation. Three of the five changes that are no settings use the
pair counts of the memory; "near" items of an item are its 20 strongest.

- ``near_targets``: this share of a target is spread over its near items, in proportion to their counts.
- ``near_items``: with this probability an item of a history is replaced by a near one, drawn in proportion.
- ``dropout_twice``: each batch is trained with two dropout masks, and this much of the symmetric divergence of the two
  predictions is added to the loss (R-Drop, Liang et al. 2021).
- ``reversed_rows``: with this probability a history is trained from its end to its start, in this batch.
- ``spectral_start``: item vectors start at the leading eigenvectors of the positive pointwise mutual information of the
  counts, scaled to the deviation of the random start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from recbole.data.interaction import Interaction
from scipy.sparse.linalg import svds
from torch import Tensor
from torch.nn.functional import embedding

from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.host.dataset import TARGET_LIST
from recbole_hyper.models.memory import FMLPRecMemory
from recbole_hyper.options import Option, keyed
from recbole_hyper.registry import register
from recbole_hyper.values import Share

NEAR = 20


@register("models")
class FMLPRecMemoryVariant(FMLPRecMemory):
    """The default model with one of the changes."""

    own_options = FMLPRecMemory.own_options | keyed(
        near_targets=Option("share of a target that its near items have", kind=Share, default=0.0),
        near_items=Option("probability that a near item replaces an item of a history", kind=Share, default=0.0),
        dropout_twice=Option("weight of the divergence of two dropout masks", kind=float, default=0.0),
        reversed_rows=Option("probability that a history is trained in the opposite order", kind=Share, default=0.0),
        spectral_start=Option("start item vectors at eigenvectors of the counts", kind=bool, default=False),
    )

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self._twice, self._states = float(config["dropout_twice"]), []
        self._reversed = float(config["reversed_rows"])
        self._near_targets, self._near_items = float(config["near_targets"]), float(config["near_items"])
        settings = {"window": config["memory_window"], "neighbours": config["memory_neighbours"]}
        counts, _ = pair_counts(dataset.store, np.asarray(dataset.train_lengths), **settings)
        near, rates = near_items(counts)
        self._near, self._rates = torch.from_numpy(near).to(self.device), torch.from_numpy(rates).to(self.device)
        if config["spectral_start"]:
            start = torch.from_numpy(spectral_vectors(counts, self.item_embedding.embedding_dim))
            with torch.no_grad():
                weight = self.item_embedding.weight
                weight[start.any(1)] = start[start.any(1)] * (weight.std() / start.std())

    def _histories(self, interaction: Any) -> tuple[Tensor, ...]:
        items, *times = super()._histories(interaction)
        if self.training and self._near_items:
            replaced = torch.rand(items.shape, device=items.device) < self._near_items
            drawn = torch.rand(items.shape, device=items.device)[..., None]
            place = (self._rates[items].cumsum(-1) < drawn).sum(-1).clamp(max=NEAR - 1)
            new = self._near[items, place]
            items = torch.where(replaced & (new > 0), new, items)
        return (items, *times)

    def _loss(self, states: Tensor, targets: Tensor, *given: Any) -> Tensor:
        loss = super()._loss(states, targets, *given)
        weights = getattr(given[-1], "weights", None)
        self._states.append((states, weights))
        if self._near_targets:
            rates, vectors = self._rates[targets], embedding(self._near[targets], self.head.weight)
            lead = embedding(targets, self.head.weight) - torch.einsum("nk,nkd->nd", rates, vectors)
            leads = self.head.geometry.pair_logits(states, lead[:, None], None, theta=self.head.theta)[:, 0]
            loss = loss + self._near_targets * _mean(leads * (rates.sum(1) > 0), weights)
        return loss

    def calculate_loss(self, interaction: Any) -> Tensor:
        self._states = []
        if self._reversed:
            items, targets = interaction[self.ITEM_SEQ], interaction[TARGET_LIST]
            turned = reversed_rows(items, interaction[self.ITEM_SEQ_LEN], targets)
            chosen = torch.rand(len(items), 1, device=items.device) < self._reversed
            items, targets = (torch.where(chosen, new, old) for new, old in zip(turned, (items, targets), strict=True))
            interaction = Interaction({**interaction.interaction, self.ITEM_SEQ: items, TARGET_LIST: targets})
        loss = super().calculate_loss(interaction)
        if not self._twice:
            return loss
        loss = (loss + super().calculate_loss(interaction)) / 2
        (first, weights), (second, _) = self._states
        p, q = (self.head.logits(states)[:, 1:].log_softmax(1) for states in (first, second))
        return loss + self._twice * _mean(0.5 * ((p.exp() - q.exp()) * (p - q)).sum(1), weights)


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    return values.mean() if weights is None else values.dot(weights)


def reversed_rows(items: Tensor, lengths: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return right-padded ``items`` and ``targets`` (B, L) of the histories in the opposite order.

    A history has ``lengths`` (B,) items and the target after them. Without that target a row stays as it is, and places
    without a target remain without.
    """
    places = torch.arange(items.shape[1] + 1, device=items.device)
    last = targets.gather(1, lengths[:, None] - 1)
    whole = torch.cat((items, torch.zeros_like(last)), dim=1).scatter(1, lengths[:, None], last)
    old = lengths[:, None] - places
    turned = whole.gather(1, old.clamp(min=0)).where(old >= 0, 0)
    known = last > 0
    new_items = turned[:, :-1].where(places[:-1] < lengths[:, None], 0)
    return new_items.where(known, items), turned[:, 1:].where(known & (targets > 0), targets)


def near_items(counts: scipy.sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the strongest neighbours of each item (n_items, NEAR), and their shares of these counts, both 0-padded."""
    near, rates = np.zeros((counts.shape[0], NEAR), np.int64), np.zeros((counts.shape[0], NEAR), np.float32)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order, places = np.lexsort((-counts.data, rows)), np.arange(len(rows)) - counts.indptr[rows]
    strongest = places < NEAR
    cells, order = (rows[strongest], places[strongest]), order[strongest]
    near[cells], rates[cells] = counts.indices[order], counts.data[order]
    return near, rates / np.maximum(rates.sum(1, keepdims=True), 1e-12)


def spectral_vectors(counts: scipy.sparse.csr_matrix, width: int) -> np.ndarray:
    """Return the vectors (n_items, width) of the counts' positive pointwise mutual information, 0 without counts."""
    pairs, sums = counts.tocoo(), np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    ratio = pairs.data * sums.sum() / np.maximum(sums[pairs.row] * sums[pairs.col], 1e-9)
    information = np.log(np.maximum(ratio, 1.0))
    matrix = scipy.sparse.csr_matrix((information, (pairs.row, pairs.col)), shape=counts.shape)
    left, values, _ = svds(matrix, k=width, random_state=0)
    return (left * np.sqrt(values)).astype(np.float32)
