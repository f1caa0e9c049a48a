"""What a geometry is: a few small functions that bring every head into the form of one matrix product.

    logit(i, j) = scale_j * link( <A_i, B_j> * exp(a_i + b_j) )

A_i is a lifted state, B_j a lifted item, ``link`` an odd, increasing function. Where the lifts would overflow, the
exponents a_i and b_j are taken out of them (``factored``). Exponents are constants: gradients flow through the lifts.

A geometry has at most one number that a head may learn, its shape parameter ``theta``: the curvature of the Poincare
ball, or the temperature of a flat head that learns it. A new geometry is one file with a subclass of :class:`Geometry`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from recbole_hyper.options import Part

Theta = float | Tensor
_DTYPES = (torch.half, torch.bfloat16, torch.float, torch.double)
# the largest x for which exp(x) can be squared: 43.4 in float32, 353 in float64
EXPONENT_LIMIT = {dtype: math.log(torch.finfo(dtype).max) / 2 - 1 for dtype in _DTYPES}


class LiftedStates(NamedTuple):
    """``vectors`` (n, width); ``exponent`` (n,) or None for 0."""

    vectors: Tensor
    exponent: Tensor | None = None


class ItemTerms(NamedTuple):
    """What turns an item's weight vector z_j into its lift B_j = [multiplier_j * z_j, extra_j].

    ``multiplier`` (m,) or None for 1; ``extra`` (m, k) or None for no extra columns; ``scale`` (m,) or None for 1;
    ``exponent`` (m,) or None for 0. The vectors are not stored here, so a large catalogue needs no lifted copy.
    """

    multiplier: Tensor | None = None
    extra: Tensor | None = None
    scale: Tensor | None = None
    exponent: Tensor | None = None

    def vectors(self, weight: Tensor) -> Tensor:
        """Return the lifted items B (m, d + k), or the weight itself if the lift changes nothing."""
        vectors = weight if self.multiplier is None else weight * self.multiplier.unsqueeze(-1)
        return vectors if self.extra is None else torch.cat((vectors, self.extra), dim=-1)

    def rows(self, index: slice | Tensor) -> ItemTerms:
        """Return the terms of a subset of the items."""
        return ItemTerms(*(None if term is None else term[index] for term in self))


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """Return float64 if any tensor is float64, else float32: lifts and links never run in half precision."""
    return torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32


def as_compute(states: Tensor, weight: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the tensors in their :func:`compute_dtype`."""
    dtype = compute_dtype(states, weight, offset)
    return states.to(dtype), weight.to(dtype), None if offset is None else offset.to(dtype)


