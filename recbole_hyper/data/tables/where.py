"""Conditions on the columns of a table, in SQL: ``event = 'view' and price > 0``; see docs/data.md.

duckdb parses and evaluates one expression. Here the names are listed, everything but comparisons and some functions is
refused, and a column of text that meets a number is read as numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import engine
from recbole_hyper.data.tables.ids import as_mask, as_text, is_text, single
from recbole_hyper.data.tables.times import to_numbers
from recbole_hyper.errors import DataError, did_you_mean

Node = dict[str, Any]

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[^\W\d]\w*|[0-9.]+[eE]?\w*|\s+|.""", re.DOTALL)
# all other words are names, also those that SQL reserves, such as "at", "user" or "order"
_KEYWORDS = re.compile(
    "and|or|not|in|is|null|true|false|between|i?like|similar|to|escape|glob|(try_)?cast|as|distinct|from|isnull|notnull"
)
_LONGEST = 100_000  # characters of a condition
_SECONDS = 60.0
_CLASSES = {"COLUMN_REF", "CONSTANT", "COMPARISON", "BETWEEN", "CONJUNCTION", "OPERATOR", "FUNCTION", "CAST"}
_CLASSES |= {"TYPE"}
# functions by what they return; none of them reads a file or a clock, or changes the number of rows
_NUMBERS = {"+", "-", "*", "/", "//", "%", "**", "^", "abs", "round", "floor", "ceil", "trunc", "sqrt", "ln", "log"}
_NUMBERS |= {"log10", "exp", "sign", "mod", "pow"}
_ALLOWED = {
    *("~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"),
    *("||", "lower", "upper", "trim", "ltrim", "rtrim", "substr", "substring", "left", "right", "replace", "concat"),
    *("length", "strpos", "contains", "starts_with", "ends_with", "regexp_matches", "regexp_full_match"),
    *("year", "month", "day", "hour", "minute", "second", "dayofweek", "isodow", "dayofyear", "week", "quarter"),
    *("date_part", "date_trunc", "date_diff", "epoch", "to_timestamp", "strptime", "strftime"),
    *("to_days", "to_hours", "to_minutes"),
    *("list_contains", "len"),
}
_NUMBER = r"\s*[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*"  # with leading zeros it is a name
_LIKE_A_NUMBER = r"\s*[+-]?\.?[0-9].*"
_MOST_DIGITS = 38
_INTEGER = pa.decimal128(_MOST_DIGITS, 0)


@dataclass(frozen=True)
class Where:
    """A parsed condition; see :func:`parse_where`."""

    text: str
    columns: tuple[str, ...]  # the distinct columns of the condition, in order
    _tree: Node
    _numeric: frozenset[str] | None = None  # the columns of text whose values are all numbers; None: in each table

    def mask(self, table: Any, seconds: float = _SECONDS) -> npt.NDArray[np.bool_]:
        """Return (n,) True for the rows of ``table`` that meet the condition.

        ``table`` is an Arrow table, a record batch or a mapping from names to Arrow arrays; only :attr:`columns` are
        read. Other threads go on meanwhile. DataError for a missing column, or a value that cannot be compared, with
        its row from 0 if it should be a number; TooSlowError after ``seconds``.
        """
        if self._numeric is None:
            return self.settled(table).mask(table, seconds)
        arrays = {f"c{place}": _flat(self._column(table, name)) for place, name in enumerate(self.columns)}
        bound = _Bound(self, arrays)
        try:
            sql = f"{engine.sql_of(bound.node(self._tree))} FROM rows"
            found = single(engine.query(sql, {**arrays, **bound.numbers}, seconds).column(0))
        except engine.TooSlowError as error:
            raise engine.TooSlowError(f"where {_short(self.text)!r}: {error}") from error
        except engine.Error as error:
            lists = any(pa.types.is_nested(array.type) for array in arrays.values())
            hint = "; for a column of lists: list_contains(genres, 'Drama')" if lists else ""
            raise DataError(f"where {_short(self.text)!r}: {error}{hint}") from error
        if not pa.types.is_boolean(found.type):
            raise DataError(f"where {self.text!r}: the condition is not true or false for each row")
        return as_mask(found)

    def settled(self, table: Any) -> Where:
        """Return the condition with the columns of numbers as in ``table``, for tables that are read in parts."""
        numeric = [name for name in self.columns if _is_numeric(_flat(self._column(table, name)))]
        return replace(self, _numeric=frozenset(numeric))

    def _column(self, table: Any, name: str) -> Any:
        names = list(table.schema.names) if hasattr(table, "schema") else list(table)
        if names.count(name) > 1:
            raise DataError(f"where {self.text!r}: {names.count(name)} columns are named {name!r}; rename one")
        if name not in names:
            hint = f"{did_you_mean(name, names)} (write a text in single quotes); columns: {', '.join(names)}"
            raise DataError(f"where {self.text!r}: the table has no column {name!r}{hint}")
        return table[name]


