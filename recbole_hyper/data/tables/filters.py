"""Filters of interactions: enough per user and item, one per pair; and their order."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.errors import ConfigError, DataError

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]
KERNEL_FROM = 1 << 21  # with fewer interactions, numpy is done before a kernel is compiled or loaded
PASSES = 100  # as many as numpy takes for fewer interactions; the k-core of real data is found in 5 to 20
COUNTS = ("interactions", "distinct")
DUPLICATES = ("keep", "first", "last", "exact")
_NUMBER = r"\s*[+-]?(?:inf|[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.)\s*"
_INTERVALS = re.compile(rf"\s*[\[(]{_NUMBER},{_NUMBER}[\])]\s*(?:;\s*[\[(]{_NUMBER},{_NUMBER}[\])]\s*)*")


def require_allowed(name: str, kind: str, allowed: Any) -> None:
    """Raise ConfigError if what ``val_interval`` allows for a column does not suit its type (token, float)."""
    if kind.endswith("_seq"):
        raise ConfigError(f"val_interval: {name!r} has sequences, which have no interval; leave it out")
    if kind == "float" and not (isinstance(allowed, str) and _INTERVALS.fullmatch(allowed)):
        raise ConfigError(f"val_interval: {name}={allowed!r} must be an interval: '[3,inf)', several with ';' between")
    is_list = isinstance(allowed, list | tuple | set) and not any(isinstance(value, list) for value in allowed)
    if kind == "token" and not is_list:
        raise ConfigError(f"val_interval: {name}={allowed!r} must be a list of tokens, such as ['a', 'b']")


def k_core(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the (n,) mask of the largest subset of rows in which every user and item has enough rows.

    It equals RecBole's user_inter_num_interval and item_inter_num_interval: the order of dropping rows does not matter.
    """
    if len(users) < KERNEL_FROM and (mask := _by_passes(users, items, min_user, min_item)) is not None:
        return mask
    from recbole_hyper.kernels import tables

    n_users, n_items = (int(codes.max(initial=-1)) + 1 for codes in (users, items))
    return tables.core(users, items, n_users, n_items, min_user, min_item)


def _by_passes(users: Codes, items: Codes, min_user: int, min_item: int) -> Mask | None:
    """Return the k-core by whole passes, None if they are too many: of a long chain each drops the two ends only."""
    rows = np.arange(len(users))
    for _ in range(PASSES):
        before = len(rows)
        for codes, least in ((users, min_user), (items, min_item)):
            rows = rows[(np.bincount(codes[rows]) >= least)[codes[rows]]]
        if len(rows) == before:
            return np.bincount(rows, minlength=len(users)) > 0
    return None


def single_pass(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the mask after dropping rare items once, then users with few rows once (the filter of the SCE paper)."""
    mask = (np.bincount(items) >= min_item)[items]
    counts = np.bincount(users[mask], minlength=int(users.max(initial=-1)) + 1)
    return mask & (counts >= min_user)[users]


FILTERS = {"k_core": k_core, "single_pass": single_pass}


def filtered(users: Codes, items: Codes, *, method: str, min_user: int, min_item: int, count: str) -> Mask:
    """Return the mask of the filter ``method`` for rows grouped by user; DataError if no row remains.

    ``count`` is ``interactions``, or ``distinct`` to count (user, item) pairs, whose repeats all stay or all go.
    """
    rows = slice(None) if count == "interactions" else ~repeated(users, items, "first")
    some_users, some_items = users[rows], items[rows]
    mask = FILTERS[method](some_users, some_items, min_user=min_user, min_item=min_item)
    if not mask.any():
        limits = f"users >= {min_user}, items >= {min_item} {count}"
        raise DataError(
            f"the filter {method} ({limits}) removes all {len(users):,} interactions; lower --min_user or --min_item"
        )
    if count == "distinct":
        # a pair stays if and only if its user and its item stay
        good_users = np.bincount(some_users[mask], minlength=int(users.max()) + 1) > 0
        good_items = np.bincount(some_items[mask], minlength=int(items.max()) + 1) > 0
        mask = good_users[users] & good_items[items]
    return mask


def repeated(users: Codes, items: Codes, keep: str) -> Mask:
    """Return the mask of rows to drop so that each pair keeps its ``first`` or ``last`` row."""
    size = int(items.max(initial=-1)) + 1
    pairs = pd.Series(users.astype(np.int64) * size + items)
    return pairs.duplicated(keep="last" if keep == "last" else "first").to_numpy()


def by_user_and_time(users: npt.NDArray, times: npt.NDArray) -> npt.NDArray:
    """Return the order (n,) of interactions by user and time; ties stay in their order."""
    keys = [("user", "ascending"), ("time", "ascending")]
    return pc.sort_indices(pa.table({"user": users, "time": times}), sort_keys=keys).to_numpy()
