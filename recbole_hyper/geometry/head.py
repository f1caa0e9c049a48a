"""The output head: a geometry bound to the item matrix, the offsets and the curvature of one model."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms
from recbole_hyper.matmul import float32_products

# items per candidate up to which a product with all items beats gathering the candidates' vectors, on a CPU
_ALL_PER_CANDIDATE = 32
# the least curvature or temperature that is learned: below it rounding in float32 is larger than the gradient
LEAST_LEARNED = 1e-6


class OutputHead(nn.Module):
    """Scores states against items.

    Args:
        geometry: how a state scores an item.
        weight: item matrix (n_items, d), usually the item embedding's own Parameter (tied). It is held by reference and
            not registered again: it belongs to the module that owns it, and appears once in a state dict.
        offset: True for a trained offset per item that starts at ``offset_init``, a Parameter (n_items,) to use that
            one, False for none. Euclidean: a bias; Poincare: the scalar r of the hyperplane.
        curvature: a number > 0 (the ball's c, sectional curvature -c), or a 0-d tensor. Ignored by flat geometries;
            those that learn their temperature have it in a parameter ``log_temperature``, in place of the curvature.
        learn_curvature: train the curvature, as exp of a parameter ``log_curvature`` that starts at ``curvature`` and
            ends at ``LEAST_LEARNED``: the head is flat by then, and in float32 its gradient would be noise.
        padding_idx: the item that is never scored by a loss or a ranking; None if there is none.

    Raises:
        ValueError: curvature not above 0, or to be learned from below ``LEAST_LEARNED``, an offset to start from that
            is not finite or of no use, or shapes that do not agree.
    """

    def __init__(
        self,
        geometry: Geometry,
        weight: Tensor,
        *,
        offset: bool | Tensor | None = False,
        offset_init: float = 0.0,
        curvature: Curvature = 1.0,
        learn_curvature: bool = False,
        padding_idx: int | None = 0,
    ) -> None:
        super().__init__()
        if weight.dim() != 2:
            raise ValueError(f"weight must have shape (n_items, d), got {tuple(weight.shape)}")
        geometry.check_curvature(curvature)
        self.geometry = geometry
        self.padding_idx = padding_idx
        # in a tuple, so that nn.Module does not register the tied parameter a second time
        self._weight = (weight,)
        self.offset: Tensor | None
        if isinstance(offset, Tensor):
            if offset.shape != weight.shape[:1]:
                raise ValueError(f"offset must have shape ({weight.shape[0]},), got {tuple(offset.shape)}")
            self.offset = offset
        else:
            if not isinstance(offset_init, int | float) or not math.isfinite(offset_init):
                raise ValueError(f"offset_init (key item_bias_init) must be a finite number, got {offset_init!r}")
            if offset_init and not offset:
                given = f"offset_init={offset_init} (key item_bias_init)"
                raise ValueError(f"{given} has no effect without offset=True (key item_bias)")
            self.offset = nn.Parameter(weight.new_full((weight.shape[0],), offset_init)) if offset else None
        self._curvature: Curvature = curvature
        self.log_temperature: nn.Parameter | None = None
        if geometry.learns_from is not None:
            self.log_temperature = nn.Parameter(weight.new_tensor(math.log(geometry.learns_from)))
        self.log_curvature: nn.Parameter | None = None
        if learn_curvature and geometry.curved:
            if float(curvature) < LEAST_LEARNED:
                least = f"{LEAST_LEARNED} is the least to learn from"
                raise ValueError(f"curvature={curvature} (key curvature_init): {least}")
            self.log_curvature = nn.Parameter(weight.new_tensor(math.log(float(curvature))))

    @property
    def weight(self) -> Tensor:
        """Item matrix (n_items, d)."""
        return self._weight[0]

    @property
    def curvature(self) -> Curvature:
        """The curvature, or the learned temperature: a float, or a 0-d tensor through which gradient flows."""
        learned = self.log_curvature if self.log_temperature is None else self.log_temperature
        return self._curvature if learned is None else learned.exp().clamp(min=LEAST_LEARNED)

    @property
    def curvature_value(self) -> float:
        """:attr:`curvature` as a number, for records; no gradient flows through it."""
        return float(torch.as_tensor(self.curvature).detach())

    @property
    def learned(self) -> dict[str, float]:
        """The number that the head learns, by its name: curvature, temperature, or none."""
        parameters = {"curvature": self.log_curvature, "temperature": self.log_temperature}
        return {name: self.curvature_value for name, parameter in parameters.items() if parameter is not None}

    @property
    def n_items(self) -> int:
        """Number of items, padding included."""
        return self.weight.shape[0]

    def step_head(self) -> OutputHead:
        """Return the head that the loss of one training step scores with: this one, unless its matrix is computed."""
        return self

    def rows_in_step(self, items: Tensor) -> Tensor:
        """Return the rows that ``items`` have in the head of a step; of items that it leaves out, 0."""
        return items

    @property
    def n_step_items(self) -> int:
        """Number of items of the head of a step, padding included."""
        return self.n_items

    def logits(self, states: Tensor, items: Tensor | None = None) -> Tensor:
        """Return the logits (n, m) of states (n, d) for ``items`` (m,), or for all items (padding included)."""
        weight, offset = self.weight, self.offset
        if items is not None:
            # embedding's backward is a plain scatter, index's is a sort: many times slower
            weight = nn.functional.embedding(items, weight)
            offset = None if offset is None else offset[items]
        return self.geometry.logits(states, weight, offset, curvature=self.curvature)

    def pair_logits(self, states: Tensor, items: Tensor) -> Tensor:
        """Return the logits (n, k) of states (n, d), each with its own items (n, k).

        The gathered items (n, k, d) exist piece by piece only.
        """
        if not items.numel():
            return states.new_zeros(items.shape)
        pieces = pair_pieces(self.geometry, items, *self.weight.shape)
        return _gather.gathered(pieces, states, self.weight, self.offset, self.curvature).view(items.shape)

    def frozen(self) -> FrozenHead:
        """Return the head for ranking, with items lifted once; ask for a new one after every training step.

        The lift happens at the first call, and that of a flat head reads the weight itself (a copy would double the
        memory of the item matrix): what it returns after a step may mix old and new values.
        """
        return FrozenHead(self)

    def extra_repr(self) -> str:
        """Describe the head in print(model)."""
        curvature = f", curvature={self.curvature_value:.4g}" if self.geometry.curved else ""
        return f"{type(self.geometry).__name__}, n_items={self.n_items}{curvature}, offset={self.offset is not None}"


def pair_pieces(geometry: Geometry, items: Tensor, n_items: int, d: int) -> list[_gather.Piece]:
    """Return the pieces whose results are the logits of row i with ``items[i]`` (n, k), row by row.

    Where a catalogue is small beside k, a piece scores all items and keeps the k: one matrix product is faster than
    gathering k vectors per row.
    """
    n, k = items.shape
    every = torch.arange(n_items, device=items.device) if n_items <= _ALL_PER_CANDIDATE * k else None
    step = max(1, _gather.PIECE // (k * (d + 1)) if every is None else _gather.LOGITS // n_items)
    parts = zip(torch.arange(n, device=items.device).split(step), items.split(step), strict=True)

    def compute(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature, *own: Tensor) -> Tensor:
        if own:
            return geometry.logits(states, weight, offset, curvature=curvature).gather(1, own[0]).reshape(-1)
        return geometry.pair_logits(states, weight, offset, curvature=curvature).reshape(-1)

    if every is None:
        return [_gather.Piece(compute, rows, own) for rows, own in parts]
    return [_gather.Piece(compute, rows, every, (own,)) for rows, own in parts]


class FrozenHead:
    """Scores without gradient, items lifted once, at the first call; valid until the head is trained further.

    Holds one copy of the lifted items (n_items, d + 1 at most), or the item matrix itself where the lift is trivial.
    """

    @torch.no_grad()
    def __init__(self, head: OutputHead) -> None:
        self._geometry = head.geometry
        self._offset = head.offset
        self._curvature = head.curvature
        self._weight = head.weight
        self._lifted: dict[bool, tuple[ItemTerms, Tensor]] = {}
        self.n_items = head.n_items

    @torch.no_grad()
    def scores(self, states: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the logits (n, stop - start) of states (n, d) for the items start <= j < stop."""
        geometry, offset, curvature = self._geometry, self._offset, self._curvature
        with float32_products(states.device, len(states)):
            states = states.to(torch.promote_types(states.dtype, torch.float32))
            factored = geometry.factored(states, offset, curvature)
            lifted = geometry.lift_states(states, curvature=curvature, offset=offset is not None, factored=factored)
            if factored not in self._lifted:
                weight = self._weight.detach()
                weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
                terms = geometry.lift_items(weight, offset, curvature=curvature, factored=factored)
                self._lifted = {factored: (terms, terms.vectors(weight))}
            terms, vectors = self._lifted[factored]
            part = slice(start, stop)
            return geometry.combine(lifted, terms.rows(part), vectors[part].to(lifted.vectors.dtype))