class _Bound:
    """The syntax tree of a condition over the columns c0, c1, ... and, where a text is a number, n0, n1, ..."""

    def __init__(self, where: Where, arrays: Mapping[str, pa.Array]) -> None:
        self.where, self.arrays = where, arrays
        self.numbers: dict[str, pa.Array] = {}

    def node(self, node: Any, numeric: bool = False) -> Any:
        """Return a node with its columns renamed; where it is ``numeric``, texts become numbers."""
        if isinstance(node, list):
            return [self.node(one, numeric) for one in node]
        if not isinstance(node, dict):
            return node
        if node.get("class") == "COLUMN_REF":
            return {**node, "column_names": [self._name(node, numeric)]}
        if node.get("class") == "CONSTANT" and numeric and node["literal"]["kind"] == "STRING":
            text = node["literal"]["text"]
            if not re.fullmatch(_NUMBER, text):
                raise DataError(f"where {self.where.text!r}: {text!r} is beside numbers, but is not a number")
            return {**node, "literal": {"kind": "NUMERIC", "text": text.strip()}}
        if _compares(node):
            numeric = self._is_numeric(node)
        elif "class" in node:
            numeric = node.get("function_name") in _NUMBERS and not self._has_moments(node)
        return {key: self.node(value, numeric) for key, value in node.items()}

    def _name(self, node: Node, numeric: bool) -> str:
        place = self.where.columns.index(_name(node))
        name, number = f"c{place}", f"n{place}"
        if not numeric or not is_text(self.arrays[name].type):
            return name
        if number not in self.numbers:
            self.numbers[number] = _numbers(self.arrays[name], _name(node))
        return number

    def _is_numeric(self, node: Node) -> bool:
        """Return whether a comparison is one of numbers."""
        kinds, columns = set[str](), list[bool]()
        for part in _operands(node):
            if part["class"] == "COLUMN_REF":
                kind = self.arrays[f"c{self.where.columns.index(_name(part))}"].type
                kinds |= {"number"} if _is_number(kind) else set()
                kinds |= set() if _is_number(kind) or is_text(kind) or pa.types.is_null(kind) else {"other"}
                columns += [_name(part) in (self.where._numeric or ())] if is_text(kind) else []
            elif part["class"] == "CONSTANT":
                literal = part["literal"]
                like = literal["kind"] == "STRING" and re.fullmatch(_LIKE_A_NUMBER, literal["text"], re.DOTALL)
                kinds.add({"INTEGER": "number", "NUMERIC": "number", "STRING": "digits" if like else "text"}.get(
                    literal["kind"], "other"))  # fmt: skip
            elif part.get("function_name") in _NUMBERS and not self._has_moments(part):
                kinds.add("number")
        if "other" in kinds:  # a date, true, or a list: as duckdb compares it
            return False
        return "number" in kinds or ("text" not in kinds and bool(columns) and all(columns))

    def _has_moments(self, node: Node) -> bool:
        """Return whether a sum or difference is one of dates."""
        names = [_name(one) for one in _nodes(node) if one["class"] == "COLUMN_REF"]
        kinds = [self.arrays[f"c{self.where.columns.index(name)}"].type for name in names]
        return any(map(pa.types.is_temporal, kinds)) or any(one["class"] == "TYPE" for one in _nodes(node))


