"""Conditions on the columns of a table, in SQL: ``event = 'view' and price > 0``; see docs/data.md.

duckdb parses and evaluates one expression. Here its columns are listed, everything but comparisons and some functions
is refused, and a column of text that has numbers only becomes a column of numbers.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import engine
from recbole_hyper.data.tables.ids import as_mask, is_text, single, to_strings
from recbole_hyper.data.tables.times import to_numbers
from recbole_hyper.errors import DataError, did_you_mean

Node = dict[str, Any]

_LONGEST = 100_000  # characters of a condition
_SECONDS = 60.0
_ONE_EXPRESSION = {"type", "select_list", "from_table", "cte_map", "aggregate_handling"}  # entries of its statement
_CLASSES = {"COLUMN_REF", "CONSTANT", "COMPARISON", "BETWEEN", "CONJUNCTION", "OPERATOR", "FUNCTION", "CAST", "TYPE"}
# none of these reads a file or a clock, changes the number of rows, or makes long texts, which duckdb does not bound
_OF_NUMBERS = {"+", "-", "*", "/", "//", "%", "**", "^", "abs", "round", "floor", "ceil", "trunc", "sqrt", "ln", "log"}
_OF_NUMBERS |= {"log10", "exp", "sign", "mod", "pow", "to_timestamp", "to_days", "to_hours", "to_minutes"}
_FUNCTIONS = _OF_NUMBERS | {
    *("~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"),
    *("lower", "upper", "trim", "ltrim", "rtrim", "substr", "substring", "left", "right"),
    *("length", "strpos", "contains", "starts_with", "ends_with", "regexp_matches", "regexp_full_match"),
    *("year", "month", "day", "hour", "minute", "second", "dayofweek", "isodow", "dayofyear", "week", "quarter"),
    *("date_part", "date_trunc", "date_diff", "epoch", "strptime"),
    *("list_contains", "len"),
}
_NUMBER = r"\s*[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*"  # with leading zeros it is a name
_LIKE_A_NUMBER = re.compile(r"\W*\d")


@dataclass(frozen=True)
class Where:
    """A parsed condition; see :func:`parse_where`."""

    text: str
    columns: tuple[str, ...]  # the distinct columns of the condition, in order
    _sql: str  # over the columns c0, c1, ... of a table "rows"
    _texts: frozenset[str]  # columns in functions of texts, and beside texts that are not like a number
    _fractions: frozenset[str]  # columns beside texts such as '1.5', which duckdb would round for whole numbers
    _numbers: frozenset[str] | None = None  # columns of text whose values are all numbers; None: in each table

    def mask(self, table: Any, seconds: float = _SECONDS) -> npt.NDArray[np.bool_]:
        """Return (n,) True for the rows of ``table`` that meet the condition; see :meth:`meets`."""
        return as_mask(self.meets(table, seconds))

    def meets(
        self, table: Any, seconds: float = _SECONDS, place: Callable[[int], str] = "where: row {} (from 0)".format
    ) -> pa.Array:
        """Return (n,) whether each row of ``table`` meets the condition, null for a comparison with a missing value.

        ``table`` is an Arrow table, a record batch or a mapping from names to Arrow arrays; only :attr:`columns` are
        read. Other threads go on meanwhile. DataError for a missing column, or a value that cannot be compared, with
        the ``place`` of its row if it should be a number; TooSlowError after ``seconds``.
        """
        arrays = self._arrays(table)
        numbers = self._numbers_in(arrays) if self._numbers is None else self._numbers
        texts = [name for name, array in arrays.items() if is_text(array.type) and name not in numbers]
        arrays |= {name: _as_numbers(array, name, place) for name, array in arrays.items() if name in numbers}
        whole = [name for name in self._fractions if pa.types.is_integer(arrays[name].type)]
        arrays |= {name: arrays[name].cast(pa.float64(), safe=False) for name in whole}
        try:
            named = {f"c{number}": array for number, array in enumerate(arrays.values())}
            found = single(engine.query(f"{self._sql} FROM rows", named, seconds).column(0))
        except engine.TooSlowError as error:
            raise engine.TooSlowError(f"where {self.text[:200]!r}: {error}") from error
        except engine.Error as error:
            fault = re.sub(r"\bc([0-9]+)\b", lambda match: repr(self.columns[int(match[1])]), str(error))
            fault += f"; columns of text: {', '.join(texts)}" if texts else ""
            lists = any(pa.types.is_nested(array.type) for array in arrays.values())
            hint = "; for a column of lists: list_contains(genres, 'Drama')" if lists else ""
            raise DataError(f"where {self.text[:200]!r}: {fault}{hint}") from error
        if not pa.types.is_boolean(found.type):
            raise DataError(f"where {self.text[:200]!r}: the condition is not true or false for each row")
        return found

    def settled(self, table: Any) -> Where:
        """Return the condition with the columns of numbers as in ``table``, for tables that are read in parts."""
        return replace(self, _numbers=self._numbers_in(self._arrays(table)))

    def _numbers_in(self, arrays: Mapping[str, pa.Array]) -> frozenset[str]:
        texts = {name: array for name, array in arrays.items() if name not in self._texts and is_text(array.type)}
        numeric = {name: pc.all(pc.match_substring_regex(array, rf"^{_NUMBER}$")) for name, array in texts.items()}
        return frozenset(name for name, found in numeric.items() if found.as_py())

    def _arrays(self, table: Any) -> dict[str, pa.Array]:
        names = list(table.schema.names) if hasattr(table, "schema") else list(table)
        for name in self.columns:
            if names.count(name) > 1:
                raise DataError(f"where {self.text!r}: {names.count(name)} columns are named {name!r}; rename one")
            if name not in names:
                hint = f"{did_you_mean(name, names)} (write a text in single quotes); columns: {', '.join(names)}"
                raise DataError(f"where {self.text!r}: the table has no column {name!r}{hint}")
        return {name: _flat(table[name]) for name in self.columns}


@functools.lru_cache(256)  # a server gets the same conditions again and again
def parse_where(text: str) -> Where:
    """Parse a condition; DataError, which shows what is wrong, for anything but one expression of SQL."""
    if len(text) > _LONGEST or "$$" in text:
        _refuse(text, f"at most {_LONGEST:,} characters are read, and texts need single quotes")
    tree = engine.syntax_tree(f"SELECT (\n{text}\n)")
    if tree["error"]:
        _refuse(text, f"{tree['error_message']}; put names that are words of SQL, such as order, in double quotes")
    node = tree["statements"][0]["node"]
    one = not {*node} - _ONE_EXPRESSION and len(node["select_list"]) == 1 and node["from_table"] == {"type": "EMPTY"}
    if not one or len(tree["statements"]) > 1:
        _refuse(text, "it is more than one expression")
    columns: dict[str, str] = {}
    texts, fractions = set[str](), set[str]()
    for part in _nodes(node["select_list"]):
        function = str(part.get("function_name", "")).lower()
        if part["class"] not in _CLASSES:
            _refuse(text, f"{part['class'].lower()} is not allowed")
        if part["class"] == "FUNCTION" and function not in _FUNCTIONS:
            _refuse(text, f"the function {function!r} is not allowed{did_you_mean(function, _FUNCTIONS)}")
        if part["class"] in ("COMPARISON", "BETWEEN") or part.get("type") == "COMPARE_IN":
            names, values = _compared(text, part)
            texts |= set() if all(map(_LIKE_A_NUMBER.match, values)) else names
            fractions |= names if any(re.search("[.eE]", value) for value in values) else set()
        if function and function not in _OF_NUMBERS:
            texts |= _names([one["expression"] for one in part.get("arguments", ())])
        if part["class"] == "COLUMN_REF":
            part["column_names"] = [columns.setdefault(".".join(part["column_names"]), f"c{len(columns)}")]
    if not columns:
        _refuse(text, f"got {text.strip()!r}, which names no column")
    return Where(text, tuple(columns), engine.sql_of(tree), frozenset(texts), frozenset(fractions - texts))


def _compared(text: str, comparison: Node) -> tuple[set[str], list[str]]:
    """Return the columns and the texts of a comparison; DataError if a value is missing."""
    parts = [comparison[key] for key in ("left", "right", "input", "lower", "upper") if key in comparison]
    parts += comparison.get("children", ())
    literals = [part["literal"] for part in parts if part["class"] == "CONSTANT"]
    values = [literal.get("text", "") for literal in literals if literal["kind"] == "STRING"]
    if "" in values or any(literal["kind"] == "NULL_LITERAL" for literal in literals):
        _refuse(text, "a missing value equals nothing; write COLUMN is null")
    return _names(parts), values


def _names(parts: Sequence[Node]) -> set[str]:
    """Return the columns among some expressions."""
    return {".".join(part["column_names"]) for part in parts if part["class"] == "COLUMN_REF"}


def _refuse(text: str, why: str) -> NoReturn:
    raise DataError(
        f"where {text[:200]!r}: expected a condition: {why}; "
        "example: event = 'view' and (price > 0 or brand in ('a', 'b')) and city is not null"
    )


def _nodes(node: Any) -> Iterator[Node]:
    """Yield all expressions of a syntax tree, the outer ones first."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict) and "class" in one:
            yield one
        if isinstance(one, dict | list):
            stack.extend(reversed([*one.values()] if isinstance(one, dict) else one))


def _flat(column: Any) -> pa.Array:
    """Return a column as one decoded array, with null for empty texts and NaN, and dates as moments in UTC."""
    column = single(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        column = to_strings(column)[0]
    if is_text(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    if column.null_count == len(column) and not pa.types.is_temporal(kind):
        return pa.nulls(len(column))  # a type that compares with anything
    return column.cast(pa.timestamp("us", "UTC")) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else column


def _as_numbers(column: pa.Array, name: str, place: Callable[[int], str]) -> pa.Array:
    """Return texts as numbers, whole ones exactly; DataError for the first one that is not a number."""
    if not is_text(column.type):
        return column
    numbers, readable = to_numbers(column)
    wrong = np.flatnonzero(~readable & as_mask(pc.is_valid(column)))
    if len(wrong):
        text = column[int(wrong[0])].as_py()[:80]
        raise DataError(f"{place(int(wrong[0]))}: {text!r} in {name!r} is not a number, as the values before it")
    for whole in (pa.int64(), pa.decimal128(38, 0)):
        with contextlib.suppress(pa.ArrowInvalid):  # not whole, 1e3, or too large
            return pc.utf8_trim_whitespace(column).cast(whole)
    return pa.array(numbers, mask=~readable)
