"""The base class of geometries, losses, encoders and protocols, and how a part is found by the name of its file.

A part of the package is the last class of its kind in its file: ``losses/sce.py`` has the loss ``sce``. So a new part
is one file, and finding one imports no other.
"""

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar

from recbole_hyper.options import OPEN, Option, options_of


class Part:
    """Base class of parts, with their options and defaults."""

    # the folder of the package that has the parts of this kind
    kind: ClassVar[str] = ""
    # other defaults for keys of the model that uses this part; those of base classes apply too
    model_defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the options that the constructor declares, by argument."""
        return options_of(cls)

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        """Raise ValueError for ``options`` that do not go together for states of ``width``.

        It is called with all options before data are read.
        """

    @classmethod
    @functools.cache
    def defaults(cls) -> Mapping[str, Any]:
        """Return the default of every key that belongs to the part."""
        values: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            values |= vars(base).get("model_defaults", {})
        return values | {one.key: one.default for one in cls.options().values() if one.default is not OPEN}


def parts_in_file(kind: str, name: str) -> list[Any]:
    """Return the classes of ``kind`` in the package's file ``<kind>/<name>.py`` in their order; [] without the file."""
    place = f"{__package__}.{kind}.{name}"
    if not name.isidentifier() or name.startswith("_") or name == "base" or importlib.util.find_spec(place) is None:
        return []
    classes = [one for one in vars(importlib.import_module(place)).values() if isinstance(one, type)]
    return [one for one in classes if issubclass(one, Part) and one.kind == kind and one.__module__ == place]


def part_in_file(kind: str, name: str) -> Any:
    """Return the part in the package's file ``<kind>/<name>.py``, None if there is no such file or part."""
    return next(reversed(parts_in_file(kind, name)), None)


def names_of_files(kind: str) -> list[str]:
    """Return the names of the package's files of ``kind`` that have a part."""
    folder = importlib.import_module(f"{__package__}.{kind}").__path__
    return [file.name for file in pkgutil.iter_modules(folder) if part_in_file(kind, file.name) is not None]
