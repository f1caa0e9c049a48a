"""Interactions grouped by user and put in time order: a counting sort, then each user's own sort where it needs one.

Serial loops without the interpreter lock, so that threads may share the rows. Plain twin: ``data.sequences._sorted``.
Kept for: 20 million interactions in a fifth of its time and half of its memory (make bench-load).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit


def _compile(function: Any) -> Any:
    """Compile with numba, cached on disk where some cache directory is writable."""
    try:
        return njit(function, nogil=True, cache=True)
    except RuntimeError:  # read-only installation and home: compile in every process
        return njit(function, nogil=True)


@_compile
def scatter(users: npt.NDArray, values: npt.NDArray, nexts: npt.NDArray[np.int64], out: npt.NDArray) -> None:
    """Put ``values`` (n,) into ``out`` (n,) grouped by user, each user's in the order given.

    ``nexts`` (n_users,) holds the place of each user's first value; it is advanced.
    """
    for at in range(len(users)):
        user = users[at]
        out[nexts[user]] = values[at]
        nexts[user] += 1


@_compile
def sort_rows(
    offsets: npt.NDArray[np.int64], items: npt.NDArray, times: npt.NDArray[np.float64], start: int, stop: int
) -> None:
    """Sort the rows ``start..stop`` of ``items`` and ``times`` by time, in place; equal times keep their order."""
    for row in range(start, stop):
        begin, end = offsets[row], offsets[row + 1]
        for at in range(begin + 1, end):
            if times[at] < times[at - 1]:
                order = np.argsort(times[begin:end], kind="mergesort")
                items[begin:end] = items[begin:end][order]
                times[begin:end] = times[begin:end][order]
                break
