"""What a geometry is: three small functions that give every head the form of one matrix product.

    logit(i, j) = scale_j * link( <A_i, B_j> * exp(a_i + b_j) )

A_i is a lifted state, B_j a lifted item, ``link`` an odd, increasing function. a_i and b_j are exponents taken out of
the lifts where these would overflow (``factored``), otherwise absent. Exponents are constants: the gradient flows
through the lifts. A new geometry is one file with a subclass of :class:`Geometry`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from recbole_hyper.geometry._math import exponent_limit
from recbole_hyper.registry import Part

Curvature = float | Tensor


class LiftedStates(NamedTuple):
    """``vectors`` (n, width); ``exponent`` (n,) or None for 0."""

    vectors: Tensor
    exponent: Tensor | None = None


class ItemTerms(NamedTuple):
    """What turns an item's weight vector z_j into its lift B_j = [multiplier_j * z_j, extra_j].

    ``multiplier`` (m,) or None for 1; ``extra`` (m, k) or None for no further columns; ``scale`` (m,) or None for 1;
    ``exponent`` (m,) or None for 0. Kept apart from the vectors, so that a large catalogue needs no lifted copy.
    """

    multiplier: Tensor | None = None
    extra: Tensor | None = None
    scale: Tensor | None = None
    exponent: Tensor | None = None

    def vectors(self, weight: Tensor) -> Tensor:
        """Return the lifted items B (m, d + k); the weight itself where nothing has to be done."""
        vectors = weight if self.multiplier is None else weight * self.multiplier.unsqueeze(-1)
        return vectors if self.extra is None else torch.cat((vectors, self.extra), dim=-1)

    def rows(self, index: slice | Tensor) -> ItemTerms:
        """Return the terms of a subset of the items."""
        return ItemTerms(*(None if term is None else term[index] for term in self))


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """Return float64 if any tensor is float64, else float32: lifts and links never run in half precision."""
    return torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32


class Geometry(Part, ABC):
    """How a state scores an item. Stateless: curvature and offsets are arguments.

    Shapes: states (n, d), weight (m, d), offset (m,) or None, curvature a float or a 0-d tensor.
    """

    #: whether ``curvature`` is the curvature of a space
    curved: bool = False
    #: where a learned temperature starts; its value then comes as ``curvature``. None: the temperature is not learned
    learns_from: float | None = None
    #: whether the geometry has a link; without one its slope is 1 and items have no scale
    has_link: bool = False
    #: True where link is asinh, items have a scale and lifts at most one extra column: there is a kernel for that
    asinh_link: bool = False

    @abstractmethod
    def lift_states(
        self, states: Tensor, *, curvature: Curvature, offset: bool, factored: bool = False
    ) -> LiftedStates:
        """Return the lifted states. ``offset`` says whether the items carry offsets (it may add a column)."""

    @abstractmethod
    def lift_items(
        self, weight: Tensor, offset: Tensor | None, *, curvature: Curvature, factored: bool = False
    ) -> ItemTerms:
        """Return the terms that lift the items ``weight`` (any leading shape: (..., d), offset (...))."""

    def link(self, inner: Tensor, exponent: Tensor | None = None) -> Tensor:
        """Return link(inner * exp(exponent)) elementwise, differentiable by ``inner``."""
        return inner

    def link_(self, inner: Tensor, slope: Tensor, scratch: Tensor, exponent: Tensor | None = None) -> None:
        """Replace ``inner`` by its link in place and write d link / d inner into ``slope``; no gradient."""
        slope.fill_(1)

    def factored(self, states: Tensor, offset: Tensor | None, curvature: Curvature) -> bool:
        """Say whether the lifts of these states and offsets need exponents taken out to stay finite."""
        return False

    def check_curvature(self, curvature: Curvature) -> None:
        """Raise ValueError if ``curvature`` is not a finite number above 0 (where it has an effect at all)."""
        if not self.curved and self.learns_from is None:
            return
        if isinstance(curvature, Tensor):
            if curvature.dim() != 0:
                raise ValueError(f"curvature must be one number, got a tensor of shape {tuple(curvature.shape)}")
            if curvature.device.type != "cpu":  # reading it would stall the device at every step
                return
        value = float(curvature.detach() if isinstance(curvature, Tensor) else curvature)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"curvature must be a finite number above 0, got {value}; a typical value is 0.01 to 0.05 "
                "(use geometry=euclidean for a flat head)"
            )

    #: what :meth:`similarity` measures, in words
    measure: str = "cosine of the item vectors"

    def similarity(self, queries: Tensor, weight: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
        """Return how alike the items ``queries`` (q, d) are to the items ``weight`` (m, d), larger for more: (q, m)."""
        norms = queries.norm(dim=-1, keepdim=True) * weight.norm(dim=-1)
        return queries @ weight.t() / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def logits(
        self, states: Tensor, weight: Tensor, offset: Tensor | None = None, *, curvature: Curvature = 1.0
    ) -> Tensor:
        """Return all logits (n, m), differentiable by every tensor argument; ValueError for a curvature not above 0.

        Of groups of states (g, a, d), each with items of its own (g, k, d), these are (g, a, k).
        """
        self.check_curvature(curvature)
        with torch.autocast(states.device.type, enabled=False):
            states, weight, offset = as_compute(states, weight, offset)
            factored = self.factored(states, offset, curvature)
            lifted = self.lift_states(states, curvature=curvature, offset=offset is not None, factored=factored)
            terms = self.lift_items(weight, offset, curvature=curvature, factored=factored)
            return self.combine(lifted, terms, terms.vectors(weight))

    def combine(self, lifted: LiftedStates, terms: ItemTerms, vectors: Tensor) -> Tensor:
        """Return the logits (..., n, m) of lifted states (..., n, width) and of lifted items (..., m, width)."""
        exponent = None
        if lifted.exponent is not None and terms.exponent is not None:
            exponent = lifted.exponent.unsqueeze(-1) + terms.exponent.unsqueeze(-2)
        linked = self.link(lifted.vectors @ vectors.transpose(-1, -2), exponent)
        return linked if terms.scale is None else linked * terms.scale.unsqueeze(-2)

    def pair_logits(
        self, states: Tensor, weight: Tensor, offset: Tensor | None = None, *, curvature: Curvature = 1.0
    ) -> Tensor:
        """Return the logits (n, k) of states (n, d) with their own items: weight (n, k, d), offset (n, k)."""
        return self.logits(states.unsqueeze(1), weight, offset, curvature=curvature).squeeze(1)

    @torch.no_grad()
    def search_states(self, states: Tensor, *, curvature: Curvature = 1.0, offset: bool) -> Tensor:
        """Return state vectors (n, width) for a search by inner product; no gradient."""
        factored = self.factored(states, None, curvature)
        lifted = self.lift_states(states, curvature=curvature, offset=offset, factored=factored)
        if lifted.exponent is None or not len(states):
            return lifted.vectors
        # all by one factor, so that states compare as their lifts do
        above = (lifted.exponent.amax() - exponent_limit(states.dtype)).clamp_min(0)
        return lifted.vectors * torch.exp(lifted.exponent - above).unsqueeze(-1)

    @torch.no_grad()
    def search_items(self, weight: Tensor, offset: Tensor | None = None, *, curvature: Curvature = 1.0) -> Tensor:
        """Return item vectors (m, width) for a search by inner product with ``search_states``; no gradient.

        Without a link the order of these products is the order of the logits.
        """
        return self.lift_items(weight, offset, curvature=curvature).vectors(weight)

    #: how the score follows from <q, vector> and the factors of an item; a geometry with a link says its own
    search_score: str = "<q, vector>"

    def search_query(self, *, offset: bool) -> str:
        """Say in words how a state F (d,) becomes the query q of a search: ``search_states``."""
        return f"lift_states(F) of {type(self).__qualname__}"

    def search_factors(self, weight: Tensor, offset: Tensor | None, *, curvature: Curvature) -> dict[str, Tensor]:
        """Return the factors (m,) of each item, by name, that ``search_score`` speaks of."""
        return {}


def as_compute(states: Tensor, weight: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return all in the dtype of :func:`compute_dtype`."""
    dtype = compute_dtype(states, weight, offset)
    return states.to(dtype), weight.to(dtype), None if offset is None else offset.to(dtype)
