"""Parts of models, which are found by the name of their file, and their options: configuration keys with a type.

A part declares its options once, as keyword-only arguments of its constructor::

    def __init__(self, *, n_buckets: Annotated[PositiveInt | None, Option("buckets per batch")] = None)

The checks of a configuration, ``recbole-hyper keys`` and the documentation read them there. An argument without an
:class:`Option` is an option too: its annotation, or else its default, is its type. A text after an ``Option`` is its
meaning in this part.

A part of the package is the last class of its kind in its file: ``losses/sce.py`` has the loss ``sce``. So a new part
is one file, and finding one imports no other.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import typing
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from recbole_hyper.errors import ConfigError
from recbole_hyper.values import allows, in_words, is_plain

# what a key decides; a key may decide several things
DATA = "data"  # what is read from the files
SPLIT = "split"  # who is trained on, validated and tested
TRAINING = "training"  # what is learned
SCORE = "score"  # the validation score, and with it the selection
RANKING = "ranking"  # how cases are ranked: may differ when a finished run is evaluated
METRICS = "metrics"  # as RANKING, but needs only the ranks
PLACE = "place"  # place, speed and output of a run, but no number of its result
GROWS = "grows"  # a resumed run may increase it, but not decrease it

AUTO = "auto"  # the value that is chosen from the training data


# the default of an option that is required, or whose default comes from RecBole's files or the model's parts
OPEN: Any = ...


@dataclass(frozen=True)
class Option:
    """One option: its meaning in a line, its type (:mod:`recbole_hyper.values`), its default, and what it decides.

    The type is that of the argument; with ``auto`` a configuration may also have "auto". ``key`` is the name in a
    configuration; by default the name of the argument.
    """

    about: str = ""
    _: KW_ONLY
    kind: Any = Any
    default: Any = OPEN
    decides: tuple[str, ...] = (TRAINING,)
    key: str = ""
    auto: bool = False

    def check(self, value: Any) -> None:
        """Raise ConfigError unless the option allows ``value``."""
        if not self.allows(value):
            raise ConfigError(self.why_not(value))

    def why_not(self, value: Any) -> str:
        """Return the message for a wrong ``value``."""
        return f"{self.key}={value!r}: {in_words(self.kind)} is expected"

    def allows(self, value: Any) -> bool:
        """Return whether the option allows ``value``."""
        return allows(self.kind, value)


def keyed(**options: Option) -> dict[str, Option]:
    """Return options with their keys filled in."""
    return {key: dataclasses.replace(option, key=key) for key, option in options.items()}


# whether the values of the options were checked before, with the whole configuration
_checked = ContextVar("checked", default=False)


@contextlib.contextmanager
def checked_before() -> Iterator[None]:
    """Build parts in a block without another check of their options, as their configuration was checked."""
    token = _checked.set(True)
    try:
        yield
    finally:
        _checked.reset(token)


def check_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Raise ConfigError if an option does not allow its value; ``values`` without an option are skipped."""
    for name in () if _checked.get() else values:
        if name in options:
            options[name].check(values[name])


@functools.cache
def options_of(constructor: Any) -> Mapping[str, Option]:
    """Return the options of a constructor, which are its keyword-only arguments, by name."""
    function = getattr(constructor, "__init__", None) if isinstance(constructor, type) else constructor
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):  # names that are imported for type checkers only
        hints = {}
    parameters = inspect.signature(constructor).parameters.values()
    return {
        entry.name: _option(entry, hints.get(entry.name))
        for entry in parameters
        if entry.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _option(parameter: inspect.Parameter, hint: Any) -> Option:
    metadata = getattr(hint, "__metadata__", ())
    option = next((one for one in metadata if isinstance(one, Option)), Option())
    about = next((one for one in reversed(metadata) if isinstance(one, str)), option.about)
    bounds = tuple(one for one in metadata if not isinstance(one, Option | str))
    kind = _kind(hint.__origin__ if metadata else hint, parameter.default)
    kind = Annotated[kind, *bounds] if bounds else kind
    return dataclasses.replace(
        option,
        about=about,
        kind=kind | Literal["auto"] if option.auto else kind,
        default=OPEN if parameter.default is inspect.Parameter.empty else parameter.default,
        key=option.key or parameter.name,
    )


def _kind(hint: Any, default: Any) -> Any:
    """Return the type of an argument by its annotation, or else by its default; a default of 2 may mean 2.0."""
    if hint is not None:
        return hint if is_plain(hint) else Any
    return bool if isinstance(default, bool) else float if isinstance(default, int | float) else Any


def arguments(options: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor with ``options`` from the configuration ``values``, else their defaults.

    The default also stands for a value of None that the option does not allow.
    """
    found = {}
    for argument, option in options.items():
        given = option.key in values and (values[option.key] is not None or option.allows(None))
        found[argument] = values[option.key] if given else option.default
    return {argument: value for argument, value in found.items() if value is not OPEN}


class Declared:
    """Base class of what has options: parts and models."""

    # other defaults for keys of the model that uses a part; those of base classes apply too
    model_defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the options that the constructor declares, by argument."""
        constructor: Any = cls
        return options_of(constructor)

    @classmethod
    @functools.cache
    def defaults(cls) -> Mapping[str, Any]:
        """Return the default of every key that belongs to the part or model."""
        values: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            values |= vars(base).get("model_defaults", {})
        return values | {one.key: one.default for one in cls.options().values() if one.default is not OPEN}


class Part(Declared):
    """Base class of parts."""

    # the folder of the package that has the parts of this kind
    kind: ClassVar[str] = ""

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        """Raise ValueError for ``options`` that do not go together for states of ``width``.

        It is called with all options before data are read.
        """


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


class OfKeys:
    """Base of dataclasses whose fields have the names of keys."""

    @classmethod
    def of(cls, config: Any) -> Self:
        """Return the settings in a configuration or another mapping; a key that is missing is None."""
        names = [one.name for one in dataclasses.fields(cls)]  # type: ignore[arg-type]
        # no .get: RecBole's Config has none
        return cls(**{name: config[name] if name in config else None for name in names})  # noqa: SIM401
