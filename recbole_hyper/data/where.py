"""Conditions on the columns of a table, as text: ``event = 'view' and price > 0``.

A condition compares a column with a value by ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``, or is ``COLUMN in (a, b)``
or ``COLUMN is null``, each also with ``not``; ``and``, ``or``, ``not`` and brackets join conditions. Texts are in
single or double quotes, numbers are plain, and ``true`` and ``false`` are truth values. A column whose name is no plain
word is put in backticks or double quotes. As in SQL a missing value fulfils no comparison; an empty text is missing. Of
a column of lists, one entry is enough.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.errors import DataError, did_you_mean

Value = str | int | float | bool
_Evaluate = Callable[[Mapping[str, Any]], Any]  # columns by name to Arrow truth values, null where unknown

_DEEPEST = 50
_WORD = r"[^\W\d]\w*(?:\.\w+)*"
_BLANKS = re.compile(r"\s*")
_TOKEN = re.compile(
    rf"""\s*(?:(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<name>`[^`]+`)|(?P<word>{_WORD})
    |(?P<sign><>|[=!<>]=|[=<>(),]))""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))


@dataclass(frozen=True)
class Where:
    """A condition that was read; see :func:`parse_where`."""

    text: str
    columns: tuple[str, ...]  # those that it names, each once, in order
    _evaluate: _Evaluate

    def mask(self, table: Any) -> npt.NDArray[np.bool_]:
        """Return (n,) True for the rows of ``table`` that fulfil the condition.

        ``table`` is an Arrow table, a record batch or a mapping from names to Arrow arrays; only :attr:`columns` are
        looked at. DataError for a column that is not there, or a value that cannot be compared, with its row from 0.
        """
        names = list(table.schema.names) if hasattr(table, "schema") else list(table)
        for name in self.columns:
            if names.count(name) > 1:
                raise DataError(f"where {self.text!r}: there are {names.count(name)} columns {name!r}; rename one")
            if name not in names:
                raise DataError(
                    f"where {self.text!r}: there is no column {name!r}{did_you_mean(name, names)}; "
                    f"columns: {', '.join(names)}"
                )
        found = self._evaluate({name: _flat(table[name]) for name in self.columns})
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=bool)


def parse_where(text: str) -> Where:
    """Read a condition; DataError, which shows the place, for one that cannot be read."""
    parser = _Parser(text)
    evaluate = parser.either()
    if parser.kind:
        parser.refuse("'and' or 'or' is expected")
    return Where(text, tuple(dict.fromkeys(parser.columns)), evaluate)


class _Parser:
    """Recursive descent; ``kind`` and ``token`` are what comes next, "" at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._end = text, 0, 0
        self.kind = self.token = ""
        self.columns: list[str] = []
        self._depth = 0
        self._advance()

    def refuse(self, expected: str) -> NoReturn:
        """Raise DataError about what comes next."""
        came = self._text[self._at :].strip() or "the end"
        raise DataError(
            f"where {self._text!r}: {expected}, and {came[:40]!r} came; "
            "such as: event = 'view' and (price > 0 or brand in ('a', 'b')) and city is not null"
        )

    def _advance(self) -> str:
        """Return what came next and go on."""
        token, self._at = self.token, self._end
        if _BLANKS.match(self._text, self._at).end() == len(self._text):  # type: ignore[union-attr]
            self.kind = self.token = ""
            return token
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self.refuse("a column, a value or a sign is expected")
        self.kind, self._end = str(match.lastgroup), match.end()
        self.token = match[self.kind]
        if self.kind == "word" and self.token.lower() in _KEYWORDS:
            self.kind, self.token = "keyword", self.token.lower()
        return token

    def _takes(self, *tokens: str) -> str:
        return self._advance() if self.kind in ("keyword", "sign") and self.token in tokens else ""

    def _requires(self, token: str) -> None:
        if not self._takes(token):
            self.refuse(f"{token!r} is expected")

    def either(self) -> _Evaluate:
        return self._joined("or", pc.or_kleene, self._both)

    def _both(self) -> _Evaluate:
        return self._joined("and", pc.and_kleene, self._negated)

    def _joined(self, word: str, join: Callable[[Any, Any], Any], part: Callable[[], _Evaluate]) -> _Evaluate:
        parts = [part()]
        while self._takes(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda columns: functools.reduce(join, [one(columns) for one in parts])

    def _negated(self) -> _Evaluate:
        if self.kind not in ("keyword", "sign") or self.token not in ("not", "("):
            return self._condition()
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse(f"at most {_DEEPEST} 'not' and brackets inside one another are read")
        if self._advance() == "not":
            inner = _inverted(self._negated())
        else:
            inner = self.either()
            self._requires(")")
        self._depth -= 1
        return inner

    def _condition(self) -> _Evaluate:
        if self.kind not in ("word", "name", "text"):
            self.refuse("a column is expected")
        name = self.token if self.kind == "word" else self.token[1:-1]
        self._advance()
        self.columns.append(name)
        if self._takes("is"):
            negated = self._takes("not")
            self._requires("null")

            def missing(columns: Mapping[str, Any]) -> Any:
                return _missing(columns[name])

            return _inverted(missing) if negated else missing
        negated = self._takes("not")
        if self._takes("in"):
            values = self._values()
            return _inverted(_inside(name, values)) if negated else _inside(name, values)
        if negated or not (sign := self._takes(*_COMPARE)):
            self.refuse(f"=, !=, <, <=, >, >=, in or is is expected after {name!r}")
        value = self._value()
        if sign in ("!=", "<>"):  # of a list, no entry is equal
            return _inverted(_inside(name, [value]))
        return lambda columns: _compared(columns[name], name, _COMPARE[sign], value)

    def _values(self) -> list[Value]:
        self._requires("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._requires(")")
        return values

    def _value(self) -> Value:
        if self.kind == "number":
            token = self._advance()
            return int(token) if re.fullmatch(r"[+-]?[0-9]+", token) else float(token)
        if self.kind == "text":
            quote = self.token[0]
            if not (text := self.token[1:-1].replace(2 * quote, quote)):
                self.refuse("a text that is not empty is expected (an empty one is missing: is null)")
            self._advance()
            return text
        if word := self._takes("true", "false"):
            return word == "true"
        self.refuse("a number, a text in quotes, true or false is expected")


def _inverted(evaluate: _Evaluate) -> _Evaluate:
    return lambda columns: pc.invert(evaluate(columns))


def _inside(name: str, values: list[Value]) -> _Evaluate:
    def inside(columns: Mapping[str, Any]) -> Any:
        found = [_compared(columns[name], name, pc.equal, value) for value in values]
        return functools.reduce(pc.or_kleene, found)

    return inside


def _flat(column: Any) -> pa.Array:
    """Return a column in one piece, decoded, with null for empty texts."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return column


def _is_list(column: pa.Array) -> bool:
    kind = column.type
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _missing(column: pa.Array) -> Any:
    if _is_list(column):
        return pc.fill_null(pc.equal(pc.list_value_length(column), 0), True)
    # NaN as well: pandas has no other null of a float column
    return pc.is_null(column, nan_is_null=True)


def _compared(column: pa.Array, name: str, compare: Callable[[Any, Any], Any], value: Value) -> Any:
    """Return whether each value, or one entry of a list, compares with ``value``; null where it is missing."""
    if _is_list(column):
        entries = _compared(_flat(pc.list_flatten(column)), name, compare, value)
        rows = np.asarray(pc.list_parent_indices(column))[np.asarray(pc.fill_null(entries, False), dtype=bool)]
        found = np.zeros(len(column), dtype=bool)
        found[rows] = True
        return pc.if_else(pc.is_valid(column), pa.array(found), pa.scalar(None, pa.bool_()))
    alike, literal = _alike(column, name, value)
    return compare(alike, literal)


def _alike(column: pa.Array, name: str, value: Value) -> tuple[pa.Array, pa.Scalar]:
    """Return the column and the value in a type in which they compare."""
    kind = column.type
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if isinstance(value, bool):
        if not (textual or pa.types.is_boolean(kind)):
            raise DataError(f"where: {name!r} holds {kind}, which does not compare with true or false")
        return (_truths(column, name) if textual else column), pa.scalar(value)
    if isinstance(value, str):
        if pa.types.is_temporal(kind):
            return _moments(column, name, value)
        return (column if textual else column.cast(pa.string())), pa.scalar(value)
    if textual:
        column = _numbers(column, name, value)
    elif pa.types.is_floating(kind):  # NaN is missing
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    if pa.types.is_integer(column.type) and isinstance(value, int):  # exact
        return column, pa.scalar(value)
    try:
        return column.cast(pa.float64(), safe=False), pa.scalar(float(value))
    except (pa.ArrowNotImplementedError, OverflowError) as error:
        raise DataError(f"where: {name!r} holds {kind}, which does not compare with the number {value}") from error


def _truths(column: pa.Array, name: str) -> pa.Array:
    lower = pc.utf8_lower(column)
    true, false = (pc.is_in(lower, value_set=pa.array(texts)) for texts in (("true", "1"), ("false", "0")))
    _require(pc.or_(true, false), column, name, "truth value (true, false, 1 or 0)")
    return pc.if_else(pc.is_valid(column), true, pa.scalar(None, pa.bool_()))


def _moments(column: pa.Array, name: str, value: str) -> tuple[pa.Array, pa.Scalar]:
    """Return dates and times, without a zone UTC, and the moment that ``value`` names."""
    kind = pa.timestamp("us")
    try:
        moment = pa.scalar(value.removesuffix("Z")).cast(kind)
        # by way of numbers, which a zone does not change
        numbers = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"where: {name!r} holds {column.type}, and {value!r} is no date such as '2019-01-31'"
        ) from error
    return numbers.cast(kind), moment


def _numbers(column: pa.Array, name: str, value: float) -> pa.Array:
    """Return the numbers that texts are: whole ones exactly, where all are."""
    trimmed = pc.utf8_trim_whitespace(column)
    for kind in (pa.int64(), pa.float64()):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    readable = pc.match_substring_regex(trimmed, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
    _require(readable, column, name, f"number to compare with {value}")
    return pc.if_else(readable, trimmed, pa.scalar(None, trimmed.type)).cast(pa.float64())


def _require(good: pa.Array, column: pa.Array, name: str, what: str) -> None:
    """Raise DataError for the first value that is neither missing nor ``good``."""
    row = pc.index(pc.and_not(pc.is_valid(column), pc.fill_null(good, False)), True).as_py()
    if row >= 0:
        raise DataError(f"where: row {row} (from 0): {name!r} holds {column[row].as_py()[:80]!r}, which is no {what}")
