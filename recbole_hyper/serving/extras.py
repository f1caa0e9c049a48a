"""Packages that only some users need, imported where they are used."""

from __future__ import annotations

from importlib import import_module

from recbole_hyper.errors import ConfigError


def require(extra: str, what: str, *modules: str) -> None:
    """Raise ConfigError, naming the ``extra`` to install, if ``what`` cannot import one of ``modules``."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{what} needs the package {module} ({error}); install the extra: pip install 'recbole-hyper[{extra}]'"
            ) from error
