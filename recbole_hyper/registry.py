"""Parts by name, from anywhere: geometries, losses, protocols, encoders and models.

A part is a class with a decorator::

    @register("losses", "sce")
    class ScalableCrossEntropy(Loss): ...

A configuration names it in one of four ways:

* by the name of a file of the kind's package: ``resolve("losses", "sce")`` imports ``recbole_hyper.losses.sce``;
* by its registered name, from a file that ``--plugins=my_parts.py`` names (:func:`load_plugins`), or from an installed
  package with an entry point of the group ``recbole_hyper.losses``;
* by an importable path, ``my_package.my_module:MyLoss``;
* in Python, by the class itself.
"""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from recbole_hyper import plugin_files
from recbole_hyper.bridge import models
from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.keys import KEYS, in_words, matches

T = TypeVar("T", bound=type)

KINDS = ("geometry", "losses", "protocols", "encoders", "models")
_registry: dict[str, dict[str, type]] = {kind: {} for kind in KINDS}


# what a part of each kind derives from; models may also be RecBole's
BASES = {
    "geometry": "recbole_hyper.geometry.base:Geometry",
    "losses": "recbole_hyper.losses.base:Loss",
    "protocols": "recbole_hyper.protocols.base:Protocol",
    "encoders": "recbole_hyper.encoders.base:Encoder",
}


class Part:
    """Base of the kinds' bases: what a part says of its options."""

    @classmethod
    def option_parameters(cls) -> dict[str, inspect.Parameter]:
        """Return the keyword-only arguments of the constructor: the keys that a configuration may set."""
        parameters = inspect.signature(cls).parameters.values()
        return {entry.name: entry for entry in parameters if entry.kind is inspect.Parameter.KEYWORD_ONLY}


class Model:
    """Base of the models of this package: what a configuration asks of a model's class."""

    # by the key that names it (encoder, geometry, loss_type), each part that the model has by itself; {}: of one piece
    parts: ClassVar[dict[str, str | type]] = {}

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Raise ConfigError for a value that the model cannot be built with, before any data are read."""


def parts_of(model: type) -> dict[str, str | type]:
    """Return the parts that the class of a model names; {} for a model of one piece and for RecBole's."""
    return model.parts if issubclass(model, Model) else {}


class UnknownPartError(ConfigError):
    """A name that no part of the kind has; the message lists those that exist."""


def register(kind: str, name: str | None = None) -> Callable[[T], T]:
    """Register the decorated class in ``kind`` under ``name`` (its own name by default).

    Raises:
        ValueError: another class has the name.
    """

    def named(cls: T) -> T:
        key = name or cls.__name__
        known = _registry[kind].setdefault(key, cls)
        # the same class again: its module was imported anew
        if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{kind} {key!r} is registered twice: by {path_of(known)} and by {path_of(cls)}")
        _registry[kind][key] = cls
        return cls

    return named


def names(kind: str) -> list[str]:
    """Return the sorted names of all parts of ``kind``: those of the package, of plugins and of entry points."""
    package = importlib.import_module(f"recbole_hyper.{kind}")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    # a class that was given as it is has its path for a name, and is no offer
    registered = [name for name in _registry[kind] if ":" not in name]
    return sorted({*registered, *(point.name for point in _entry_points(kind))})


def resolve(kind: str, part: str | type) -> Any:
    """Return the class that ``part`` names in ``kind``; a class is returned as it is.

    Raises:
        UnknownPartError: no such part; the message names the known ones and the nearest.
        ConfigError: a path that cannot be imported, or a class that does not derive from the kind's base.
    """
    cls = part if isinstance(part, type) else _found(kind, part)
    base = _imported(kind, BASES[kind]) if kind in BASES else object
    if not issubclass(cls, base):
        raise ConfigError(f"{kind}: {path_of(cls)} must derive from {BASES[kind].replace(':', '.')}")
    return cls


def _found(kind: str, part: str) -> type:
    if part in _registry[kind]:
        return _registry[kind][part]
    if ":" in part:
        return _imported(kind, part)
    # a part of the package is the file of its name: nothing else is imported for it
    if part.isidentifier() and importlib.util.find_spec(f"recbole_hyper.{kind}.{part}") is not None:
        importlib.import_module(f"recbole_hyper.{kind}.{part}")
    for point in _entry_points(kind) if part not in _registry[kind] else ():
        if point.name == part:
            _registry[kind].setdefault(part, point.load())
    if part not in _registry[kind]:
        known = names(kind)
        if part not in _registry[kind]:
            hint = did_you_mean(repr(part), map(repr, known), " Did you mean ", n=1)
            raise UnknownPartError(
                f"{kind}: {part!r} is unknown; known: {', '.join(known)}.{hint} A part of your own is named by "
                f"--plugins=FILE.py and its registered name, or as module:Class"
            )
    return _registry[kind][part]


