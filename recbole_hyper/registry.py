"""Finds parts by name: geometries, losses, protocols, encoders and models.

A configuration names a part in one of four ways:

* by its name in the package: ``resolve("losses", "sce")`` imports ``recbole_hyper.losses.sce``. A geometry, loss or
  encoder has the name of its file, a protocol its ``name``, and a model the name of its class;
* by its registered name, from a file that ``--plugins=my_parts.py`` names (:func:`load_plugins`), or from an installed
  package with an entry point of the group ``recbole_hyper.losses``. There a part is a class with a decorator::

    @register("losses", "my_loss")
    class MyLoss(Loss): ...

* by an importable path, ``my_package.my_module:MyLoss``;
* in Python, by the class itself.
"""

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from recbole_hyper import plugin_files
from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.host import models as recbole_models
from recbole_hyper.options import Declared, Option, Part, names_of_files, part_in_file, parts_in_file

T = TypeVar("T", bound=type)

KINDS = ("geometry", "losses", "protocols", "encoders", "models")
# the kinds whose parts have options
WITH_OPTIONS = ("encoders", "geometry", "losses", "models")
_registry: dict[str, dict[str, type]] = {kind: {} for kind in KINDS}


class Model(Declared):
    """Base class of this package's models, with the attributes that a configuration reads."""

    # whose model it is; RecBole's and a third party's get "recbole" or "third" where they are found
    origin: ClassVar[str] = "own"

    # the parts of the model by key (encoder, geometry, loss_type); {} for a model without parts
    parts: ClassVar[dict[str, str | type]] = {}

    # options of the model itself
    own_options: ClassVar[Mapping[str, Option]] = {}

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        return cls.own_options

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Raise ConfigError if the model cannot be built with a value; called before data are read."""


def parts_of(model: type) -> dict[str, str | type]:
    """Return the parts of a model's class; {} for a model without parts, such as RecBole's."""
    return model.parts if issubclass(model, Model) else {}


def register(kind: str, name: str | None = None) -> Callable[[T], T]:
    """Register the decorated class in ``kind`` under ``name`` (default: its own); ValueError if the name is taken."""

    def named(cls: T) -> T:
        key = name or cls.__name__
        known = _registry[kind].get(key) or _in_package(kind, key) or cls
        # a module that is imported twice registers its class again
        if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{kind} {key!r} is registered twice: by {path_of(known)} and by {path_of(cls)}")
        _registry[kind][key] = cls
        return cls

    return named


def names(kind: str) -> list[str]:
    """Return the sorted names of all parts of ``kind``: the package's, and those of plugins and entry points."""
    # a class that was passed in Python has its path as name, and is not listed
    registered = [name for name in _registry[kind] if ":" not in name]
    return sorted({*_package_names(kind), *registered, *(point.name for point in _entry_points(kind))})


def _package_names(kind: str) -> list[str]:
    """Return the names of the package's own parts of ``kind``."""
    if kind == "models":
        return list(importlib.import_module(f"{__package__}.models").MODULES)
    return list(_protocols()) if kind == "protocols" else names_of_files(kind)


def _protocols() -> dict[str, type]:
    """Return the package's protocols by their short names."""
    folder = importlib.import_module(f"{__package__}.protocols").__path__
    classes = [one for file in pkgutil.iter_modules(folder) for one in parts_in_file("protocols", file.name)]
    return {one.name: one for one in classes if one.name}


def _in_package(kind: str, name: str) -> type | None:
    """Return the package's own part, which is registered then, None if there is none of this name."""
    part: type | None
    if kind == "models":
        package = importlib.import_module(f"{__package__}.models")
        module = package.MODULES.get(name)
        part = getattr(importlib.import_module(f"{package.__name__}.{module}"), name) if module else None
    elif kind == "protocols":
        part = _protocols().get(name)
    else:
        part = part_in_file(kind, name)
    return part if part is None else _registry[kind].setdefault(name, part)


def resolve(kind: str, part: str | type) -> Any:
    """Return the class that ``part`` names in ``kind``; a class is returned as it is.

    ConfigError if there is none, or if the class does not derive from the base class of its kind.
    """
    cls = part if isinstance(part, type) else _named(kind, part)
    if kind != "models" and not (issubclass(cls, Part) and cls.kind == kind):
        raise ConfigError(f"{kind}: {path_of(cls)} must derive from the class of parts in {__package__}.{kind}.base")
    return cls


