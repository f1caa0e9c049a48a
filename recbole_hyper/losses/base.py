"""Base of the losses: states with targets and a head in, one number out; and the memory that a loss needs."""

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Protocol

from torch import Tensor, nn

from recbole_hyper.geometry.base import Curvature, Geometry
from recbole_hyper.registry import Part


class Head(Protocol):
    """What a loss needs from an output head (see geometry.head.OutputHead)."""

    geometry: Geometry
    offset: Tensor | None
    padding_idx: int | None

    @property
    def weight(self) -> Tensor:
        """Item matrix (n_items, d)."""

    @property
    def curvature(self) -> Curvature:
        """A float, or a 0-d tensor with a gradient."""

    @property
    def n_items(self) -> int:
        """Number of items, padding included."""

    def logits(self, states: Tensor, items: Tensor | None = None) -> Tensor:
        """Return (n, m) logits for all items or for ``items`` (m,)."""

    def pair_logits(self, states: Tensor, items: Tensor) -> Tensor:
        """Return (n, k) logits; row i has its own items (n, k)."""


class Negatives(Protocol):
    """Draws negatives for the rows of one batch; never the row's target, never padding."""

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        """Return (n, k) item ids."""

    def per_sequence(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> tuple[Tensor, Tensor]:
        """Return (S, k) item ids, one set per sequence, and the sequence of each row (n,)."""


class Loss(Part, nn.Module, ABC):
    """A loss that stores its options; a pure function beside it computes.

    Attributes:
        statistics: numbers about the last call, for the training log.
        uses_negatives: whether it draws from ``negatives``.
    """

    uses_negatives: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.statistics: dict[str, Tensor] = {}

    @abstractmethod
    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss of the supervised positions, a 0-d tensor.

        Args:
            states: (n, d) encoder states, padding dropped.
            targets: (n,) int64 item ids, never the padding item.
            head: scores states against items.
            negatives: draws items that the user has not seen; without it, a loss draws from all items but the target.
        """


def check_int(name: str, value: int, least: int) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