def name_of(kind: str, part: str | type) -> str:
    """Return the text that names ``part`` in a configuration: its registered name, or else its path, from now on.

    Raises:
        ConfigError: a class that does not derive from the kind's base.
    """
    if isinstance(part, str):
        return part
    resolve(kind, part)
    name = next((name for name, known in _registry[kind].items() if known is part), path_of(part))
    _registry[kind][name] = part
    return name


def lasting_name(kind: str, cls: type) -> str:
    """Return the text by which another process with the same plugins finds ``cls``: its name, or else its path."""
    name = next((name for name, known in _registry[kind].items() if known is cls and ":" not in name), "")
    if models.model_named(cls.__name__) is cls:
        return cls.__name__
    packages = (plugin_files.PACKAGE, "recbole_hyper.")
    brought = cls.__module__.startswith(packages) or name in {point.name for point in _entry_points(kind)}
    try:
        path = "" if name and brought else path_of(cls)
        return path if path and _imported(kind, path) is cls else name or cls.__name__
    except ConfigError:  # a class of a function, say, has no path
        return name or cls.__name__


def path_of(cls: type) -> str:
    """Return ``module:Class``, by which another process can import a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _imported(kind: str, path: str) -> type:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for piece in name.split("."):
            found = getattr(found, piece)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{kind}: {path!r} cannot be imported ({error}); module:Class is expected") from error
    if not isinstance(found, type):
        raise ConfigError(f"{kind}: {path!r} is a {type(found).__name__}, a class is expected")
    return found


def plugin_parts(kind: str) -> dict[str, type]:
    """Return the parts of ``kind`` that the files of :func:`load_plugins` registered, by name."""
    return {name: cls for name, cls in _registry[kind].items() if cls.__module__.startswith(plugin_files.PACKAGE)}


def _entry_points(kind: str) -> Iterable[Any]:
    return entry_points(group=f"recbole_hyper.{kind}")


def load_plugins(files: str | Iterable[str | Path]) -> list[str]:
    """Run Python files whose decorated classes become parts and whose RecBole models go by their names.

    ``files`` are paths, or a text of paths between commas. A file is run once. Returns the absolute paths.

    Raises:
        ConfigError: a file that is missing or fails; the message names it.
    """
    loaded, modules = [], []
    for file in [word.strip() for word in files.split(",")] if isinstance(files, str) else files:
        path = Path(file).absolute()
        loaded.append(str(path))
        if path.suffix != ".py" or not path.is_file():
            raise ConfigError(f"plugins: {str(file)!r} is no Python file (looked for {path})")
        try:
            modules.append(plugin_files.load(path))
        except Exception as error:
            raise ConfigError(f"plugins: {path} failed: {type(error).__name__}: {error}") from error
    models.collect(modules)
    return loaded


def option_keys(name: str, *prefixes: str) -> list[str]:
    """Return the configuration keys by which the argument ``name`` is looked up, the first that is set counts."""
    return [*(f"{prefix}_{name}" for prefix in prefixes), name]


def options(cls: type[Part], values: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    """Pick from flat configuration ``values`` the options of the part ``cls``.

    The argument ``x`` is looked up as ``<prefix>_x`` for each prefix in turn, then as ``x``. Arguments that the
    configuration does not name (or leaves as None) keep the default of the constructor. ConfigError for a value that is
    no number, whole number or bool where the annotation, or else the default, is one.
    """
    found = {}
    for argument, parameter in cls.option_parameters().items():
        for key in option_keys(argument, *prefixes):
            if values.get(key) is not None:
                found[argument] = values[key]
                _check_kind(key, values[key], parameter)
                break
    return found


def _check_kind(key: str, value: Any, parameter: inspect.Parameter) -> None:
    """Raise ConfigError for a ``value`` of another kind than an option has; declared keys are checked by ``keys``."""
    said, default = parameter.annotation, parameter.default
    # an annotation is text under ``from __future__ import annotations``; a default of 2 may stand for 2.0
    name = said if isinstance(said, str) else getattr(said, "__name__", "")
    if said is inspect.Parameter.empty:
        name = "bool" if isinstance(default, bool) else "float" if isinstance(default, int | float) else ""
    if name in ("bool", "int", "float") and key not in KEYS and not matches(name, value):
        raise ConfigError(f"{key}={value!r}: {in_words(name)} is expected (default: {default!r})")
