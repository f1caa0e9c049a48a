"""The cosine of state and item over a temperature: normalised heads, with an optional bias per item."""

from typing import Annotated

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, LiftedStates
from recbole_hyper.options import Option, check_options
from recbole_hyper.registry import register

# |x| is smoothed to sqrt(|x|^2 + NORM_FLOOR^2): far below any trained norm, and so large that the gradient at 0, which
# grows as 1 / |x|, stays a float32 that an optimizer can square
NORM_FLOOR = 1e-6


@register("geometry", "cosine")
class Cosine(Geometry):
    r"""logit = <F/|F|, z/|z|> / temperature + offset: A = [F/(temperature |F|), 1], B = [z/|z|, offset], scale 1.

    The head of NormFace (Wang et al. 2017; its scale is 1 / temperature), which HSTU's public configurations take with
    a temperature of 0.05 (Zhai et al. 2024). A state or item of length 0 scores 0. ``curvature`` is
    ignored, or is the temperature where that is learned.

    Args:
        temperature: above 0; logits without offsets lie in [-1 / temperature, 1 / temperature]. "learn": the head
            trains it, from .05.

    Raises:
        ValueError: a temperature that is neither a finite number above 0 nor "learn".
    """

    def __init__(
        self,
        *,
        temperature: Annotated[
            float | str,
            Option("float > 0 or learn", "logits are cosines over it; learn trains it from .05; HSTU's configurations"),
        ] = 0.05,
    ) -> None:
        super().__init__()
        check_options(Cosine, temperature=temperature)
        self.learns_from = 0.05 if temperature == "learn" else None
        self.temperature = self.learns_from or float(temperature)

    def lift_states(
        self, states: Tensor, *, curvature: Curvature = 1.0, offset: bool, factored: bool = False
    ) -> LiftedStates:
        """Return [F/(temperature |F|), 1] (n, d + 1) with offsets, else without the last column (n, d)."""
        temperature = curvature if self.learns_from else self.temperature
        vectors = states * (_inverse_norm(states) / temperature).unsqueeze(-1)
        return LiftedStates(torch.nn.functional.pad(vectors, (0, 1), value=1.0) if offset else vectors)

    def lift_items(
        self, weight: Tensor, offset: Tensor | None, *, curvature: Curvature = 1.0, factored: bool = False
    ) -> ItemTerms:
        """Return the terms of [z/|z|, offset]."""
        return ItemTerms(_inverse_norm(weight), None if offset is None else offset.unsqueeze(-1))

    def search_query(self, *, offset: bool) -> str:
        state = f"F/({'temperature' if self.learns_from else f'{self.temperature:g}'} |F|)"
        return f"[{state}, 1]" if offset else state


def _inverse_norm(vectors: Tensor) -> Tensor:
    """Return 1 / |x| of vectors (..., d), smoothed at 0: (...)."""
    return torch.rsqrt(vectors.square().sum(-1) + NORM_FLOOR**2)