def _named(kind: str, part: str) -> type:
    if part in _registry[kind]:
        return _registry[kind][part]
    if ":" in part:
        return _imported(kind, part)
    if (own := _in_package(kind, part)) is not None:
        return own
    for point in _entry_points(kind):
        if point.name == part:
            return _registry[kind].setdefault(part, point.load())
    known = names(kind)
    hint = did_you_mean(repr(part), map(repr, known), " Did you mean ", n=1)
    raise ConfigError(
        f"{kind}: {part!r} is unknown; known: {', '.join(known)}.{hint} Name your own part by "
        f"--plugins=FILE.py and its registered name, or as module:Class"
    )


def _known_name(kind: str, cls: type) -> str:
    """Return the name under which ``cls`` is registered or is a part of the package, "" for none."""
    if name := next((name for name, known in _registry[kind].items() if known is cls and ":" not in name), ""):
        return name
    if not cls.__module__.startswith(f"{__package__}.{kind}."):
        return ""
    name = cls.__name__ if kind == "models" else getattr(cls, "name", cls.__module__.rpartition(".")[2])
    return name if _in_package(kind, name) is cls else ""


def name_of(kind: str, part: str | type) -> str:
    """Return the name of ``part`` in a configuration: its registered name, else its path, which is then registered.

    ConfigError if the class does not derive from the base class of its kind.
    """
    if isinstance(part, str):
        return part
    resolve(kind, part)
    name = _known_name(kind, part) or path_of(part)
    _registry[kind][name] = part
    return name


def lasting_name(kind: str, cls: type) -> str:
    """Return the name by which another process with the same plugins finds ``cls``, or else its path."""
    name = _known_name(kind, cls)
    if recbole_models.models().get(cls.__name__) is cls:
        return cls.__name__
    if name and cls.__module__.startswith((plugin_files.PACKAGE, "recbole_hyper.")):
        return name
    # a class that is defined in a function has no path
    with contextlib.suppress(ConfigError):
        if _imported(kind, path_of(cls)) is cls:
            return path_of(cls)
    return name or cls.__name__


def path_of(cls: type) -> str:
    """Return ``module:Class``, from which another process can import the class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _imported(kind: str, path: str) -> type:
    try:
        value = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{kind}: {path!r} cannot be imported ({error}); module:Class is expected") from error
    if not isinstance(value, type):
        raise ConfigError(f"{kind}: {path!r} is a {type(value).__name__}, but a class is expected")
    return value


def plugin_parts(kind: str) -> dict[str, type]:
    """Return the parts of ``kind`` that plugins registered, by name."""
    return {name: cls for name, cls in _registry[kind].items() if cls.__module__.startswith(plugin_files.PACKAGE)}


def _entry_points(kind: str) -> Iterable[Any]:
    return entry_points(group=f"recbole_hyper.{kind}")


def load_plugins(files: str | Iterable[str | Path]) -> list[str]:
    """Run Python files, once each, and return their absolute paths.

    Their decorated classes become parts; their RecBole models are found by the names of their classes. ``files`` may be
    one text with commas between the paths. ConfigError if a file is missing or fails.
    """
    loaded, modules = [], []
    named = [word.strip() for word in files.split(",")] if isinstance(files, str) else files
    for file in named if isinstance(named, Iterable) else [named]:
        if not isinstance(file, str | Path) or "\0" in str(file):
            raise ConfigError(f"plugins: {file!r} is not the path of a Python file")
        path = Path(file).expanduser().absolute()
        loaded.append(str(path))
        if path.suffix != ".py" or not path.is_file():
            raise ConfigError(f"plugins: {str(file)!r} is not a Python file (looked for {path})")
        try:
            modules.append(plugin_files.load(path))
        except (Exception, SystemExit) as error:
            raise ConfigError(f"plugins: {path} failed: {type(error).__name__}: {error}") from error
    recbole_models.collect(modules)
    return loaded


def checked_protocol(arguments: Mapping[str, Any], *, refit: bool) -> Any:
    """Return the protocol that ``split`` in ``eval_args`` names.

    ConfigError if there is none; ProtocolError if its argument or options are wrong whatever the data are.
    """
    ((name, argument),) = arguments["split"].items()
    cls = resolve("protocols", str(name))
    options = {"successive": bool(arguments.get("successive", False)), "refit": refit}
    options |= {"by_user": grouped_by_user(arguments)} if cls.by_rows else {}
    protocol = cls(argument, **options)
    protocol.check_argument()
    return protocol


def grouped_by_user(arguments: Mapping[str, Any]) -> bool:
    """Return whether ``group_by`` is user; in YAML, RecBole's none may also be an empty value."""
    return str(arguments.get("group_by", "user")).lower() != "none"


def reads_times(config: Any) -> bool:
    """Return whether the model has an encoder that reads the times of the items, so that batches need them."""
    if not parts_of(config.model_class):
        return False
    return resolve("encoders", config["encoder"]).reads_times