class Geometry(Part, ABC):
    """How a state scores an item. Stateless: theta and offsets are arguments.

    Shapes: states (n, d), weight (m, d), offset (m,) or None; theta is a float or a 0-d tensor.
    """

    kind = "geometry"
    #: whether ``theta`` is the curvature of a space
    curved: bool = False
    #: where a learned temperature starts; ``theta`` is then the temperature. None if it is not learned
    learns_from: float | None = None
    #: whether the geometry has a link; without one the slope is 1 and items have no scale
    has_link: bool = False
    #: whether the link is asinh, items have a scale and lifts at most one extra column: a kernel exists for that case
    asinh_link: bool = False

    @abstractmethod
    def lift_states(self, states: Tensor, *, theta: Theta, offset: bool, factored: bool = False) -> LiftedStates:
        """Return the lifted states; ``offset`` says whether items have offsets, which may add a column."""

    @abstractmethod
    def lift_items(self, weight: Tensor, offset: Tensor | None, *, theta: Theta, factored: bool = False) -> ItemTerms:
        """Return the terms that lift the items ``weight`` (..., d) with ``offset`` (...)."""

    def link(self, inner: Tensor, exponent: Tensor | None = None) -> Tensor:
        """Return link(inner * exp(exponent)) elementwise, differentiable by ``inner``."""
        return inner

    def link_(self, inner: Tensor, slope: Tensor, scratch: Tensor, exponent: Tensor | None = None) -> None:
        """Replace ``inner`` by its link in place and write d link / d inner into ``slope``; no gradient."""
        slope.fill_(1)

    def factored(self, states: Tensor, offset: Tensor | None, theta: Theta) -> bool:
        """Return whether the lifts of these states and offsets overflow unless exponents are taken out."""
        return False

    def check_theta(self, theta: Theta) -> None:
        """Raise ValueError unless ``theta`` is one finite number above 0; a geometry without theta accepts anything."""
        if not self.curved and self.learns_from is None:
            return
        name = "curvature" if self.curved else "temperature"
        if isinstance(theta, Tensor):
            if theta.dim() != 0:
                raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(theta.shape)}")
            if theta.device.type != "cpu":  # reading it would stall the device at every step
                return
        value = float(theta.detach() if isinstance(theta, Tensor) else theta)
        if not (math.isfinite(value) and value > 0):
            hint = "; a typical value is 0.01 to 0.05 (use geometry=euclidean for a flat head)" if self.curved else ""
            raise ValueError(f"{name} must be a finite number above 0, got {value}{hint}")

    #: what :meth:`similarity` measures, in words
    measure: str = "cosine of the item vectors"

    def similarity(self, queries: Tensor, weight: Tensor, *, theta: Theta = 1.0) -> Tensor:
        """Return the similarity (q, m) of the items ``queries`` (q, d) to the items ``weight`` (m, d)."""
        norms = queries.norm(dim=-1, keepdim=True) * weight.norm(dim=-1)
        return queries @ weight.t() / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def logits(self, states: Tensor, weight: Tensor, offset: Tensor | None = None, *, theta: Theta = 1.0) -> Tensor:
        """Return all logits (n, m), differentiable by every tensor argument; ValueError for an invalid theta.

        Groups of states (g, a, d), each with its items (g, k, d), give logits (g, a, k).
        """
        self.check_theta(theta)
        with torch.autocast(states.device.type, enabled=False):
            states, weight, offset = as_compute(states, weight, offset)
            factored = self.factored(states, offset, theta)
            lifted = self.lift_states(states, theta=theta, offset=offset is not None, factored=factored)
            terms = self.lift_items(weight, offset, theta=theta, factored=factored)
            return self.combine(lifted, terms, terms.vectors(weight))

    def combine(self, lifted: LiftedStates, terms: ItemTerms, vectors: Tensor) -> Tensor:
        """Return the logits (..., n, m) of lifted states (..., n, width) and lifted items (..., m, width)."""
        exponent = None
        if lifted.exponent is not None and terms.exponent is not None:
            exponent = lifted.exponent.unsqueeze(-1) + terms.exponent.unsqueeze(-2)
        linked = self.link(lifted.vectors @ vectors.transpose(-1, -2), exponent)
        return linked if terms.scale is None else linked * terms.scale.unsqueeze(-2)

    def pair_logits(
        self, states: Tensor, weight: Tensor, offset: Tensor | None = None, *, theta: Theta = 1.0
    ) -> Tensor:
        """Return the logits (n, k) of states (n, d), each with its k items: weight (n, k, d), offset (n, k)."""
        return self.logits(states.unsqueeze(1), weight, offset, theta=theta).squeeze(1)

    @torch.no_grad()
    def search_states(self, states: Tensor, *, theta: Theta = 1.0, offset: bool) -> Tensor:
        """Return state vectors (n, width) for a search by inner product; no gradient."""
        factored = self.factored(states, None, theta)
        lifted = self.lift_states(states, theta=theta, offset=offset, factored=factored)
        if lifted.exponent is None or not len(states):
            return lifted.vectors
        # one factor for all, so that states compare as their lifts do
        above = (lifted.exponent.amax() - EXPONENT_LIMIT[states.dtype]).clamp_min(0)
        return lifted.vectors * torch.exp(lifted.exponent - above).unsqueeze(-1)

    @torch.no_grad()
    def search_items(self, weight: Tensor, offset: Tensor | None = None, *, theta: Theta = 1.0) -> Tensor:
        """Return item vectors (m, width) for a search by inner product with ``search_states``; no gradient.

        Without a link these products sort the items as the logits do.
        """
        return self.lift_items(weight, offset, theta=theta).vectors(weight)

    #: the formula of the score from <q, vector> and :meth:`search_factors`
    search_score: str = "<q, vector>"

    def search_query(self, *, offset: bool) -> str:
        """Describe how a state F (d,) becomes the query q of a search: ``search_states`` in words."""
        return f"lift_states(F) of {type(self).__qualname__}"

    def search_factors(self, weight: Tensor, offset: Tensor | None, *, theta: Theta) -> dict[str, Tensor]:
        """Return the factors (m,) of each item by their names in ``search_score``."""
        return {}
