"""A truncated SVD: leading eigenvectors of a Gram matrix, by a dense decomposition or by block Lanczos."""

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DENSE = 1500  # matrices up to this size are decomposed densely, which is faster than iterating
_TOLERANCE = 1e-6  # residual of a squared singular value relative to the smallest one kept
_BASIS_BYTES = 4 << 30
_GROWTH = 6  # the basis of the iteration grows to about this many times the rank


def scaled_columns(matrix: Any, scaling: float) -> scipy.sparse.csr_matrix:
    """Scale the columns of the binary (users, items) ``matrix`` by (item count)^((scaling - 1) / 2) (PureSVD-N)."""
    counts = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
    factors = np.zeros_like(counts)
    np.power(counts, (scaling - 1.0) / 2.0, out=factors, where=counts > 0)
    return (matrix.astype(np.float64) @ scipy.sparse.diags(factors)).tocsr()


def largest_rank(n: int) -> int:
    """Return the largest rank whose iteration on n x n fits into memory: n up to n = 23,170; 384 at 233,000."""
    room = _room(n)
    return n if room >= n else max(1, room // _GROWTH)


def check_rank(n: int, rank: int, advice: str = "", dense: int | None = None) -> None:
    """Raise ValueError, with ``advice`` at the end, if :func:`top_eigenpairs` does not fit into memory."""
    if _iterates(n, rank, dense) and rank > largest_rank(n):
        raise ValueError(
            f"rank {rank} of a Gram matrix of {n:,} x {n:,} needs a basis of about {_GROWTH * rank:,} vectors, but "
            f"only {_room(n):,} fit into its limit of {_BASIS_BYTES / 2**30:.3g} GiB: choose a rank of at most "
            f"{largest_rank(n)}{advice}"
        )


def top_eigenpairs(side: Any, rank: int, seed: int = 0, dense: int | None = None) -> tuple[Floats, Floats]:
    """Return the ``rank`` (1 to n) largest eigenvalues of side^T side in falling order, and their vectors (n, rank).

    These are the right singular vectors of the sparse ``side`` (m, n). Up to ``dense`` columns (None: 1,500) the Gram
    matrix is decomposed densely. Beyond, an iteration starts at random from ``seed``, which changes the result by
    rounding only. If it does not converge, the matrix is decomposed densely after all; ValueError if memory is short.
    """
    n = side.shape[1]
    if _iterates(n, rank, dense):
        pairs = _block_lanczos(side, rank, seed)
        if pairs is not None:
            return pairs
        if _room(n) < n:
            raise ValueError(
                f"the SVD at rank {rank} of a Gram matrix of {n} x {n} did not converge in {_room(n)} basis vectors: "
                "choose a smaller rank"
            )
    gram = (side.T @ side).toarray()
    if rank > n // 4:  # for many vectors, divide and conquer is faster than bisection
        values, vectors = scipy.linalg.eigh(gram, driver="evd", overwrite_a=True, check_finite=False)
    else:
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=(n - rank, n - 1), overwrite_a=True, check_finite=False
        )
    return values[::-1][:rank].copy(), np.ascontiguousarray(vectors[:, ::-1][:, :rank])


def _room(n: int) -> int:
    """Return how many basis vectors of n numbers fit into memory."""
    return _BASIS_BYTES // (8 * n)


def _iterates(n: int, rank: int, dense: int | None) -> bool:
    """Return whether the n x n Gram matrix is iterated, not decomposed densely."""
    return n > (DENSE if dense is None else dense) and _GROWTH * rank < n


def _block_lanczos(side: Any, rank: int, seed: int) -> tuple[Floats, Floats] | None:
    """Run block Lanczos on the Gram matrix with full reorthogonalisation until every residual is small.

    None if the basis is full before that.

    Each block takes a few dense matrix products, so for hundreds of vectors this is several times faster than ARPACK,
    which adds one vector at a time.
    """
    n = side.shape[1]
    transposed = side.T.tocsr()
    width = max(16, min(128, rank // 4))
    most = min(n - width, _room(n))
    rng = np.random.default_rng(seed)
    basis = np.empty((n, min(most, 4 * rank + 2 * width) + width), order="F")
    projected = np.zeros((basis.shape[1], basis.shape[1]))
    block = np.linalg.qr(rng.standard_normal((n, width)))[0]
    filled, check = 0, 2 * rank
    while True:
        if filled + width > basis.shape[1]:
            basis = np.asfortranarray(np.pad(basis, ((0, 0), (0, basis.shape[1] // 2))))
            projected = np.pad(projected, (0, basis.shape[1] - len(projected)))
        basis[:, filled : filled + width] = block
        filled += width
        vectors = basis[:, :filled]
        image = np.asarray(transposed @ (side @ block))
        coordinates = vectors.T @ image
        projected[:filled, filled - width : filled] = coordinates
        projected[filled - width : filled, :filled] = coordinates.T
        image -= vectors @ coordinates
        image -= vectors @ (vectors.T @ image)
        block, link = np.linalg.qr(image)
        if filled < check and filled + width <= most:
            continue
        check = int(1.25 * filled)
        values, rotation = scipy.linalg.eigh(
            projected[:filled, :filled], subset_by_index=(filled - rank, filled - 1), check_finite=False
        )
        residuals = np.linalg.norm(link @ rotation[filled - width :], axis=0)
        if residuals.max() <= _TOLERANCE * values[-1]:
            return values[::-1].copy(), np.ascontiguousarray((vectors @ rotation)[:, ::-1])
        if filled + width > most:
            return None
