"""The output head: a geometry bound to the item matrix, the offsets and the shape parameter of one model."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Geometry, ItemTerms, Theta
from recbole_hyper.matmul import float32_products

# items per candidate up to which a product with all items beats gathering the candidates' vectors, on a CPU
_ALL_PER_CANDIDATE = 32
# the smallest theta that is learned: below it, rounding in float32 is larger than the gradient
LEAST_LEARNED = 1e-6


def check_head(offset: bool = True, offset_init: float = 0.0, theta: float = 1.0, learned: bool = False) -> None:
    """Raise ValueError for an initial bias without biases, and for a ``learned`` curvature that starts near 0."""
    if not isinstance(offset_init, int | float) or not math.isfinite(offset_init):
        raise ValueError(f"offset_init (key item_bias_init) must be a finite number, got {offset_init!r}")
    if offset_init and not offset:
        name = f"offset_init={offset_init} (key item_bias_init)"
        raise ValueError(f"{name} has no effect without offset=True (key item_bias)")
    if learned and theta < LEAST_LEARNED:
        raise ValueError(f"curvature={theta} (key curvature_init): {LEAST_LEARNED} is the least to learn from")


class OutputHead(nn.Module):
    """Scores states against items.

    Args:
        geometry: how a state scores an item.
        weight: item matrix (n_items, d), usually the parameter of the item embedding (tied). The head keeps a reference
            and does not register it, so that it appears once in a state dict.
        offset: True for a trained offset per item that starts at ``offset_init``, a Parameter (n_items,) to use that
            one, False for none. Euclidean: a bias; Poincare: the scalar r of the hyperplane.
        theta: the geometry's shape parameter, a number > 0, which is the curvature c of a curved geometry (sectional
            curvature -c). A 0-d tensor is used as it is, also by geometries that learn their temperature. Otherwise
            these train a parameter ``log_temperature``.
        learn_curvature: train the curvature as exp of a parameter ``log_curvature`` that starts at ``theta``. It ends
            at ``LEAST_LEARNED``: the head is flat by then, and its gradient in float32 would be noise.
        padding_idx: the item that no loss and no ranking scores; None if there is none.

    Raises:
        ValueError: theta is not above 0, or below ``LEAST_LEARNED`` if it is learned; ``offset_init`` is not finite or
            has no effect; or shapes do not agree.
    """

    def __init__(
        self,
        geometry: Geometry,
        weight: Tensor,
        *,
        offset: bool | Tensor | None = False,
        offset_init: float = 0.0,
        theta: Theta = 1.0,
        learn_curvature: bool = False,
        padding_idx: int | None = 0,
    ) -> None:
        super().__init__()
        if weight.dim() != 2:
            raise ValueError(f"weight must have shape (n_items, d), got {tuple(weight.shape)}")
        geometry.check_theta(theta)
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
            check_head(bool(offset), offset_init)
            self.offset = nn.Parameter(weight.new_full((weight.shape[0],), offset_init)) if offset else None
        self._theta = theta
        self.log_temperature: nn.Parameter | None = None
        self.log_curvature: nn.Parameter | None = None
        if isinstance(theta, Tensor):
            return
        if geometry.learns_from is not None:
            self.log_temperature = nn.Parameter(weight.new_tensor(math.log(geometry.learns_from)))
        elif learn_curvature and geometry.curved:
            check_head(theta=theta, learned=True)
            self.log_curvature = nn.Parameter(weight.new_tensor(math.log(theta)))

    @property
    def weight(self) -> Tensor:
        """Item matrix (n_items, d)."""
        return self._weight[0]

    @property
    def theta(self) -> Theta:
        """The geometry's shape parameter: a float, or a 0-d tensor that gradient flows through."""
        learned = self.log_curvature if self.log_temperature is None else self.log_temperature
        return self._theta if learned is None else learned.exp().clamp(min=LEAST_LEARNED)

    @property
    def theta_value(self) -> float:
        """:attr:`theta` as a number, without gradient."""
        return float(torch.as_tensor(self.theta).detach())

    @property
    def curvature(self) -> float | None:
        """The curvature of a curved head as a number, None for a flat head."""
        return self.theta_value if self.geometry.curved else None

    @property
    def learned(self) -> dict[str, float]:
        """The value that the head learns by its name, curvature or temperature; empty if it learns none."""
        parameters = {"curvature": self.log_curvature, "temperature": self.log_temperature}
        return {name: self.theta_value for name, parameter in parameters.items() if parameter is not None}

    @property
    def n_items(self) -> int:
        """Number of items, padding included."""
        return self.weight.shape[0]

    def step_head(self) -> OutputHead:
        """Return the head that the loss of one training step uses: this one, unless its matrix is computed."""
        return self

    def rows_in_step(self, items: Tensor) -> Tensor:
        """Return the rows of ``items`` in :meth:`step_head`, 0 for items that it leaves out."""
        return items

    @property
    def n_step_items(self) -> int:
        """Number of items in :meth:`step_head`, padding included."""
        return self.n_items

    def logits(self, states: Tensor, items: Tensor | None = None) -> Tensor:
        """Return the logits (n, m) of states (n, d) for ``items`` (m,), or for all items (padding included)."""
        weight, offset = self.weight, self.offset
        if items is not None:
            # embedding's backward is a plain scatter, index's is a sort: many times slower
            weight = nn.functional.embedding(items, weight)
            offset = None if offset is None else offset.index_select(0, items)
        return self.geometry.logits(states, weight, offset, theta=self.theta)

    def pair_logits(self, states: Tensor, items: Tensor) -> Tensor:
        """Return the logits (n, k) of states (n, d), each with its k ``items`` (n, k), none of which is padding.

        The gathered item vectors (n, k, d) exist piece by piece only.
        """
        if not items.numel():
            return states.new_zeros(items.shape)
        pieces = pair_pieces(self, items)
        return _gather.gathered(pieces, states, self.weight, self.offset, self.theta).view(items.shape)

    def frozen(self) -> FrozenHead:
        """Return the head for ranking, with items lifted once; call this again after every training step.

        Items are lifted at the first call of ``scores``. A flat head reads the weight itself, since a copy would double
        the memory of the item matrix. So after a step, an old frozen head may mix old and new values.
        """
        return FrozenHead(self)

    def extra_repr(self) -> str:
        """Describe the head in print(model)."""
        curvature = "" if self.curvature is None else f", curvature={self.curvature:.4g}"
        return f"{type(self.geometry).__name__}, n_items={self.n_items}{curvature}, offset={self.offset is not None}"


