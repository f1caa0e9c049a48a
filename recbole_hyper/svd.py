"""The truncated SVD of this package: leading eigenvectors of a Gram matrix, exact to rounding or iterated until so."""

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DENSE = 1500  # sides up to this are decomposed whole: quicker than any iteration
_TOLERANCE = 1e-6  # residual of a squared singular value against the smallest one kept
_BASIS_BYTES = 4 << 30
_GROWTH = 6  # the iteration's basis grows to about so many times the rank


def scaled_columns(matrix: Any, scaling: float) -> scipy.sparse.csr_matrix:
    """Return the binary (users, items) ``matrix`` with columns times (item count)^((scaling - 1) / 2) (PureSVD-N)."""
    counts = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
    factors = np.zeros_like(counts)
    np.power(counts, (scaling - 1.0) / 2.0, out=factors, where=counts > 0)
    return (matrix.astype(np.float64) @ scipy.sparse.diags(factors)).tocsr()


def largest_rank(n: int) -> int:
    """The largest rank whose iteration on n x n fits into memory: n itself up to 23,170; 384 at 233,000."""
    room = _room(n)
    return n if room >= n else max(1, room // _GROWTH)


def check_rank(n: int, rank: int, advice: str = "", dense: int | None = None) -> None:
    """Raise ValueError, which ends with ``advice``, where :func:`top_eigenpairs` would not fit into memory."""
    if _iterates(n, rank, dense) and rank > largest_rank(n):
        raise ValueError(
            f"rank {rank} of a Gram matrix of {n:,} x {n:,} needs a basis of about {_GROWTH * rank:,} vectors, but "
            f"{_room(n):,} fit into the {_BASIS_BYTES / 2**30:.3g} GiB allowed for it: choose a rank of at most "
            f"{largest_rank(n)}{advice}"
        )


def top_eigenpairs(side: Any, rank: int, seed: int = 0, dense: int | None = None) -> tuple[Floats, Floats]:
    """Return the ``rank`` (1 to n) largest eigenvalues of side^T side, falling, and their vectors (n, rank).

    These are the right singular vectors of the sparse ``side`` (m, n). ``seed`` is of the random start of the
    iteration; it moves the result by rounding only. Up to ``dense`` columns the Gram matrix is decomposed whole; None:
    1,500, where that is quicker than iterating. ValueError where the iteration did not converge in the memory allowed
    for it.
    """
    n = side.shape[1]
    if _iterates(n, rank, dense):
        return _block_lanczos(side, rank, seed)
    gram = (side.T @ side).toarray()
    if rank > n // 4:  # nearly all: divide and conquer beats bisection for a range
        values, vectors = scipy.linalg.eigh(gram, driver="evd", overwrite_a=True, check_finite=False)
    else:
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=(n - rank, n - 1), overwrite_a=True, check_finite=False
        )
    return values[::-1][:rank].copy(), np.ascontiguousarray(vectors[:, ::-1][:, :rank])


def _room(n: int) -> int:
    """Basis vectors of n numbers that fit into the memory allowed."""
    return _BASIS_BYTES // (8 * n)


def _iterates(n: int, rank: int, dense: int | None) -> bool:
    """Whether the Gram matrix, n x n, is left to the iteration; else it is decomposed whole."""
    return n > (DENSE if dense is None else dense) and _GROWTH * rank < n


def _block_lanczos(side: Any, rank: int, seed: int) -> tuple[Floats, Floats]:
    """Block Lanczos on the Gram matrix with full reorthogonalisation, grown until every residual is small.

    The basis is a few dense matrix products per block, which keeps it several times quicker than ARPACK's vector by
    vector recurrence at the hundreds of vectors needed here.
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
        held = basis[:, :filled]
        image = np.asarray(transposed @ (side @ block))
        coordinates = held.T @ image
        projected[:filled, filled - width : filled] = coordinates
        projected[filled - width : filled, :filled] = coordinates.T
        image -= held @ coordinates
        image -= held @ (held.T @ image)
        block, link = np.linalg.qr(image)
        if filled < check and filled + width <= most:
            continue
        check = int(1.25 * filled)
        values, rotation = scipy.linalg.eigh(
            projected[:filled, :filled], subset_by_index=(filled - rank, filled - 1), check_finite=False
        )
        residuals = np.linalg.norm(link @ rotation[filled - width :], axis=0)
        if residuals.max() <= _TOLERANCE * values[-1]:
            return values[::-1].copy(), np.ascontiguousarray((held @ rotation)[:, ::-1])
        if filled + width > most:
            raise ValueError(
                f"the SVD at rank {rank} of a Gram matrix of {n} x {n} did not converge in {filled} basis vectors: "
                "choose a smaller rank"
            )
