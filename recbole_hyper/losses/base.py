"""Base classes of the losses: they turn states, targets and a head into one number."""

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.options import Option, Part, check_options
from recbole_hyper.values import PositiveInt

if TYPE_CHECKING:
    from recbole_hyper.losses.negatives import BoundNegatives as Negatives
else:
    Negatives = Any  # a model that only ranks draws none

#: what a loss uses for scores
Head = OutputHead


class Loss(Part, nn.Module, ABC):
    """What a model minimises: turns states, targets and a head into one number.

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

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Check the options before the constructor uses them."""
        check_options(cls.options(), options)
        return super().__new__(cls)

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
        self.n_negatives = n_negatives


class PairedLoss(SampledLoss):
    """A loss of each position's target and its own k negatives.

    ``exclude_seen``: negatives are items that the user has not seen, otherwise any but the target. ``replacement``: a
    negative may repeat.
    """

    exclude_seen: ClassVar[bool] = True
    replacement: ClassVar[bool] = True

    @abstractmethod
    def of_rows(self, positive: Tensor, negative: Tensor, head: Head) -> Tensor:
        """Return the losses (n,) from the logits (n,) of the targets and (n, k) of the negatives."""

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss, or the sum with the ``weights`` (n,)."""
        if negatives is None:
            from recbole_hyper.losses.negatives import uniform_negatives

            drawn = uniform_negatives(targets, self.n_negatives, head.n_items, head.padding_idx)
        else:
            how = {"exclude_seen": self.exclude_seen, "replacement": self.replacement}
            drawn = negatives.per_position(self.n_negatives, **how)
        logits = head.pair_logits(states, torch.cat((targets.unsqueeze(1), drawn), dim=1))
        return mean(self.of_rows(logits[:, 0], logits[:, 1:], head), weights)
