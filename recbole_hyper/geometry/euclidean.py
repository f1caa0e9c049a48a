"""The dot product over a temperature, with an optional bias per item."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates, Theta
from recbole_hyper.options import Option, check_options
from recbole_hyper.values import PositiveFloat


class Flat(Geometry):
    """A product over a temperature. With "learn" the temperature is ``theta`` and starts at ``start``."""

    def __init__(self, temperature: float | str, start: float) -> None:
        super().__init__()
        check_options(self.options(), {"temperature": temperature})
        self.learns_from = start if temperature == "learn" else None
        self.temperature = self.learns_from or float(temperature)

    def _vectors(self, states: Tensor, offset: bool) -> LiftedStates:
        return LiftedStates(torch.nn.functional.pad(states, (0, 1), value=1.0) if offset else states)

    def _named(self) -> str:
        return f"{self.temperature:g}" if self.learns_from is None else "temperature"


class Euclidean(Flat):
    r"""logit = <F_i, M_j> / temperature + offset_j: A = [F / temperature, 1], B = [M, offset], scale 1, no link.

    Without offsets, a temperature of 1/4 is the limit of the Poincare head as c -> 0. With a temperature of 1 and
    without offsets the lifts are the states and the weights themselves. ``theta`` is used only if the temperature is
    learned; it starts at 1. ValueError for a temperature that is neither a finite number above 0 nor "learn".
    """

    def __init__(
        self,
        *,
        temperature: Annotated[
            PositiveFloat | Literal["learn"],
            Option(
                "logits are dot products over it; learn trains it; 0.25 is the Poincare head as curvature goes to 0",
            ),
        ] = 1.0,
    ) -> None:
        super().__init__(temperature, 1.0)
        self._lifts = temperature != 1

    def lift_states(self, states: Tensor, *, theta: Theta = 1.0, offset: bool, factored: bool = False) -> LiftedStates:
        """Return [F / temperature, 1] (n, d + 1) with offsets, else F / temperature (n, d)."""
        if self._lifts:
            states = states / (theta if self.learns_from else self.temperature)
        return self._vectors(states, offset)

    def lift_items(
        self, weight: Tensor, offset: Tensor | None, *, theta: Theta = 1.0, factored: bool = False
    ) -> ItemTerms:
        """Return the terms of [M, offset]."""
        return ItemTerms(extra=None if offset is None else offset.unsqueeze(-1))

    def search_query(self, *, offset: bool) -> str:
        state = f"F/{self._named()}" if self._lifts else "F"
        return f"[{state}, 1]" if offset else state
