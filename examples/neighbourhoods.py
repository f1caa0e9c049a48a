"""Whether items that users choose together are near each other in the item vectors of a head."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from scipy.stats import rankdata

from recbole_hyper.data.pair_counts import strongest
from recbole_hyper.geometry.head import OutputHead

# the most items at which a head is measured; more change the third digit
SAMPLE = 1000


class Neighbourhoods(NamedTuple):
    """Two measures of local neighbourhoods, both larger for better ones."""

    #: mean share of an item's k nearest items that are among its k strongest co-occurrences, 0 to 1
    overlap: float
    #: trustworthiness (Venna and Kaski, 2001) of the k nearest items, against the items' co-occurrences; 1 is perfect
    trustworthiness: float


@torch.no_grad()
def neighbourhoods(
    head: OutputHead, counts: scipy.sparse.csr_matrix, *, k: int = 10, seed: int = 0, sample: int = SAMPLE
) -> Neighbourhoods:
    """Return how well the item vectors of ``head`` keep the neighbourhoods of the training data.

    Near is what the head's geometry calls similar: a small geodesic distance on the ball, else a large cosine. The
    items are at most ``sample`` of those with at least ``k`` neighbours in ``counts`` (n_items, n_items), such as
    ``data.pair_counts``. For the trustworthiness, the distance of two items in the data is 1 minus the cosine of their
    rows of ``counts``, and the neighbours are those within the sample.

    ValueError if fewer than 2 k items have k neighbours.
    """
    known = np.flatnonzero(np.diff(counts.indptr) > 0)
    items = np.flatnonzero(np.diff(counts.indptr) >= k)
    if len(items) < 2 * k:
        raise ValueError(f"only {len(items)} items have {k} neighbours, {2 * k} are needed; choose a smaller k")
    if len(items) > sample:
        items = np.sort(np.random.default_rng(seed).choice(items, sample, replace=False))
    weight = head.weight.detach()
    near = head.geometry.similarity(weight[items], weight[known], theta=head.theta).double().cpu().numpy()
    near[np.arange(len(items)), np.searchsorted(known, items)] = -np.inf  # the item itself
    nearest = known[np.argpartition(-near, k - 1, axis=1)[:, :k]]
    rows = counts[items]
    hits = strongest(rows, k)[np.arange(len(items))[:, np.newaxis], nearest].count_nonzero()
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    apart = 1 - (rows @ rows.T).toarray() / np.outer(lengths, lengths)
    return Neighbourhoods(
        float(hits / (len(items) * k)), trustworthiness(apart, -near[:, np.searchsorted(known, items)], k)
    )


def trustworthiness(data: npt.NDArray[np.float64], vectors: npt.NDArray[np.float64], k: int) -> float:
    r"""Return the trustworthiness of distances (n, n) of ``vectors`` against those of the ``data``.

    .. math:: 1 - \frac{2}{n k (2n - 3k - 1)} \sum_i \sum_{j \in N_k(i)} \max(0, r(i, j) - k)

    with the k nearest vectors N_k(i) and the rank r(i, j) of j among the data's distances from i, ties with their mean
    rank. scikit-learn has it for Euclidean vectors only, not for distances on the ball.
    """
    n = len(data)
    data, vectors = data.copy(), vectors.copy()
    for distances, value in ((data, -np.inf), (vectors, np.inf)):
        np.fill_diagonal(distances, value)
    ranks = rankdata(data, axis=1) - 1
    nearest = np.argpartition(vectors, k - 1, axis=1)[:, :k]
    above = np.maximum(0, np.take_along_axis(ranks, nearest, axis=1) - k)
    return float(1 - 2 / (n * k * (2 * n - 3 * k - 1)) * above.sum())
