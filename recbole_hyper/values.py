"""Types of values: their check, which pydantic does without converting anything, and their description in words.

A type may be plain (``int``, ``str | None``, ``Literal["sum", "mean"]``) or have bounds (``Annotated[int, Ge(1)]``).
True is not an int, an int is also a float, and every float is finite.
"""

import functools
import math
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Gt, Le, Len, Lt, Predicate
from typing_extensions import TypedDict


@dataclass(frozen=True)
class Words:
    """The description of a type."""

    text: str


_INTERVAL = re.compile(r"\s*[\[(]\s*(\S+?)\s*,\s*(\S+?)\s*[\])]\s*")
# numbers as RecBole reads them besides those of YAML 1.1, for which 1e-3 is a text
YAML_NUMBER = re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$")


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_interval(value: str) -> bool:
    """Return whether ``value`` lists intervals as RecBole reads them: "[5,inf)" or "(0,1];[3,4]"."""
    for part in value.split(";"):
        ends = _INTERVAL.fullmatch(part)
        try:
            if ends is None or not float(ends[1]) <= float(ends[2]):
                return False
        except ValueError:
            return False
    return True


def has_no_nul(value: str) -> bool:
    """Return whether ``value`` can be a path or name."""
    return "\0" not in value


PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
# shares of 1, named by the ends that are allowed
Share = Annotated[float, Ge(0), Le(1)]
ShareBelow1 = Annotated[float, Ge(0), Lt(1)]
InnerShare = Annotated[float, Gt(0), Lt(1)]
# from the smallest normal number of float32 to its inverse
PositiveFloat32 = Annotated[float, Ge(2.0**-126), Le(2.0**126), Words("a number above 0 in the range of float32")]
Text = Annotated[str, Len(1), Predicate(has_no_nul), Words("a name or path")]
Interval = Annotated[str, Predicate(is_interval), Words("an interval such as [5,inf)")]
# the two decay rates of Adam
Betas = Annotated[list[ShareBelow1], Len(2, 2), Words("two numbers in [0, 1)")]
# names of metrics, and cut-offs
Metrics = Annotated[list[str], Len(1), Words("a list of names such as [NDCG, Hit]")] | str
Cuts = Annotated[list[PositiveInt], Len(1), Words("a list such as [1, 5, 10]")] | PositiveInt
PartName = Annotated[str | type, Words("a name or a class")]
Auto = Literal["auto"]


class _Clipping(TypedDict):
    max_norm: PositiveFloat
    norm_type: NotRequired[PositiveFloat | Literal["inf"]]


class _Plateau(TypedDict, total=False):
    factor: InnerShare
    patience: NonNegativeInt
    threshold: ShareBelow1


def is_candidates(mode: str) -> bool:
    """Return whether ``mode`` is full, uniN or popN, or the path of a file with the candidates of each user."""
    return bool(re.fullmatch(r"full|(uni|pop)[1-9][0-9]*", mode)) or Path(mode).is_file()


for _mapping in (_Clipping, _Plateau):
    setattr(_mapping, "__pydantic_config__", {"strict": True, "extra": "forbid"})  # noqa: B010
Clipping = Annotated[_Clipping, Words("{max_norm: 5.0, norm_type: 2}")]
Plateau = Annotated[_Plateau, Words("{factor: 0.5, patience: 5, threshold: 0}, factor in (0, 1),")]
Columns = Annotated[dict[str, list[str] | Literal["*"]], Words("a mapping such as {inter: [user_id, item_id]}")]
# the entries of eval_args
Candidates = Annotated[
    str, Predicate(is_candidates), Words("full, uniN, popN (N sampled candidates: uni99), the path of a file")
]
Modes = Annotated[dict[Literal["valid", "test"], Candidates], Words("{valid: ..., test: ...} of these")]
EVALUATION: dict[str, Any] = {
    "split": Annotated[dict, Len(0, 1), Words("one entry, such as {LS: valid_and_test},")],
    "order": Literal["TO", "RO"],
    "group_by": Literal["user", "none"] | None,
    "mode": Candidates | Modes,
    "successive": bool,
}

_NOUNS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a mapping",
    type(None): "~",
}
_BOUNDS = {Ge: "of at least", Gt: "above", Le: "of at most", Lt: "below"}


def allows(kind: Any, value: Any) -> bool:
    """Return whether ``value`` is of the type ``kind``."""
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_python(value)
    except (ValidationError, OverflowError):  # an int may be too large for a float
        return False
    return True


def _adapter(kind: Any) -> Any:
    try:
        return _known_adapter(kind)
    except TypeError:  # pydantic's Field has no hash
        return _known_adapter.__wrapped__(kind)


@functools.cache
def _known_adapter(kind: Any) -> Any:
    # pydantic takes a tenth of a second to import
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True))


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def base(kind: Any) -> Any:
    """Return a type without bounds and arguments: ``int`` for ``Annotated[int, Ge(1)]``, ``list`` for ``list[int]``."""
    origin = typing.get_origin(kind)
    return base(typing.get_args(kind)[0]) if origin is Annotated else origin or kind


def consists_of(kind: Any, *bases: Any) -> bool:
    """Return whether every alternative of ``kind`` is one of the types ``bases``."""
    return {base(one) for one in alternatives(kind)} <= set(bases)


def is_plain(kind: Any) -> bool:
    """Return whether a type consists of numbers, texts, lists and mappings, as a YAML file has them."""
    return consists_of(kind, *_NOUNS, Literal)


def in_words(kind: Any) -> str:
    """Return the description of a type, such as "a whole number of at least 1 or ~"."""
    if kind is Any:
        return ""
    phrases = [word for one in alternatives(kind) for word in _phrases(one)]
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _phrases(kind: Any) -> list[str]:
    if typing.get_origin(kind) is Literal:
        return [str(value) for value in typing.get_args(kind)]
    metadata = [one for entry in getattr(kind, "__metadata__", ()) for one in getattr(entry, "metadata", [entry])]
    if words := next((one for one in metadata if isinstance(one, Words)), None):
        return [words.text]
    noun = _NOUNS.get(base(kind), getattr(base(kind), "__name__", str(kind)))
    bounds = [one for one in metadata if type(one) in _BOUNDS]
    ends: dict[Any, Any] = {type(one): getattr(one, type(one).__name__.lower()) for one in bounds}
    if base(kind) is int and Gt in ends:
        ends[Ge] = ends.pop(Gt) + 1
    low, high = (next((end for end in pair if end in ends), None) for pair in ((Ge, Gt), (Le, Lt)))
    if low and high:
        return [f"{noun} in {'[' if low is Ge else '('}{ends[low]}, {ends[high]}{']' if high is Le else ')'}"]
    return [noun + "".join(f" {_BOUNDS[end]} {value}" for end, value in ends.items())]
