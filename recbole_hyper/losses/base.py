"""Base classes of the losses: they turn states, targets and a head into one number."""

import inspect
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Annotated, Any

from torch import Tensor, nn

from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.negatives import BoundNegatives, check_k
from recbole_hyper.options import Option, Part
from recbole_hyper.values import PositiveInt

#: what a loss uses for scores, and for negatives
Head = OutputHead
Negatives = BoundNegatives


class Loss(Part, nn.Module, ABC):
    """A loss stores its options; a pure function in the same file computes it.

    Attributes:
        statistics: numbers about the last call, for the training log.
        uses_negatives: whether it draws from ``negatives``.
        weighs_rows: whether ``forward`` takes ``weights`` (n,), and then returns the weighted sum of the losses instead
            of their mean; read from its arguments. Only such a loss can be part of a CUDA graph, whose batches are
            filled up with rows of weight 0.
    """

    kind = "losses"
    uses_negatives: bool = False
    weighs_rows: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.weighs_rows = "weights" in inspect.signature(cls.forward).parameters

    def __init__(self) -> None:
        super().__init__()
        self.statistics: dict[str, Tensor] = {}

    @abstractmethod
    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss of the supervised positions, a 0-d tensor.

        Args:
            states: (n, d) encoder states, without padding.
            targets: (n,) int64 item ids, never the padding item.
            head: scores states against items.
            negatives: draws items that the user has not seen; if None, a loss draws from all items but the target.
        """


def mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of ``losses`` (n,), or their sum with the ``weights`` (n,)."""
    return losses.mean() if weights is None else losses.dot(weights)


NNegatives = Annotated[PositiveInt, Option("negatives per position or sequence")]


class SampledLoss(Loss):
    """A loss that draws k negatives."""

    uses_negatives = True

    def __init__(
        self,
        *,
        n_negatives: Annotated[NNegatives, "distinct negatives that the user has not seen; SCE paper sec. 4.2.3"] = 256,
    ) -> None:
        super().__init__()
        check_k(n_negatives)
        self.n_negatives = n_negatives


def check_int(name: str, value: int, least: int) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
