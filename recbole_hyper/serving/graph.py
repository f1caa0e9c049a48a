"""A model as one traced graph: its encoder, or encoder, head and best items.

Possible inputs are item_id_list (B, L) right-padded with 0, item_length (B,), timestamp_list (B, L) float64 for an
encoder that reads times, and seen_items (B, S). Histories have any length: the graph reads their newest items, as many
as the model was trained on.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from recbole_hyper.geometry.base import ItemTerms
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.models.base import HyperRecommender


class ScoreTable(nn.Module):
    """The head with items lifted once: states of any size to the scores of all items."""

    def __init__(self, head: OutputHead) -> None:
        super().__init__()
        self.geometry, self.curvature, self.offset = head.geometry, head.curvature_value, head.offset is not None
        with torch.no_grad():
            # exponents are always factored out: a graph cannot decide by values
            terms = head.geometry.lift_items(head.weight, head.offset, curvature=self.curvature, factored=True)
            vectors = terms.vectors(head.weight.detach())
        self.register_buffer("vectors", vectors)
        self.register_buffer("scale", terms.scale)
        self.register_buffer("exponent", terms.exponent)

    vectors: Tensor
    scale: Tensor | None
    exponent: Tensor | None

    def forward(self, states: Tensor) -> Tensor:
        """Return the scores (B, n_items) of states (B, d)."""
        lifted = self.geometry.lift_states(states, curvature=self.curvature, offset=self.offset, factored=True)
        terms = ItemTerms(scale=self.scale, exponent=self.exponent)
        return self.geometry.combine(lifted, terms, self.vectors)


class Graph(nn.Module):
    """Histories, and times where the encoder reads them, to what the newest items of the ``inputs`` give.

    Args:
        model: the model.
        max_length: newest items of a history that the encoder reads.
        scores: give the scores (B, n_items) of all items, column 0 padding; else the states (B, d).
        top_k: give the best items (B, k), best first, and their scores (B, k); item 0 and -inf where fewer are left.
        exclude_seen: with ``top_k``, leave out the items of a last input, as padding is.
    """

    def __init__(
        self,
        model: HyperRecommender,
        max_length: int,
        *,
        scores: bool = False,
        top_k: int | None = None,
        exclude_seen: bool = False,
    ) -> None:
        super().__init__()
        # the encoder holds the table without owning it
        self.item_embedding, self.encoder = model.item_embedding, model.encoder
        self.table = ScoreTable(model.head) if scores or top_k else None
        self.max_length, self.top_k = max_length, top_k
        self.read = ("item_id_list", "item_length", *(("timestamp_list",) if model.encoder.reads_times else ()))
        self.inputs: tuple[str, ...] = (*self.read, *(("seen_items",) if top_k and exclude_seen else ()))
        self.outputs = ("items", "scores") if top_k else ("scores",) if scores else ("states",)

    def forward(self, *given: Tensor) -> Any:
        """Return the ``outputs`` for the ``inputs``."""
        items, lengths, *times = given[: len(self.read)]
        # always as wide as the model's longest history: torch can trace no encoder whose width is a minimum
        positions = torch.arange(self.max_length, device=items.device)
        kept = lengths.clamp(max=self.max_length)
        places = ((lengths - kept)[:, None] + positions).clamp(max=items.shape[1] - 1)
        padding = positions >= kept[:, None]
        newest, *moments = (column.gather(1, places).masked_fill(padding, 0) for column in (items, *times))
        states = self.encoder.last(newest, kept, *moments)
        if self.table is None:
            return states
        scores = self.table(states)
        if self.top_k is None:
            return scores
        excluded = torch.cat((torch.zeros_like(lengths).unsqueeze(1), *given[len(self.read) :]), dim=1)
        values, best = scores.scatter(1, excluded, -torch.inf).topk(self.top_k, dim=1)
        return torch.where(values == -torch.inf, 0, best), values


def trace(graph: Graph) -> ExportedProgram:
    """Return the program of ``graph`` for every number of histories and every length."""
    device = next(graph.parameters()).device
    # two rows at least: torch takes a size of 1 for a constant
    width = 3
    items = torch.ones(2, width, dtype=torch.int64, device=device)
    lengths = torch.tensor([width, 1], device=device)
    items[1, 1:] = 0
    batch, length = Dim("batch"), Dim("length")
    given = {
        "item_id_list": (items, {0: batch, 1: length}),
        "item_length": (lengths, {0: batch}),
        "timestamp_list": (torch.zeros(2, width, dtype=torch.float64, device=device), {0: batch, 1: length}),
        "seen_items": (torch.zeros(2, 4, dtype=torch.int64, device=device), {0: batch, 1: Dim("seen")}),
    }
    tensors, sizes = zip(*(given[name] for name in graph.inputs), strict=True)
    with torch.no_grad():
        return torch.export.export(graph, tensors, dynamic_shapes={"given": sizes}, strict=False)
