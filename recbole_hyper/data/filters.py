"""RecBole's filters on codes: which interactions are read, in which order, with which ids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from recbole.data.dataset import Dataset

from recbole_hyper.data.table import Codes

Mask = npt.NDArray[np.bool_]
Intervals = Sequence[tuple[str, float, float, str]]

logger = logging.getLogger("recbole_hyper")


@dataclass
class Side:
    """Users or items: the code of every interaction, the token of every code, and those that a feature file names."""

    codes: npt.NDArray[np.int32]  # (n,) int32 of each interaction
    tokens: pa.Array  # distinct tokens; those that only the feature file names come last
    # codes in the feature file, in its order and once each; None without such a file
    named: npt.NDArray[np.int32] | None
    interval: Intervals | None  # of the number of interactions that keeps one; None keeps all

    @classmethod
    def of(cls, column: Codes, named: pa.Array | None, interval: str | None) -> Side:
        """Take a column of ids and the ids of a feature file."""
        tokens, codes = column.tokens, None
        if named is not None:
            both = pa.chunked_array([tokens, named]).dictionary_encode().unify_dictionaries()
            tokens, codes = both.chunk(0).dictionary, both.chunk(1).indices.to_numpy(zero_copy_only=False)
        return cls(column.codes, tokens, codes, None if interval is None else parsed_intervals(interval))

    def refused(self, counts: npt.NDArray[np.int64], named: Mask) -> Mask:
        """Return which codes go, of those that still have ``counts`` interactions or are still ``named``."""
        if self.interval is None:
            return np.zeros(len(counts), dtype=bool)
        # below this many interactions, one that the feature file names goes, whatever the other intervals say
        least = self.interval[0][1] if self.interval else -1
        return ((counts > 0) & ~within(counts, self.interval)) | (named & (counts < least))

    def renumbered(self, named: npt.NDArray[np.int32]) -> Side:
        """Return the side with codes in order of first appearance, those of ``named`` last, as RecBole numbers ids."""
        order = pd.unique(np.concatenate([self.codes, named]))
        numbers = np.zeros(len(self.tokens), dtype=np.int32)
        numbers[order] = np.arange(len(order))
        return Side(numbers[self.codes], self.tokens.take(pa.array(order)), None, None)


def parsed_intervals(text: str) -> Intervals:
    """Return intervals such as "[5,inf)" as RecBole parses them."""
    # all that the method reads of a dataset is its logger
    return Dataset._parse_intervals_str(SimpleNamespace(logger=logger), text)


def within(values: npt.NDArray, intervals: Intervals) -> Mask:
    """Return which values lie in one of the intervals, all of them where there is none, as RecBole decides it."""
    inside = Dataset._within_intervals(None, values, intervals)
    return np.full(len(values), inside) if isinstance(inside, bool) else inside


def value_mask(values: Codes | npt.NDArray[np.float64], allowed: Any) -> Mask:
    """Return the rows that ``val_interval`` keeps: numbers in an interval, or tokens of a list."""
    if not isinstance(values, Codes):
        return within(values, parsed_intervals(allowed))
    known = pd.Series(values.tokens.to_pylist(), dtype=object).isin(list(allowed)).to_numpy()
    return known[values.codes]


def first_of_pairs(users: Side, items: Side, times: npt.NDArray[np.float64], keep: Any) -> npt.NDArray[np.int64]:
    """Return the rows in time order, ties in file order, with one row of each (user, item) pair: rm_dup_inter."""
    order = np.argsort(times, kind="stable")
    pairs = users.codes[order].astype(np.int64) * len(items.tokens) + items.codes[order]
    return order[~np.asarray(pd.Series(pairs).duplicated(keep=keep))]


def known_rows(users: Side, items: Side) -> Mask:
    """Return the interactions whose user and item the feature files name: filter_inter_by_user_or_item."""
    keep = np.ones(len(users.codes), dtype=bool)
    for side in (users, items):
        if side.named is not None:
            keep &= _flags(side)[side.codes]
    return keep


def enough(
    users: Side, items: Side, rows: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.int64] | None, list[Mask]]:
    """Drop users and items outside their intervals, both at once, until none is left to drop, of the (m,) ``rows``.

    Returns:
        the interactions that stay, None for all, and for users and items which codes are still named by a feature file.
    """
    sides = (users, items)
    named = [_flags(side) for side in sides]
    while True:
        codes = [side.codes if rows is None else side.codes[rows] for side in sides]
        counts = [np.bincount(code, minlength=len(side.tokens)) for code, side in zip(codes, sides, strict=True)]
        out = [side.refused(count, flags) for side, count, flags in zip(sides, counts, named, strict=True)]
        if not out[0].any() and not out[1].any():
            return rows, named
        named = [flags & ~gone for flags, gone in zip(named, out, strict=True)]
        stay = ~(out[0][codes[0]] | out[1][codes[1]])
        rows = np.flatnonzero(stay) if rows is None else rows[stay]


def _flags(side: Side) -> Mask:
    flags = np.zeros(len(side.tokens), dtype=bool)
    if side.named is not None:
        flags[side.named] = True
    return flags
