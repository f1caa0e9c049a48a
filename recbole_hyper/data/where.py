"""Conditions on the columns of a table, as text: ``event = 'view' and price > 0``.

A condition compares a column with a value by ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``, or is ``COLUMN in (a, b)``
or ``COLUMN is null``, each also with ``not``. Join conditions with ``and``, ``or``, ``not`` and brackets. Write texts
in single or double quotes, numbers and ``true`` and ``false`` without. Put a column in backticks or double quotes if
its name is not a plain word. As in SQL a missing value satisfies no comparison; an empty text is missing. In a column
of lists, one matching entry is enough.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.ids import as_mask, as_text, is_list, is_text, single
from recbole_hyper.data.times import to_numbers, to_seconds
from recbole_hyper.errors import DataError, did_you_mean

Value = str | int | float | bool
_Evaluate = Callable[[Mapping[str, Any]], Any]  # from columns by name to Arrow booleans, null for unknown

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<name>`[^`]+`)|(?P<word>[^\W\d]\w*(?:\.\w+)*)
    |(?P<sign><>|[=!<>]=|[=<>(),]))""",
    re.VERBOSE,
)
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
# keywords and signs that Python writes differently
_PYTHON = {"null": "None", "true": "True", "false": "False", "=": "==", "<>": "!="}
_KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")


@dataclass(frozen=True)
class Where:
    """A parsed condition; see :func:`parse_where`."""

    text: str
    columns: tuple[str, ...]  # the distinct columns of the condition, in order
    _evaluate: _Evaluate

    def mask(self, table: Any) -> npt.NDArray[np.bool_]:
        """Return (n,) True for the rows of ``table`` that meet the condition.

        ``table`` is an Arrow table, a record batch or a mapping from names to Arrow arrays; only :attr:`columns` are
        read. DataError for a missing column, or, with its row from 0, a value that cannot be compared.
        """
        names = list(table.schema.names) if hasattr(table, "schema") else list(table)
        for name in self.columns:
            if names.count(name) > 1:
                raise DataError(f"where {self.text!r}: {names.count(name)} columns are named {name!r}; rename one")
            if name not in names:
                hint = f"{did_you_mean(name, names)}; columns: {', '.join(names)}"
                raise DataError(f"where {self.text!r}: the table has no column {name!r}{hint}")
        return as_mask(self._evaluate({name: _flat(table[name]) for name in self.columns}))


def parse_where(text: str) -> Where:
    """Parse a condition; DataError, which shows the place, for invalid syntax.

    The condition is rewritten as a Python expression, with ``_0``, ``_1``, ... for columns, and Python parses it.
    """
    reader = _Reader(text)
    evaluate = reader.condition(reader.parsed())
    return Where(text, tuple(dict.fromkeys(reader.columns)), evaluate)


