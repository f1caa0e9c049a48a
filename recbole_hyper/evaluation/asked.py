"""What ``recommend`` is asked for, read and checked before anything is loaded: ids, histories, whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def ids(name: str, values: Any) -> list[str | int | float]:
    """Return the original ids in any iterable (a list, an array, a Series, a generator), which is read once.

    Raises:
        ValueError: one text, no iterable, or an entry that is no id (None, NaN, True, a list).
    """
    return [_id(name, value) for value in _listed(name, values, "a list of ids")]


def histories(name: str, values: Any) -> list[list[str]]:
    """Return the histories of original item ids, oldest first, in any iterable of iterables; each is read once.

    Raises:
        ValueError: one text where a list is needed, an entry that is no id, an empty history, or one without order.
    """
    found = []
    for at, history in enumerate(_listed(name, values, "a list of lists of item ids")):
        place = f"{name}[{at}]"
        if isinstance(history, (set, frozenset)):
            raise ValueError(f"{place} is a set, which has no order; give a list of item ids, oldest first")
        found.append([str(item) for item in ids(place, history)])
        if not found[-1]:
            raise ValueError(f"{place} is empty: every history needs at least one item")
    return found


def whole(name: str, value: Any) -> int:
    """Return a whole number of at least 1; ValueError for anything else, True and 3.0 among it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}={value!r}: a whole number of at least 1 is needed")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return True or False; ValueError for anything else, 1 and "False" among it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r}: True or False is needed")
    return bool(value)


def _listed(name: str, values: Any, needed: str) -> list[Any]:
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name}={values!r} is one text; give {needed}")
    try:
        read = iter(values)
    except TypeError:
        raise ValueError(f"{name}={values!r} is no list; give {needed}") from None
    return list(read)


def _id(name: str, value: Any) -> str | int | float:
    # a number of numpy or torch, as an array or a tensor holds it
    plain = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(plain, bool) or not isinstance(plain, (str, int, float)) or plain != plain:
        raise ValueError(f"{name} holds {value!r}, which is no id; ids are text or numbers")
    return plain
