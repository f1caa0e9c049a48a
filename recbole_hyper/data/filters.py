"""Which interactions stay: enough of each user and item, one of each pair, values in intervals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.errors import ConfigError, DataError

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]
COUNTS = ("interactions", "distinct")
DUPLICATES = ("keep", "first", "last", "exact")
_NUMBER = r"\s*[+-]?(?:inf|[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.)\s*"
_INTERVALS = re.compile(rf"\s*[\[(]{_NUMBER},{_NUMBER}[\])]\s*(?:;\s*[\[(]{_NUMBER},{_NUMBER}[\])]\s*)*")


def require_allowed(name: str, kind: str, allowed: Any) -> None:
    """Raise ConfigError where ``val_interval`` allows a column what no value of its type (token, float) can be."""
    if kind == "float" and not (isinstance(allowed, str) and _INTERVALS.fullmatch(allowed)):
        raise ConfigError(f"val_interval: {name}={allowed!r} is no interval; write '[3,inf)', several with ';' between")
    listed = isinstance(allowed, list | tuple | set) and not any(isinstance(value, list) for value in allowed)
    if kind == "token" and not listed:
        raise ConfigError(f"val_interval: {name}={allowed!r}: of tokens a list is needed, such as ['a', 'b']")


def _counts(codes: Codes) -> npt.NDArray[np.int64]:
    from recbole_hyper.kernels import pairs

    return pairs.counts(codes, int(codes.max(initial=-1)) + 1)


def k_core(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the (n,) mask of the largest subset of rows in which every user and item, codes from 0, has enough rows.

    It is what RecBole's user_inter_num_interval and item_inter_num_interval give, in whatever order rows are dropped.
    """
    from recbole_hyper.kernels import pairs

    return pairs.core(users, items, _counts(users), _counts(items), min_user, min_item)


def single_pass(users: Codes, items: Codes, *, min_user: int, min_item: int) -> Mask:
    """Return the rows left by dropping rare items once, then users with few rows once (the SCE paper's filter)."""
    mask = (_counts(items) >= min_item)[items]
    counts = np.bincount(users[mask], minlength=int(users.max(initial=-1)) + 1)
    return mask & (counts >= min_user)[users]


FILTERS = {"k_core": k_core, "single_pass": single_pass}


def filtered(
    users: Codes, items: Codes, *, method: str, min_user: int, min_item: int, count: str = "interactions"
) -> Mask:
    """Return the rows, grouped by user, that stay under the filter ``method``; DataError where none does.

    ``count`` says what is counted: ``interactions``, or ``distinct`` (user, item) pairs, of which all repeats stay or
    go.
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
        # a pair stays exactly if its user and its item do
        good_users = np.bincount(some_users[mask], minlength=int(users.max()) + 1) > 0
        good_items = np.bincount(some_items[mask], minlength=int(items.max()) + 1) > 0
        mask = good_users[users] & good_items[items]
    return mask


def repeated(users: Codes, items: Codes, keep: str) -> Mask:
    """Return the rows, grouped by user, to drop so that of each (user, item) pair the ``first`` or ``last`` is left."""
    from recbole_hyper.kernels import pairs

    return pairs.repeated(users, items, int(items.max(initial=-1)) + 1, keep == "last")
