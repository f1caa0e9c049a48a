"""Item vectors of a training matrix: truncated SVD, V Sigma, as the delta of the HSASRec paper takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DENSE = 1500  # sides up to this are decomposed whole: quicker than any iteration
_TOLERANCE = 1e-6  # residual of a squared singular value against the smallest one kept
_BASIS_BYTES = 4 << 30
_GROWTH = 6  # the iteration's basis grows to about so many times the rank


def largest_rank(shape: tuple[int, int]) -> int:
    """The largest rank whose iteration fits into the memory allowed for it, 1 to min(shape).

    min(shape) itself up to a shorter side of 23,170; at 233,000 it is 384.
    """
    n = min(shape)
    room = _room(n)
    return n if room >= n else max(1, room // _GROWTH)


def item_vectors(train_matrix: Any, rank: int, *, scaling: float = 1.0, seed: int = 0) -> Floats:
    """V Sigma of the truncated SVD of the binary user x item matrix A (HSASRec paper, appendix B).

    Args:
        train_matrix: (n_users, n_items) sparse; training interactions only. Any non-zero entry counts as 1.
        rank: singular vectors kept, 1 to min(shape). The first k columns of the result are those of rank k.
        scaling: s of PureSVD-N: the columns of A are multiplied by (item count)^((s - 1) / 2) first; 1 is plain SVD.
        seed: of the random start of the iteration; it moves the result by rounding only.

    Returns:
        (n_items, rank) float64: neither centred nor normalised. Items without interactions are zero vectors.

    Raises:
        ValueError: an empty matrix, a rank out of range, or one whose iteration does not fit into memory.
    """
    matrix = scipy.sparse.csr_matrix(train_matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise ValueError(f"the training matrix {matrix.shape} holds no interaction: no item vectors to measure")
    if not 1 <= rank <= min(matrix.shape):
        users, items = matrix.shape
        raise ValueError(
            f"rank {rank} is out of range for {users} users x {items} items: choose 1 to {min(matrix.shape)}"
        )
    if _iterates(min(matrix.shape), rank) and rank > largest_rank(matrix.shape):
        users, items = matrix.shape
        raise ValueError(
            f"rank {rank} of {users:,} users x {items:,} items needs a basis of about {_GROWTH * rank:,} vectors, but "
            f"{_room(min(matrix.shape)):,} fit into the {_BASIS_BYTES / 2**30:.3g} GiB allowed for it: choose a rank "
            f"of at most {largest_rank(matrix.shape)}, or give the curvature as a number"
        )
    matrix.data[:] = 1.0
    if scaling != 1.0:
        counts = np.asarray(matrix.sum(axis=0)).ravel()
        factors = np.zeros_like(counts)
        np.power(counts, (scaling - 1.0) / 2.0, out=factors, where=counts > 0)
        matrix = scipy.sparse.csr_matrix(matrix @ scipy.sparse.diags(factors))
    by_user = matrix.shape[0] < matrix.shape[1]
    side = matrix.T.tocsr() if by_user else matrix  # (long, short): the Gram matrix is short x short
    values, vectors = _top_eigenpairs(side, rank, seed)
    if by_user:
        return np.asarray(matrix.T @ vectors)  # A^T U = V Sigma
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _room(n: int) -> int:
    """Basis vectors of n numbers that fit into the memory allowed."""
    return _BASIS_BYTES // (8 * n)


def _iterates(n: int, rank: int) -> bool:
    """Whether the Gram matrix, n x n, is left to the iteration; else it is decomposed whole."""
    return n > _DENSE and _GROWTH * rank < n


def _top_eigenpairs(side: Any, rank: int, seed: int) -> tuple[Floats, Floats]:
    """The ``rank`` largest eigenvalues of side^T side, falling, and their vectors."""
    n = side.shape[1]
    if _iterates(n, rank):
        return _block_lanczos(side, rank, seed)
    gram = (side.T @ side).toarray()
    if rank > n // 4:  # nearly all: divide and conquer beats bisection for a range
        values, vectors = scipy.linalg.eigh(gram, driver="evd", overwrite_a=True, check_finite=False)
    else:
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=(n - rank, n - 1), overwrite_a=True, check_finite=False
        )
    return values[::-1][:rank].copy(), np.ascontiguousarray(vectors[:, ::-1][:, :rank])


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
                f"the SVD at rank {rank} of a matrix with {n} rows on its short side did not converge in "
                f"{filled} basis vectors: choose a smaller rank, or give the curvature as a number"
            )
