"""Item vectors with features: a vector for the id and one for each feature, combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.head import OutputHead

if TYPE_CHECKING:
    from recbole_hyper.data.item_features import ItemColumn, ItemFeatures


class _Feature(nn.Module):
    values: Tensor

    def __init__(self, column: ItemColumn, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(column.size, width))
        # not in the state dict: a run's folder stores them with its data
        self.register_buffer("values", torch.from_numpy(np.array(column.values)), persistent=False)


class NumberFeature(_Feature):
    """A linear map of an item's numbers; missing numbers are zeros."""

    def forward(self, items: Tensor | None) -> Tensor:
        """Return the vectors (..., width) of ``items`` (...), or (n_items, width) for None."""
        return (self.values if items is None else self.values[items]) @ self.weight


class TokenFeature(_Feature):
    """A vector per token, pooled for each item by sum, mean or max; zeros for an item without tokens."""

    def __init__(self, column: ItemColumn, width: int, pooling: str) -> None:
        super().__init__(column, width)
        self.pooling = pooling

    def forward(self, items: Tensor | None) -> Tensor:
        codes = self.values if items is None else self.values[items]
        if codes.shape[-1] == 1:
            return F.embedding(codes[..., 0], self.weight, padding_idx=0)
        if not torch.compiler.is_exporting():
            flat = codes.reshape(-1, codes.shape[-1])
            pooled = F.embedding_bag(flat, self.weight, mode=self.pooling, padding_idx=0)
            return pooled.view(*codes.shape[:-1], -1)
        # graph formats have no embedding bag with padding
        vectors, present = F.embedding(codes, self.weight, padding_idx=0), (codes != 0).unsqueeze(-1)
        if self.pooling == "max":
            best = vectors.masked_fill(~present, -torch.inf).amax(-2)
            return torch.where(present.any(-2), best, torch.zeros_like(best))
        total = (vectors * present).sum(-2)
        return total if self.pooling == "sum" else total / present.sum(-2).clamp_min(1)


class FeaturedEmbedding(nn.Embedding):
    """Item vectors (n_items, width) from ids and features; an untrained item's vector comes from its features alone.

    ``trained`` (n_items,) is True for items of the training part. ``pooling`` over the tokens of a column is sum, mean
    or max. ``fusion`` "add" sums the vectors of id and features, "concat" maps them together to ``width``. In each
    training step a random share ``id_dropout`` of the items has its features alone. Padding is zero.
    """

    def __init__(
        self,
        width: int,
        features: ItemFeatures,
        trained: npt.NDArray[np.bool_],
        *,
        pooling: str = "sum",
        fusion: str = "add",
        id_dropout: float = 0.0,
    ) -> None:
        super().__init__(features.n_items, width, padding_idx=0)
        self.features = nn.ModuleList(
            TokenFeature(column, width, pooling) if column.of_tokens else NumberFeature(column, width)
            for column in features.columns
        )
        # without a bias, so that padding stays zero
        self.fusion = nn.Linear(width * (1 + len(self.features)), width, bias=False) if fusion == "concat" else None
        self.id_dropout = id_dropout
        self.register_buffer("trained", torch.from_numpy(np.array(trained)), persistent=False)

    trained: Tensor

    @torch.no_grad()
    def start_features(self) -> None:
        """Draw the weights of the features with the standard deviation of the id vectors."""
        std = float(self.weight[1:].std())
        for feature in self.features:
            weight = feature.weight
            assert isinstance(weight, Tensor)
            weight.normal_(std=std)
            if isinstance(feature, TokenFeature):
                weight[0].zero_()

    @torch.no_grad()
    def add_items(self, features: ItemFeatures) -> None:
        """Add the new items at the end of ``features``, as untrained ones."""
        more = features.n_items - self.num_embeddings
        self.weight = nn.Parameter(F.pad(self.weight, (0, 0, 0, more)))
        self.trained = F.pad(self.trained, (0, more))
        self.num_embeddings = features.n_items
        for part, column in zip(self.features, features.columns, strict=True):
            part.values = torch.from_numpy(np.array(column.values)).to(self.weight.device)

    def forward(self, items: Tensor) -> Tensor:
        return self._fused(super().forward(items), self.trained[items], items)

    def matrix(self) -> Tensor:
        """Return the vectors (n_items, width) of all items."""
        return self._fused(self.weight, self.trained, None)

    def _fused(self, vectors: Tensor, id_mask: Tensor, items: Tensor | None) -> Tensor:
        if self.training and self.id_dropout:
            id_mask = id_mask & (torch.rand(id_mask.shape, device=id_mask.device) >= self.id_dropout)
        vectors = vectors * id_mask.unsqueeze(-1)
        parts = [vectors, *(feature(items) for feature in self.features)]
        if self.fusion is not None:
            return self.fusion(torch.cat(parts, dim=-1))
        for part in parts[1:]:
            vectors = vectors + part
        return vectors


class FeaturedHead(OutputHead):
    """An output head whose item matrix is computed from ``table``, which belongs to the model."""

    def __init__(self, geometry: Geometry, table: FeaturedEmbedding, **options: Any) -> None:
        super().__init__(geometry, table.weight, **options)
        self.__dict__["table"] = table
        shown = table.trained.clone()
        shown[0] = True  # padding stays row 0
        self.register_buffer("shown", shown.nonzero()[:, 0], persistent=False)
        self.register_buffer("numbers", (shown.cumsum(0) - 1) * shown, persistent=False)

    table: FeaturedEmbedding
    shown: Tensor
    numbers: Tensor

    @property
    def weight(self) -> Tensor:
        return self.table.matrix()

    @property
    def n_items(self) -> int:
        return self.table.num_embeddings

    @torch.no_grad()
    def add_items(self, offset: float) -> None:
        """Add the table's new items, with ``offset`` if the head has offsets."""
        more = self.n_items - len(self.numbers)
        self.numbers = F.pad(self.numbers, (0, more))
        if self.offset is not None:
            self.offset = nn.Parameter(F.pad(self.offset, (0, more), value=offset))

    def step_head(self) -> OutputHead:
        """Return the head of one training step: only trained items, because no other may be a negative."""
        weight, offset = self.weight, self.offset
        if len(self.shown) < self.n_items:
            weight = F.embedding(self.shown, weight)
            offset = None if offset is None else offset.index_select(0, self.shown)
        return OutputHead(self.geometry, weight, offset=offset, theta=self.theta, padding_idx=self.padding_idx)

    def rows_in_step(self, items: Tensor) -> Tensor:
        """Return the rows of ``items`` in the head of a step; 0 for untrained items."""
        return self.numbers[items]

    @property
    def n_step_items(self) -> int:
        return len(self.shown)
