"""What ``recommend`` is asked for, read and checked before anything is loaded: ids, histories, whole numbers."""

from typing import Any

import numpy as np

LISTS = "a list of lists of item ids"


def ids(name: str, values: Any) -> list[str | int | float]:
    """Return the original ids in any iterable (a list, an array, a Series, a generator), which is read once.

    ValueError for one text, no iterable, or an entry that is no id (None, NaN, True, a list).
    """
    return [_id(name, value) for value in listed(name, values, "a list of ids")]


def history(place: str, values: Any) -> list[str]:
    """Return the original item ids of one history, oldest first; ValueError for a set or what is no id."""
    if isinstance(values, (set, frozenset)):
        raise ValueError(f"{place} is a set, which has no order; give a list of item ids, oldest first")
    return [str(item) for item in ids(place, values)]


def histories(name: str, values: Any) -> list[list[str]]:
    """Return the histories in any iterable of iterables, each read once; ValueError for what is none or is empty."""
    found = [history(f"{name}[{at}]", one) for at, one in enumerate(listed(name, values, LISTS))]
    for at, items in enumerate(found):
        if not items:
            raise ValueError(f"{name}[{at}] is empty: every history needs at least one item")
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


def listed(name: str, values: Any, needed: str) -> list[Any]:
    """Return the entries of any iterable; ValueError for one text or no iterable, which says what is ``needed``."""
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
    # 7.0 is "7", as where a frame is read: pandas makes floats of a column of whole numbers with gaps
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain
