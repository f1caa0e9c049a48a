"""Base of the losses with k negatives for each positive."""

from typing import Annotated

from recbole_hyper.data.negatives import check_k
from recbole_hyper.losses.base import Loss
from recbole_hyper.options import Option

NNegatives = Annotated[int, Option("int >= 1", "negatives per position or sequence")]


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
