"""Errors that more than one part raises; a leaf that imports nothing of the package."""

from __future__ import annotations

from importlib import import_module


class ConfigError(ValueError):
    """A configuration that cannot run; the message says which key, what came, what is allowed."""


class NoSpaceError(OSError):
    """The disk is full, or a quota is used up: nothing was half-written, and the same work can go on with space."""


class LockedError(OSError):
    """Another process works on the same folder."""


def require(extra: str, what: str, *modules: str) -> None:
    """Raise ConfigError, naming the ``extra`` to install, if ``what`` cannot import one of ``modules``."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{what} needs the package {module} ({error}); install the extra: pip install 'recbole-hyper[{extra}]'"
            ) from error
