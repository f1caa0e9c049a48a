"""What ridge regressions of each item on its nearest items need, gathered from a sparse matrix of counts.

Plain twin: ``models.nearest_ease``, which also treats few items.
Kept for: a large catalogue, whose matrix does not fit in memory as an array.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.kernels.compiled import compiled

Floats = npt.NDArray[np.float32]


@compiled(nogil=True)
def regressions(
    rows: Any, columns: Any, counts: Floats, scale: Floats, first: int, stop: int, size: int, ridge: float
) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Return the regressions of the items ``first`` to ``stop`` - 1, each on the ``size`` items nearest to it.

    ``rows``, ``columns`` and ``counts`` are the Gram matrix G in CSR form, columns sorted; item i is as near to j as
    ``G_ji * scale_i`` is large, ties in item order. Returns the nearest items (n, size), filled up with 0, the matrices
    ``G + ridge I`` between them (n, size, size), and their counts with j (n, size).
    """
    place = np.zeros(len(scale), np.int32)
    near = np.zeros((stop - first, size), np.int64)
    matrices = np.zeros((stop - first, size, size), np.float32)
    together = np.zeros((stop - first, size), np.float32)
    for item in range(first, stop):
        mine, begin, end = near[item - first], rows[item], rows[item + 1]
        values = counts[begin:end] * scale[columns[begin:end]]
        values[columns[begin:end] == item] = 0
        least = np.float32(0)
        if len(values) > size:
            least = np.partition(values, len(values) - size)[len(values) - size]
        found, room = 0, size - np.sum(values > least)
        for at in range(len(values)):
            if values[at] > least or (0 < values[at] == least and room > 0):
                room -= values[at] == least
                together[item - first, found] = counts[begin + at]
                mine[found] = columns[begin + at]
                found += 1
                place[columns[begin + at]] = found
        for row in range(size):
            matrices[item - first, row, row] = ridge
            for at in range(rows[mine[row]], rows[mine[row] + 1]):
                if place[columns[at]]:
                    matrices[item - first, row, place[columns[at]] - 1] += counts[at]
        for row in range(found):
            place[mine[row]] = 0
    return near, matrices, together