class _Reader:
    """Translates a condition into Python's syntax tree, and that into a function of the columns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: list[str] = []
        self._places: list[int] = []  # the place in the text of each character of the Python expression
        self.columns: list[str] = []

    def parsed(self) -> ast.expr:
        """Return the syntax tree of the condition; its column ``i`` is the name ``_i``."""
        expression, place = "", 0
        while self._text[place:].strip():
            if (match := _TOKEN.match(self._text, place)) is None:
                self._refuse("expected a column, a value or a sign", place)
            kind = str(match.lastgroup)
            token = match[kind]
            word = token.lower()
            if kind == "sign" or (kind == "word" and word in _KEYWORDS):
                token = _PYTHON.get(word, word)
            elif kind == "number":
                token = str(int(token)) if re.fullmatch(r"[+-]?[0-9]+", token) else token
            elif kind == "text":
                token = repr(token[1:-1].replace(2 * token[0], token[0]))
            else:
                self._names.append(token.strip("`"))
                token = f"_{len(self._names) - 1}"
            expression += f"{token} "
            self._places += [match.start(kind)] * (len(token) + 1)
            place = match.end()
        try:
            return ast.parse(expression.strip(), mode="eval").body
        except SyntaxError as error:
            self._refuse("expected a condition", self._place((error.offset or 0) - 1))
        except (MemoryError, RecursionError):
            self._refuse("expected fewer nested brackets", 0)

    def _place(self, at: int) -> int:
        return self._places[at] if 0 <= at < len(self._places) else len(self._text)

    def _refuse(self, expected: str, place: int) -> NoReturn:
        actual = self._text[place:].strip() or "the end"
        raise DataError(
            f"where {self._text!r}: {expected}, got {actual[:40]!r}; "
            "example: event = 'view' and (price > 0 or brand in ('a', 'b')) and city is not null"
        )

    def condition(self, node: ast.expr) -> _Evaluate:
        """Return the function that evaluates a syntax tree."""
        if isinstance(node, ast.BoolOp):
            join = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
            parts = [self.condition(part) for part in node.values]
            return lambda columns: functools.reduce(join, [part(columns) for part in parts])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return lambda columns: pc.invert(inner(columns))
        if not isinstance(node, ast.Compare) or len(node.ops) > 1:
            self._refuse("expected a comparison with =, !=, <, <=, >, >=, in or is", self._place(node.col_offset))
        name, sign = self._column(node.left), node.ops[0]
        values, compare = self._values(node.comparators[0], sign), _COMPARE.get(type(sign), pc.equal)

        def evaluate(columns: Mapping[str, Any]) -> Any:
            if isinstance(sign, ast.Is | ast.IsNot):
                result = _missing(columns[name])
            else:
                results = [_compared(columns[name], name, compare, value) for value in values]
                result = functools.reduce(pc.or_kleene, results)
            # inverted, a list must have no equal entry
            return pc.invert(result) if isinstance(sign, ast.NotEq | ast.NotIn | ast.IsNot) else result

        return evaluate

    def _column(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            self.columns.append(self._names[int(node.id[1:])])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.columns.append(node.value)
        else:
            self._refuse("expected a column", self._place(node.col_offset))
        return self.columns[-1]

    def _values(self, node: ast.expr, sign: ast.cmpop) -> list[Value]:
        """Return the value, or the values of a list, to the right of a sign."""
        is_in, is_null = isinstance(sign, ast.In | ast.NotIn), isinstance(sign, ast.Is | ast.IsNot)
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            value = "" if is_null else None
        values = list(value) if is_in and isinstance(value, tuple) else [value]
        if is_null and value is not None:
            self._refuse("expected null", self._place(node.col_offset))
        if not is_null and (value == () or any(isinstance(one, tuple | type(None)) or one == "" for one in values)):
            expected = "expected a number, a text in quotes (for an empty one: is null), true or false"
            self._refuse(expected, self._place(node.col_offset))
        return values


def _flat(column: Any) -> pa.Array:
    """Return a column as one decoded array, with null for empty texts."""
    column = single(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = as_text(column)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column) if is_text(column.type) else column


def _missing(column: pa.Array) -> Any:
    if is_list(column):
        return pc.fill_null(pc.equal(pc.list_value_length(column), 0), True)
    # NaN too: it is the null of pandas' float columns
    return pc.is_null(column, nan_is_null=True)


def _compared(column: pa.Array, name: str, compare: Callable[[Any, Any], Any], value: Value) -> Any:
    """Return the comparison of each value (of a list, of any entry) with ``value``; null if it is missing."""
    if is_list(column):
        entries = as_mask(_compared(_flat(pc.list_flatten(column)), name, compare, value))
        result = np.zeros(len(column), dtype=bool)
        result[np.asarray(pc.list_parent_indices(column))[entries]] = True
        return pc.if_else(pc.is_valid(column), pa.array(result), pa.scalar(None, pa.bool_()))
    return compare(*_alike(column, name, value))


def _alike(column: pa.Array, name: str, value: Value) -> tuple[pa.Array, pa.Scalar]:
    """Convert the column and the value to a common type."""
    kind, textual = column.type, is_text(column.type)
    if isinstance(value, bool):
        if textual:
            lower = pc.utf8_lower(column)
            true, false = (pc.is_in(lower, value_set=pa.array(texts)) for texts in (("true", "1"), ("false", "0")))
            _require(pc.or_(true, false), column, name, "true, false, 1 or 0")
            column = pc.if_else(pc.is_valid(column), true, pa.scalar(None, pa.bool_()))
        elif not pa.types.is_boolean(kind):
            raise DataError(f"where: {name!r} is of type {kind}, which does not compare with true or false")
        return column, pa.scalar(value)
    if isinstance(value, str):
        if not pa.types.is_temporal(kind):
            return (column if textual else as_text(column)), pa.scalar(value)
        # dates and times; UTC without a zone
        moment, is_date = to_seconds(pa.array([value]), "iso")
        if not is_date[0]:
            raise DataError(f"where: {name!r} is of type {kind}, but {value!r} is not a date such as '2019-01-31'")
        seconds, valid = to_seconds(column, "iso")
        return pa.array(seconds, mask=~valid), pa.scalar(float(moment[0]))
    if textual:
        numbers, readable = to_numbers(column)
        _require(pa.array(readable), column, name, f"a number to compare with {value}")
        column = pa.array(numbers, mask=~readable)
    elif pa.types.is_floating(kind):  # NaN is missing
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    # exact; a larger number than Arrow's integers compares as a float
    if pa.types.is_integer(column.type) and isinstance(value, int) and -(2**63) <= value < 2**63:
        return column, pa.scalar(value)
    try:
        return column.cast(pa.float64(), safe=False), pa.scalar(float(value))
    except (pa.ArrowNotImplementedError, OverflowError) as error:
        raise DataError(f"where: {name!r} is of type {kind}, which does not compare with the number {value}") from error


def _require(good: pa.Array, column: pa.Array, name: str, what: str) -> None:
    """Raise DataError for the first value that is neither missing nor ``good``."""
    row = pc.index(pc.and_not(pc.is_valid(column), pc.fill_null(good, False)), True).as_py()
    if row >= 0:
        raise DataError(f"where: row {row} (from 0): {column[row].as_py()[:80]!r} in {name!r} is not {what}")
