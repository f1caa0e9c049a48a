"""Registry of the parts that a configuration names: geometries, losses, protocols, encoders and models.

A part is a class with a decorator, in a file of its family's package::

    @component("losses", "sce")
    class ScalableCrossEntropy(Loss): ...

``resolve("losses", "sce")`` imports ``recbole_hyper.losses.sce`` by its file name, so adding a part edits no list.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

FAMILIES = ("geometry", "losses", "protocols", "encoders", "models")
_registry: dict[str, dict[str, type]] = {family: {} for family in FAMILIES}


class UnknownComponentError(ValueError):
    """A name that no registered part of the family has; the message lists those that exist."""


def component(family: str, name: str | None = None) -> Callable[[T], T]:
    """Register the decorated class in ``family`` under ``name`` (its own name by default)."""

    def register(cls: T) -> T:
        key = name or cls.__name__
        known = _registry[family].setdefault(key, cls)
        if known is not cls and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"{family} {key!r} is registered twice: by {known!r} and by {cls!r}")
        _registry[family][key] = cls
        return cls

    return register


def names(family: str) -> list[str]:
    """Return the sorted names of all parts of ``family``."""
    package = importlib.import_module(f"recbole_hyper.{family}")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return sorted(_registry[family])


def resolve(family: str, name: str) -> type:
    """Return the class registered as ``name`` in ``family``.

    Raises:
        UnknownComponentError: no such part; the message names the known ones and the nearest.
    """
    if name not in _registry[family]:
        known = names(family)
        if name not in _registry[family]:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UnknownComponentError(f"{family}: {name!r} is unknown; known: {', '.join(known)}.{hint}")
    return _registry[family][name]


def options(cls: type, values: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    """Pick from flat configuration ``values`` the keyword-only arguments of ``cls``.

    The argument ``x`` is looked up as ``<prefix>_x`` for each prefix in turn, then as ``x``. Arguments that the
    configuration does not name (or leaves as None) keep the default of the constructor.
    """
    found = {}
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        for key in [*(f"{prefix}_{parameter.name}" for prefix in prefixes), parameter.name]:
            if values.get(key) is not None:
                found[parameter.name] = values[key]
                break
    return found
