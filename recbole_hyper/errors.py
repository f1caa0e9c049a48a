"""Errors that more than one part raises, and checks that raise them; a leaf that imports nothing of the package."""

import math
import numbers
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module


class ConfigError(ValueError):
    """A configuration that cannot run; the message says which key, what came, what is allowed."""


class DataError(ValueError):
    """Data that cannot be used; the message says which file, line and column, what came, and what to do."""


class NoSpaceError(OSError):
    """The disk is full, or a quota is used up: nothing was half-written, and the same work can go on with space."""


class NonFiniteScoreError(ValueError):
    """A model gave NaN or infinite scores; ranking them would put NaN first."""


class LockedError(OSError):
    """Another process works on the same folder."""


def check_above_zero(**values: float) -> None:
    """Raise ValueError, with its name, for a value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: a finite number above 0 is needed")


def whole(name: str, value: object) -> int:
    """Return a whole number of at least 1; ConfigError for anything else, True and 3.0 among it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigError(f"{name}={value!r}: a whole number of at least 1 is needed")
    return int(value)


def did_you_mean(
    name: object, known: Iterable[str], before: str = "; did you mean ", n: int = 3, cutoff: float = 0.6
) -> str:
    """Return ``before`` and at most ``n`` of the ``known`` that are near to ``name``, "" for none; case is ignored."""
    by_text = {one.lower(): one for one in known}
    near = [by_text[match] for match in get_close_matches(str(name).lower(), by_text, n, cutoff)]
    return f"{before}{' or '.join(near)}?" if near else ""


def require(extra: str, what: str, *modules: str) -> None:
    """Raise ConfigError, naming the ``extra`` to install, if ``what`` cannot import one of ``modules``."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{what} needs the package {module} ({error}); install the extra: pip install 'recbole-hyper[{extra}]'"
            ) from error
