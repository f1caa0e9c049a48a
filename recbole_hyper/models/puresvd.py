"""PureSVD with popularity scaling, the linear baseline of the HSASRec paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.data.histories import accumulate, history_steps, multiply
from recbole_hyper.models._linear import LinearRecommender, cached, keep, matrix_fingerprint
from recbole_hyper.types import Cases

SOLVERS = ("auto", "gram", "arpack", "randomized")
# up to this many items the dense Gram matrix (n x n, float64: 0.5 GB) is faster than a sparse SVD, and exact
GRAM_ITEMS = 8000


def item_factors(
    matrix: scipy.sparse.csr_matrix, rank: int, scaling: float, solver: str = "auto", seed: int = 0
) -> npt.NDArray[np.float32]:
    """Return V (n_items, rank), the leading right singular vectors of ``A diag(p ** ((scaling - 1) / 2))``.

    ``p`` holds the item counts of the binary ``A`` (users, n_items); ``scaling`` 1 is the plain SVD, 0 divides every
    column by its norm. The first k columns are those of rank k.

    Args:
        matrix: binary training matrix.
        rank: number of vectors, at most min(users, items).
        scaling: 0..1.
        solver: "gram" (eigenvectors of the items' Gram matrix, exact), "arpack" (exact, for small ranks),
            "randomized" (scikit-learn, approximate, for many items), "auto" (gram up to 8,000 items, else randomized).
        seed: of arpack and randomized.
    """
    counts = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
    weights = np.zeros_like(counts)
    weights[counts > 0] = counts[counts > 0] ** ((scaling - 1.0) / 2.0)
    scaled = (matrix.astype(np.float64) @ scipy.sparse.diags(weights)).tocsr()
    n_items = matrix.shape[1]
    if solver == "auto":
        solver = "gram" if n_items <= GRAM_ITEMS else "randomized"
    if solver == "gram":
        dense = (scaled.T @ scaled).toarray()
        _, vectors = scipy.linalg.eigh(
            dense, overwrite_a=True, check_finite=False, subset_by_index=[n_items - rank, n_items - 1]
        )
        return np.ascontiguousarray(vectors[:, ::-1], dtype=np.float32)
    if solver == "arpack":
        _, values, right = scipy.sparse.linalg.svds(scaled, k=rank, random_state=seed)
        return np.ascontiguousarray(right[np.argsort(-values, kind="stable")].T, dtype=np.float32)
    _, _, right = randomized_svd(scaled, rank, n_iter=7, random_state=seed)
    return np.ascontiguousarray(right.T, dtype=np.float32)


@component("models")
class PureSVDN(LinearRecommender):
    """PureSVD-N (Nikolakopoulos et al., 2019; HSASRec paper, appendix E): scores ``V V^T x`` of a binary history x.

    The factors come from the training matrix with its columns scaled by popularity (see :func:`item_factors`); the
    history that is folded in is not scaled. One decomposition serves all ranks up to ``max_rank``.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.rank, self.scaling, self.solver = int(config["rank"]), float(config["scaling"]), str(config["svd_solver"])
        self.seed = int(config["seed"])
        users = int((np.diff(self.matrix.indptr) > 0).sum())
        self.largest = min(users, self.n_items - 1)
        if self.rank > self.largest:
            raise ValueError(
                f"rank={self.rank}: the training matrix of {users} users and {self.n_items - 1} items has at most "
                f"{self.largest} factors; choose a smaller rank"
            )
        self.kept = min(self.largest, max(self.rank, int(config["max_rank"] or 0)))
        if self.solver == "arpack" and self.kept >= min(self.matrix.shape):
            raise ValueError(f"svd_solver='arpack' finds fewer than {min(self.matrix.shape)} factors; use 'gram'")
        self.factors = torch.empty(0)

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Check rank, scaling, max_rank and svd_solver."""
        from recbole_hyper.config import ConfigError

        if not isinstance(config["rank"], int) or config["rank"] < 1:
            raise ConfigError(f"rank={config['rank']!r}: a whole number of at least 1 is expected")
        if not isinstance(config["scaling"], int | float) or not 0 <= config["scaling"] <= 1:
            raise ConfigError(f"scaling={config['scaling']!r}: a number from 0 to 1 is expected")
        largest = config["max_rank"]
        if largest is not None and (not isinstance(largest, int) or largest < config["rank"]):
            raise ConfigError(f"max_rank={largest!r}: a whole number of at least rank={config['rank']}, or ~")
        if config["svd_solver"] not in SOLVERS:
            raise ConfigError(f"svd_solver={config['svd_solver']!r}: allowed are {', '.join(SOLVERS)}")

    @property
    def n_learned(self) -> int:
        """Number of fitted values: n_items x rank."""
        return (self.n_items - 1) * self.rank

    def fit(self) -> None:
        """Decompose the training matrix, or cut the factors out of a decomposition that is kept."""
        key = f"{matrix_fingerprint(self.matrix)}-{self.scaling:g}-{self.solver}-{self.seed}"
        found = cached("puresvd", key, self.cache_folder)
        if found is None or found["factors"].shape[1] < self.rank:
            found = {"factors": item_factors(self.matrix, self.kept, self.scaling, self.solver, self.seed)}
            keep("puresvd", key, self.cache_folder, found)
        self.factors = torch.from_numpy(np.ascontiguousarray(found["factors"][:, : self.rank])).to(self.device)

    def score_histories(self, histories: scipy.sparse.csr_matrix) -> Tensor:
        """Return ``X V V^T`` (n, n_items)."""
        return multiply(histories, self.factors) @ self.factors.T

    def score_cases(self, cases: Cases) -> Tensor:
        """Return the scores (n, n_items); a successive case adds its newest items' factors to the state before it."""
        steps, goes_on = history_steps(cases)
        return accumulate(multiply(steps, self.factors), goes_on) @ self.factors.T
