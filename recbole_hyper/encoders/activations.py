"""The activations inside feed-forward parts, by the names that RecBole gives them."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the activation that ``hidden_act`` names; ValueError for a name that is none."""
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act={name!r} is unknown; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
