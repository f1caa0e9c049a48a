"""What every engine of the exact cross-entropy is given, and what it returns."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Geometry, Theta, compute_dtype


class Gradients(NamedTuple):
    """Gradients of states, weight, offset and theta; None where not needed."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    theta: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """One evaluation: its tensors, and whether the gradients of states, weight, offset and theta are needed.

    ``budget`` bounds the bytes of the logits, None is the default. ``smoothing`` is the share of the target that is
    spread evenly over all items.
    """

    states: Tensor
    targets: Tensor
    weight: Tensor
    offset: Tensor | None
    theta: Theta
    geometry: Geometry
    padding_idx: int | None
    budget: int | None = None
    smoothing: float = 0.0
    needs: tuple[bool, ...] = (True, True, True, True)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the loss is computed."""
        return compute_dtype(self.states, self.weight, self.offset)

    def leaf(self, tensor: Tensor, needed: bool) -> Tensor:
        """Return a tensor in the computing dtype, without its graph."""
        return tensor.detach().to(self.dtype).requires_grad_(needed)

    def leaf_of_theta(self) -> Theta:
        """Return theta as a leaf if it is a tensor."""
        return self.leaf(self.theta, self.needs[3]) if isinstance(self.theta, Tensor) else self.theta
