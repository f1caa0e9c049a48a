"""The best items of rows of scores, exactly, for recommend, similar and the service. Imports no torch."""

import numpy as np
import numpy.typing as npt

from recbole_hyper.errors import NonFiniteScoreError

Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


def best_items(
    scores: Scores,
    k: int,
    *,
    offsets: Int64 | None = None,
    excluded: Int64 | None = None,
    hidden: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int32], Scores]:
    """Return the k best items (n, k) of each row and their scores (n, k), best first, equal scores in item order.

    A row that has fewer items ends with item 0 and score -inf. ``scores`` (n, n_items) are overwritten; column 0 is
    padding. Row i leaves out the items ``excluded[offsets[i]:offsets[i + 1]]``, and every row those that are True in
    ``hidden`` (n_items,). NonFiniteScoreError for NaN or an infinite score of an item that is not left out.
    """
    from recbole_hyper.kernels.ranks import LOWEST, rank_rows  # numba is imported when something is searched

    if hidden is not None:
        scores[:, hidden] = LOWEST
    if offsets is not None and excluded is not None:
        scores[np.repeat(np.arange(len(scores)), np.diff(offsets)), excluded] = LOWEST
    nothing = np.zeros(len(scores) + 1, np.int64)
    *_, top, bad = rank_rows(scores, nothing[1:], nothing, np.empty(0, np.int32), nothing[:0], k)
    if bad.any():
        raise NonFiniteScoreError(
            f"{int(bad.sum())} of {len(bad)} rows have scores that are not finite (first: row {int(bad.argmax())}); "
            "the model has diverged: lower learning_rate or set clip_grad_norm"
        )
    return top, np.where(top == 0, np.float32(-np.inf), np.take_along_axis(scores, top.astype(np.int64), axis=1))
