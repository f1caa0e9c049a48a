"""PureSVD with popularity scaling, the linear baseline of the HSASRec paper."""

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from recbole_hyper.batches.histories import multiply
from recbole_hyper.models._linear import LinearRecommender
from recbole_hyper.options import Option, keyed
from recbole_hyper.svd import check_rank, scaled_columns, top_eigenpairs
from recbole_hyper.values import PositiveInt, Share

# up to so many items the dense Gram matrix (float64: 0.5 GB) is decomposed
GRAM_ITEMS = 8000


class PureSVDN(LinearRecommender):
    """PureSVD-N (Nikolakopoulos et al., 2019; HSASRec paper, appendix E): scores ``V V^T x`` of a binary history x.

    V are the leading right singular vectors of the training matrix, whose columns popularity scales
    (:func:`recbole_hyper.svd.scaled_columns`); the history is not scaled. Above 8,000 items an iteration, started by
    the seed, replaces the dense decomposition.
    """

    own_options = keyed(
        rank=Option("factors; HSASRec appendix E: 32 to 2048 by powers of two", kind=PositiveInt, default=128),
        scaling=Option(
            "columns times popularity^((s-1)/2), 1 is plain SVD; HSASRec appendix E: 0 to 1 in steps of 0.2",
            kind=Share,
            default=0.6,
        ),
    )
    factors: Tensor

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.rank, self.scaling, self.seed = int(config["rank"]), float(config["scaling"]), int(config["seed"])
        users = int((np.diff(self.matrix.indptr) > 0).sum())
        largest = min(users, self.n_items - 1)
        if self.rank > largest:
            raise ValueError(
                f"rank={self.rank} is above {largest}, the most that {users} users and {self.n_items - 1} items "
                "of the training part allow; choose a smaller rank"
            )
        check_rank(self.matrix.shape[1], self.rank, dense=GRAM_ITEMS)
        self.keep_learned("factors")
        self.n_learned = (self.n_items - 1) * self.rank

    def fit(self) -> None:
        """Decompose the training matrix."""
        side = scaled_columns(self.matrix, self.scaling)
        vectors = top_eigenpairs(side, self.rank, self.seed, dense=GRAM_ITEMS)[1]
        self.factors = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32)).to(self.device)

    def item_vectors(self) -> Tensor:
        return self.factors

    def fold_in(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        return multiply(histories, self.factors)

    def scores(self, states: Tensor) -> Tensor:
        return states @ self.factors.T