def pair_pieces(head: OutputHead, items: Tensor) -> list[_gather.Piece]:
    """Return the pieces that compute the logits of row i with ``items[i]`` (n, k), row by row.

    If the catalogue has few items per candidate, a piece scores all items and keeps the k: one matrix product is faster
    than gathering k vectors per row. Padding is not among them, as a NaN in its vector would reach all gradients.
    """
    geometry, padding = head.geometry, head.padding_idx
    (n, k), (n_items, d) = items.shape, head.weight.shape
    every = torch.arange(n_items, device=items.device) if n_items <= _ALL_PER_CANDIDATE * k else None
    if every is not None and padding is not None:
        every, items = torch.cat((every[:padding], every[padding + 1 :])), items - (items > padding).long()
    if every is None:
        step = max(1, _gather.numbers_at_once(items.device, _gather.PIECE) // (k * (d + 1)))
    else:
        step = max(1, _gather.numbers_at_once(items.device, _gather.LOGITS) // n_items)
    whole = step >= n
    parts = zip(torch.arange(n, device=items.device).split(step), items.split(step), strict=True)

    def compute(states: Tensor, weight: Tensor, offset: Tensor | None, theta: Theta, *chosen: Tensor) -> Tensor:
        if chosen:
            return geometry.logits(states, weight, offset, theta=theta).gather(1, chosen[0]).reshape(-1)
        return geometry.pair_logits(states, weight, offset, theta=theta).reshape(-1)

    if every is None:
        return [_gather.Piece(compute, rows, part, every_row=whole) for rows, part in parts]
    return [_gather.Piece(compute, rows, every, (part,), whole, padding is None) for rows, part in parts]


class FrozenHead:
    """Scores without gradient; lifts the items once, at the first call. Valid until the next training step.

    Keeps one copy of the lifted items (n_items, d + 1 at most), or the item matrix itself if the lift changes nothing.
    """

    @torch.no_grad()
    def __init__(self, head: OutputHead) -> None:
        self._geometry = head.geometry
        self._offset = head.offset
        self._theta = head.theta
        self._weight = head.weight
        self._lifted: dict[bool, tuple[ItemTerms, Tensor]] = {}
        self.n_items = head.n_items

    @torch.no_grad()
    def scores(self, states: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the logits (n, stop - start) of states (n, d) for the items start <= j < stop."""
        geometry, offset, theta = self._geometry, self._offset, self._theta
        with float32_products(states.device, len(states)):
            states = states.to(torch.promote_types(states.dtype, torch.float32))
            factored = geometry.factored(states, offset, theta)
            lifted = geometry.lift_states(states, theta=theta, offset=offset is not None, factored=factored)
            if factored not in self._lifted:
                weight = self._weight.detach()
                weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
                terms = geometry.lift_items(weight, offset, theta=theta, factored=factored)
                self._lifted = {factored: (terms, terms.vectors(weight))}
            terms, vectors = self._lifted[factored]
            part = slice(start, stop)
            return geometry.combine(lifted, terms.rows(part), vectors[part].to(lifted.vectors.dtype))
