"""The cosine of state and item over a temperature: normalised heads, with an optional bias per item."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from recbole_hyper.geometry.base import ItemTerms, LiftedStates, Theta
from recbole_hyper.geometry.euclidean import Flat
from recbole_hyper.options import Option
from recbole_hyper.values import PositiveFloat

# |x| is at least this: far below any trained norm, and so large that the gradient at 0, which grows as 1 / |x|, is a
# float16 too
NORM_FLOOR = 1e-3


class Cosine(Flat):
    r"""logit = <F/|F|, z/|z|> / temperature + offset: A = [F/(temperature |F|), 1], B = [z/|z|, offset], scale 1.

    The head of NormFace (Wang et al. 2017; its scale is 1 / temperature). HSTU's public configurations use it with a
    temperature of 0.05 (Zhai et al. 2024). A state or item of length 0 scores 0; logits without offsets lie in
    [-1 / temperature, 1 / temperature]. ``theta`` is used only if the temperature is learned; it starts at .05.
    ValueError for a temperature that is neither a finite number above 0 nor "learn".
    """

    def __init__(
        self,
        *,
        temperature: Annotated[
            PositiveFloat | Literal["learn"],
            Option("logits are cosines over it; learn trains it from .05; HSTU's configurations"),
        ] = 0.05,
    ) -> None:
        super().__init__(temperature, 0.05)

    def lift_states(self, states: Tensor, *, theta: Theta = 1.0, offset: bool, factored: bool = False) -> LiftedStates:
        """Return [F/(temperature |F|), 1] (n, d + 1) with offsets, else without the last column (n, d)."""
        temperature = theta if self.learns_from else self.temperature
        return self._vectors(states * (_inverse_norm(states) / temperature).unsqueeze(-1), offset)

    def lift_items(
        self, weight: Tensor, offset: Tensor | None, *, theta: Theta = 1.0, factored: bool = False
    ) -> ItemTerms:
        """Return the terms of [z/|z|, offset]."""
        return ItemTerms(_inverse_norm(weight), None if offset is None else offset.unsqueeze(-1))

    def search_query(self, *, offset: bool) -> str:
        state = f"F/({self._named()} |F|)"
        return f"[{state}, 1]" if offset else state


def _inverse_norm(vectors: Tensor) -> Tensor:
    """Return 1 / |x| of vectors (..., d), at most 1 / NORM_FLOOR: (...)."""
    return torch.rsqrt(vectors.square().sum(-1).clamp_min(NORM_FLOOR**2))
