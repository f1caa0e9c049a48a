"""Columns of interactions put together by user and in time order, by threads that share the users."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from recbole_hyper.threads import Pool

Numbers = npt.NDArray


def grouped(
    users: Numbers, times: Numbers, items: Numbers, ratings: Numbers | None, counts: npt.NDArray[np.int64], threads: int
) -> tuple[Numbers, Numbers, Numbers | None]:
    """Return times, items and ratings (None for none) by user, each user's in time order; ties keep the order given.

    ``users`` are (n,) numbers from 0, ``counts`` the rows of each; as many ``threads`` share the work.
    """
    from recbole_hyper.kernels import pairs

    starts = np.concatenate([[0], np.cumsum(counts)])
    columns = (times, items, np.empty(0) if ratings is None else ratings)
    found = tuple(np.empty_like(column) for column in columns)
    # as many interactions for each thread
    edges = np.searchsorted(starts, np.linspace(0, len(users), threads + 1)[1:-1]).tolist()
    shares = list(itertools.pairwise([0, *edges, len(counts)]))
    with Pool(threads) as pool:
        pool.map(lambda some: pairs.group(users, columns, starts, some[0], some[1], found), shares)
    return found[0], found[1], None if ratings is None else found[2]
