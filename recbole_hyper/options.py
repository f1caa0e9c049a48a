"""Options: configuration keys with their allowed values, default and meaning, and what they decide.

A part declares its options once, as keyword-only arguments of its constructor::

    def __init__(self, *, n_buckets: Annotated[int | None, Option("int >= 1 or ~", "buckets per batch")] = None)

The checks of a configuration, ``recbole-hyper keys`` and the documentation read them there. An argument without an
:class:`Option` is an option too: its annotation, or else its default, decides whether it is a bool, an int or a float.
A text after an ``Option`` is its meaning in this part.
"""

import dataclasses
import enum
import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recbole_hyper.errors import ConfigError

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


class _Open(enum.Enum):
    """Default of an option that is required, or whose default comes from RecBole's files or the model's parts."""

    OPEN = "open"


OPEN = _Open.OPEN


@dataclass(frozen=True)
class Option:
    """One option: its allowed ``values`` (:func:`matches`), its meaning in a line, its default, and what it decides.

    ``key`` is its name in a configuration; by default the name of the argument.
    """

    values: str = ""
    about: str = ""
    default: Any = OPEN
    decides: tuple[str, ...] = (TRAINING,)
    key: str = ""

    def check(self, value: Any) -> None:
        """Raise ConfigError unless the option allows ``value``."""
        if not self.allows(value):
            raise ConfigError(f"{self.key}={value!r}: {in_words(self.values)} is expected")

    def allows(self, value: Any) -> bool:
        """Return whether the option allows ``value``; an option without ``values`` allows all."""
        return not self.values or matches(self.values, value)

    def consists_of(self, *words: str) -> bool:
        """Return whether all allowed values are of the kinds ``words``."""
        return bool(self.values) and set(_alternatives(self.values)) <= set(words)

    @property
    def takes_list(self) -> bool:
        """Whether the value may be a list."""
        return any(word == "list" or word.startswith("two") for word in _alternatives(self.values))


def keyed(**options: Option) -> dict[str, Option]:
    """Return options with their keys filled in."""
    return {key: dataclasses.replace(option, key=key) for key, option in options.items()}


def options_of(constructor: Any) -> dict[str, Option]:
    """Return the options of a constructor, which are its keyword-only arguments, by name."""
    return dict(_stated(constructor))


def check_options(constructor: Any, **values: Any) -> None:
    """Raise ConfigError if an option of ``constructor`` does not allow its value."""
    for name, value in values.items():
        _stated(constructor)[name].check(value)


@functools.cache
def _stated(constructor: Any) -> Mapping[str, Option]:
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
    default = OPEN if parameter.default is inspect.Parameter.empty else parameter.default
    metadata = getattr(hint, "__metadata__", ())
    option = next((one for one in metadata if isinstance(one, Option)), None)
    if option is None:
        option = Option(_kind(hint.__origin__ if metadata else hint, parameter.default))
    meaning = next((one for one in reversed(metadata) if isinstance(one, str)), option.about)
    return dataclasses.replace(option, about=meaning, default=default, key=option.key or parameter.name)


def _kind(hint: Any, default: Any) -> str:
    """Return the allowed values by an argument's annotation, or else by its default; a default of 2 may mean 2.0."""
    named = {bool: "bool", int: "int", float: "float"}
    if hint is not None:
        return named.get(hint, "")
    return "bool" if isinstance(default, bool) else "float" if isinstance(default, int | float) else ""


def arguments(options: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor with ``options`` from the configuration ``values``.

    An argument keeps its default if its key is missing, or if its value is None and the option does not allow None.
    """
    return {
        argument: values[option.key]
        for argument, option in options.items()
        if option.key in values and (values[option.key] is not None or "~" in _alternatives(option.values))
    }


# --- the words for values --------------------------------------------------------------------------------------------
# the smallest normal number of float32
_SMALLEST = 2.0**-126
_RANGE = re.compile(r"(int|float|float32)(?: (>=|>) (\S+)| in ([\[(])(\S+), (\S+)([\])]))?")
_INTERVAL = re.compile(r"\s*[\[(]\s*(\S+?)\s*,\s*(\S+?)\s*[\])]\s*")


def matches(values: str, value: Any) -> bool:
    """Return whether ``value`` is one of ``values``.

    ``values`` lists alternatives, separated by commas and "or": ~ (None), bool, str, list, dict, part (a name or a
    class), interval ("[5,inf)", several joined by ";"), "two floats in [0, 1)", "int" or "float" with "> 0", ">= 1" or
    "in [0, 1)"; any other word is a value itself. A float is a finite number, ints included; a float32 is one in the
    range of normal 32-bit numbers.
    """
    return any(_one(word, value) for word in _alternatives(values))


def in_words(values: str) -> str:
    """Return ``values`` in plain words: "a whole number of at least 1 or ~"."""
    phrases = []
    for word in _alternatives(values):
        text = _WORDS.get(word, word)
        if (ends := _RANGE.fullmatch(word.replace("two floats", "float"))) is not None:
            noun = "two numbers" if word.startswith("two") else "a whole number" if ends[1] == "int" else "a number"
            bound = {">=": f" of at least {ends[3]}", ">": f" above {ends[3]}"}.get(ends[2], "")
            text = noun + bound + (word[word.index(" in ") :] if ends[4] else "")
            text += " in the range of float32" if ends[1] == "float32" else ""
        phrases.append(text)
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _alternatives(values: str) -> list[str]:
    # but not at the comma of an interval
    return [word.strip() for word in re.split(r", (?![^\[(]*[\])])| or ", values)]


def _one(word: str, value: Any) -> bool:
    if word in _KINDS:
        return _KINDS[word](value)
    if word.startswith("two floats"):
        one = word.replace("two floats", "float")
        return isinstance(value, list) and len(value) == 2 and all(_one(one, entry) for entry in value)
    ends = _RANGE.fullmatch(word)
    if ends is None:
        return value == word
    if not is_number(value) or (ends[1] == "int" and not isinstance(value, int)):
        return False
    return _inside(ends, value) and (ends[1] != "float32" or _SMALLEST <= abs(value) <= 1 / _SMALLEST)


def _inside(ends: re.Match[str], value: float) -> bool:
    _, compare, low, left, least, most, right = ends.groups()
    if compare:
        return value > float(low) if compare == ">" else value >= float(low)
    if left:
        above = value > float(least) if left == "(" else value >= float(least)
        return above and (value < float(most) if right == ")" else value <= float(most))
    return True


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_interval(value: Any) -> bool:
    """Return whether ``value`` lists intervals as RecBole reads them: "[5,inf)" or "(0,1];[3,4]"."""
    for part in str(value).split(";"):
        ends = _INTERVAL.fullmatch(part)
        try:
            if ends is None or not float(ends[1]) <= float(ends[2]):
                return False
        except ValueError:
            return False
    return True


_WORDS = {
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "part": "a name or a class",
    "interval": "an interval such as [5,inf)",
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "~": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "part": lambda value: isinstance(value, str | type),
    "interval": is_interval,
}
