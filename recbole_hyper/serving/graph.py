"""A model as one traced graph: its encoder, or encoder, head and best items.

Possible inputs are item_id_list (B, L) right-padded with 0, item_length (B,), timestamp_list (B, L) float64 for an
encoder that reads times, and seen_items (B, S). Histories have any length: the graph reads their newest items, as many
as the model was trained on.
"""

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from recbole_hyper.geometry.base import ItemTerms
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.models.base import HyperRecommender


class StateGraph(nn.Module):
    """The encoder alone: histories, and times where it reads them, to states (B, d)."""

    outputs = ("states",)

    def __init__(self, model: HyperRecommender, max_length: int) -> None:
        super().__init__()
        # the encoder holds the table without owning it
        self.item_embedding, self.encoder = model.item_embedding, model.encoder
        self.max_length = max_length
        times = ("timestamp_list",) if model.encoder.reads_times else ()
        self.inputs: tuple[str, ...] = ("item_id_list", "item_length", *times)

    def forward(self, *given: Tensor) -> Tensor:
        """Return the states (B, d) at the newest items of the ``inputs``."""
        items, lengths, *times = given
        # always as wide as the model's longest history: torch can trace no encoder whose width is a minimum
        positions = torch.arange(self.max_length, device=items.device)
        kept = lengths.clamp(max=self.max_length)
        places = ((lengths - kept)[:, None] + positions).clamp(max=items.shape[1] - 1)
        padding = positions >= kept[:, None]
        newest, *moments = (column.gather(1, places).masked_fill(padding, 0) for column in (items, *times))
        return self.encoder.last(newest, kept, *moments)


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


class ScoresGraph(nn.Module):
    """Encoder and head: histories to the scores of all items (B, n_items); column 0 is padding."""

    outputs = ("scores",)

    def __init__(self, model: HyperRecommender, max_length: int) -> None:
        super().__init__()
        self.states, self.table = StateGraph(model, max_length), ScoreTable(model.head)
        self.inputs = self.states.inputs

    def forward(self, *given: Tensor) -> Tensor:
        """Return the scores after the histories of the ``inputs``."""
        return self.table(self.states(*given))


class TopItemsGraph(nn.Module):
    """Encoder, head and selection: histories to the best items (B, k) and their scores (B, k), best first.

    Padding is never among them, nor, with ``exclude_seen``, the items of a last input. If fewer than k items are left,
    the list ends with item 0 and score -inf.
    """

    outputs = ("items", "scores")

    def __init__(self, model: HyperRecommender, max_length: int, k: int, exclude_seen: bool) -> None:
        super().__init__()
        self.scores, self.k = ScoresGraph(model, max_length), k
        self.inputs = (*self.scores.inputs, *(("seen_items",) if exclude_seen else ()))

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best items after the histories of the ``inputs``."""
        read = len(self.scores.inputs)
        excluded = torch.cat((torch.zeros_like(given[1]).unsqueeze(1), *given[read:]), dim=1)
        scores = self.scores(*given[:read]).scatter(1, excluded, -torch.inf)
        values, found = scores.topk(self.k, dim=1)
        return torch.where(values == -torch.inf, 0, found), values


Graph = StateGraph | ScoresGraph | TopItemsGraph


def make_graph(model: HyperRecommender, max_length: int, top_k: int | None, exclude_seen: bool) -> Graph:
    """Return the module that an export traces: the encoder alone without ``top_k``."""
    return TopItemsGraph(model, max_length, top_k, exclude_seen) if top_k else StateGraph(model, max_length)


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