@functools.lru_cache(256)  # a server gets the same conditions again and again
def parse_where(text: str) -> Where:
    """Parse a condition; DataError, which shows what is wrong, for anything but one expression of SQL."""
    if len(text) > _LONGEST:
        _refuse(text, f"{len(text):,} characters, but at most {_LONGEST:,} are read")
    sql = f"SELECT (\n{_as_sql(text)}\n)"
    tree = engine.syntax_tree(sql)
    if tree["error"]:
        message = str(tree["error_message"]).strip().partition("\n")[0]
        at_end = int(tree.get("position", 0)) >= len(sql) - 1
        near = re.search('near "(.*)"$', message, re.DOTALL)
        _refuse(text, "got 'the end'" if at_end else f"got {near[1].strip(chr(34))!r}" if near else message)
    node = tree["statements"][0]["node"]
    several = len(tree["statements"]) > 1 or len(node["select_list"]) > 1 or "where_clause" in node
    if several or node["from_table"] != {"type": "EMPTY"}:
        _refuse(text, "it is more than one expression")
    root = node["select_list"][0]
    if root["class"] in ("COLUMN_REF", "CONSTANT"):
        _refuse(text, f"expected a comparison with a value, got {text.strip()!r}")
    columns: dict[str, None] = {}
    for one in _nodes(root):
        if one["class"] not in _CLASSES or one.get("type") in ("OPERATOR_COALESCE", "OPERATOR_TRY"):
            _refuse(text, f"{one['class'].lower()} is not allowed")
        digits = re.fullmatch(r"\s*[+-]?([0-9.]+)\s*", str(one.get("literal", {}).get("text", "")))
        if digits and len(digits[1]) > _MOST_DIGITS:
            _refuse(text, f"a number of {len(digits[1])} digits, but at most {_MOST_DIGITS} are read")
        function = str(one.get("function_name", "")).lower()
        if one["class"] == "FUNCTION" and function not in _NUMBERS | _ALLOWED:
            _refuse(text, f"the function {function!r} is not allowed{did_you_mean(function, _ALLOWED)}")
        if one["class"] == "COLUMN_REF":
            columns[_name(one)] = None
        # an empty text is missing, too
        if _compares(one) and any(
            part["class"] == "CONSTANT"
            and (part["literal"]["kind"] == "NULL_LITERAL" or part["literal"].get("text", "") == "")
            for part in _operands(one)
        ):
            _refuse(text, "a missing value equals nothing; write COLUMN is null")
    if not columns:
        _refuse(text, f"got {text.strip()!r}, which names no column")
    return Where(text, tuple(columns), tree)


def _as_sql(text: str) -> str:
    """Return the condition with all names in double quotes."""
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        before, after = "".join(tokens[max(0, place - 3) : place]), "".join(tokens[place + 1 : place + 3]).lstrip()[:1]
        if token == "$":
            _refuse(text, "got '$'; write a text in single quotes")
        if token[0] == "`" and len(token) > 2:
            tokens[place] = _identifier(token[1:-1])
        elif token[0].isalpha() or token[0] == "_":
            typed = before.rstrip().endswith("::") or before.rstrip().lower().endswith((" as", ")as"))
            if not (_KEYWORDS.fullmatch(token.lower()) or typed or after == "("):
                tokens[place] = _identifier(token)
    return "".join(tokens)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refuse(text: str, why: str) -> NoReturn:
    raise DataError(
        f"where {_short(text)!r}: expected a condition: {why}; "
        "example: event = 'view' and (price > 0 or brand in ('a', 'b')) and city is not null"
    )


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."


def _nodes(node: Any) -> Iterator[Node]:
    """Yield all expressions of a syntax tree, the outer ones first."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if "class" in one:
                yield one
            stack.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            stack.extend(reversed(one))


def _compares(node: Node) -> bool:
    return node.get("class") in ("COMPARISON", "BETWEEN") or node.get("type") == "COMPARE_IN"


def _operands(node: Node) -> list[Node]:
    parts = [node[key] for key in ("left", "right", "input", "lower", "upper") if key in node]
    return [*parts, *node.get("children", ())]


def _name(node: Node) -> str:
    return ".".join(node["column_names"])


def _flat(column: Any) -> pa.Array:
    """Return a column as one decoded array, with null for empty texts and NaN, and dates as moments in UTC."""
    column = single(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        column = as_text(column)
    if is_text(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    if column.null_count == len(column) and not pa.types.is_temporal(kind):
        return pa.nulls(len(column))  # a type that compares with anything
    return column.cast(pa.timestamp("us", "UTC")) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else column


def _is_numeric(column: pa.Array) -> bool:
    """Return whether this is a column of text whose values are all numbers."""
    if not is_text(column.type):
        return False
    return bool(as_mask(pc.fill_null(pc.match_substring_regex(column, rf"^{_NUMBER}$"), True)).all())


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _numbers(column: pa.Array, name: str) -> pa.Array:
    """Return texts as numbers, whole ones exactly; DataError for the first one that is not a number."""
    numbers, readable = to_numbers(column)
    wrong = np.flatnonzero(~readable & as_mask(pc.is_valid(column)))
    if len(wrong):
        row = int(wrong[0])
        what = "a number, with which the condition compares it"
        raise DataError(f"where: row {row} (from 0): {column[row].as_py()[:80]!r} in {name!r} is not {what}")
    for whole in (pa.int64(), _INTEGER) if np.all(np.floor(numbers[readable]) == numbers[readable]) else ():
        try:
            return pc.utf8_trim_whitespace(column).cast(whole)
        except pa.ArrowInvalid:  # 1e3 or 1.0, or too large
            continue
    return pa.array(numbers, mask=~readable)
