"""The dot product, with an optional bias per item."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, LiftedStates


@component("geometry", "euclidean")
class Euclidean(Geometry):
    r"""logit = <F_i, M_j> + offset_j: A = [F, 1], B = [M, offset], scale 1, link the identity.

    Without offsets the lifts are the states and the weights themselves. ``curvature`` is ignored.
    """

    curved = False
    has_link = False
    lifts = False

    def lift_states(
        self, states: Tensor, *, curvature: Curvature = 1.0, offset: bool, factored: bool = False
    ) -> LiftedStates:
        """Return [F, 1] (n, d + 1) with offsets, else F (n, d)."""
        return LiftedStates(torch.nn.functional.pad(states, (0, 1), value=1.0) if offset else states)

    def lift_items(
        self, weight: Tensor, offset: Tensor | None, *, curvature: Curvature = 1.0, factored: bool = False
    ) -> ItemTerms:
        """Return the terms of [M, offset]."""
        return ItemTerms(extra=None if offset is None else offset.unsqueeze(-1))
