"""Conditions on the columns of a table, in SQL: ``event = 'view' and price > 0``; see docs/data.md.

duckdb evaluates one expression over columns with the types that the condition needs. After a sign, text in double
quotes is a text; elsewhere it is a name. A quoted number is a number beside a column whose texts are all numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data import engine
from recbole_hyper.data.ids import as_mask, as_text, is_list, is_text, relisted, single
from recbole_hyper.data.times import to_numbers, to_seconds
from recbole_hyper.errors import DataError, did_you_mean

Node = dict[str, Any]

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[^\W\d]\w*|[0-9.]+[eE]?\w*|\s+|.""", re.DOTALL)
# all other words are names, also those that SQL reserves, such as "at", "user" or "order"
_KEYWORDS = re.compile(
    "and|or|not|in|is|null|true|false|between|i?like|similar|to|escape|glob|case|when|then|else|end|(try_)?cast|as|"
    "distinct|from|collate|isnull|notnull|interval|date|timestamp|time"
)
_AFTER_SIGN = re.compile(r"(?:[=<>]|\bin\s*\((?:[^()]*,)?)\s*$", re.IGNORECASE)
_TYPES = ("date", "interval", "time", "timestamp")
_REFUSED = {"SUBQUERY": "a subquery", "PARAMETER": "a parameter", "WINDOW": "a window", "STAR": "*"}
_COMPARED = ("COMPARISON", "BETWEEN")
_ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
_PLAIN_NUMBER = r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"  # with leading zeros it is a name
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?"
_MOST_DIGITS = 38
_INTEGER = pa.decimal128(_MOST_DIGITS, 0)
# the entry of a list meets a comparison, or a list is empty; `_0` and `_1` are replaced
_ANY_ENTRY = "len(list_filter(_0, lambda _1: _2)) > 0"
_EMPTY = "coalesce(len(_0), 0) = 0"


@dataclass(frozen=True)
class Where:
    """A parsed condition; see :func:`parse_where`."""

    text: str
    columns: tuple[str, ...]  # the distinct columns of the condition, in order
    _tree: Node
    _literals: Mapping[str, frozenset[str]]  # the kinds of what each column is compared with
    _pairs: tuple[tuple[str, ...], ...]  # columns that are compared with each other
    _numeric: frozenset[str] | None = None  # the columns of text that are numbers; None: judged by each table
    _sql: dict[tuple[str, ...], str] = field(default_factory=dict, compare=False)

    def mask(self, table: Any) -> npt.NDArray[np.bool_]:
        """Return (n,) True for the rows of ``table`` that meet the condition.

        ``table`` is an Arrow table, a record batch or a mapping from names to Arrow arrays; only :attr:`columns` are
        read. DataError for a missing column, or, with its row from 0, a value that cannot be compared.
        """
        if self._numeric is None:
            return self.settled(table).mask(table)
        arrays = [self._typed(name, self._column(table, name)) for name in self.columns]
        types = {name: array.type for name, array in zip(self.columns, arrays, strict=True)}
        key = tuple(map(str, types.values()))
        try:
            if key not in self._sql:
                self._sql[key] = f"{engine.sql_of(self._bound(self._tree, types))} FROM rows"
            found = engine.query(self._sql[key], {f"c{place}": array for place, array in enumerate(arrays)})
        except engine.Error as error:
            raise DataError(f"where {_short(self.text)!r}: {error}") from error
        if found.num_rows != len(arrays[0]) or not pa.types.is_boolean(found.column(0).type):
            raise DataError(f"where {self.text!r}: the condition is not true or false for each row")
        return as_mask(single(found.column(0)))

    def settled(self, table: Any) -> Where:
        """Return the condition with the types of columns of text as in ``table``, for tables that are read in parts."""
        columns = {name: _flat(self._column(table, name)) for name in self.columns}
        needed = {name for name in columns if "number" in self._literals.get(name, ())}
        judged = [name for name in columns if self._literals.get(name, {"text"}) <= {"quoted number", "column"}]
        numeric = needed | {name for name in judged if _numeric(columns[name])}
        for pair in self._pairs:  # texts that are compared with other texts stay texts
            if any(name not in numeric and is_text(columns[name].type) for name in pair):
                numeric -= {*pair} - needed
        return replace(self, _numeric=frozenset(numeric), _sql={})

    def _column(self, table: Any, name: str) -> Any:
        names = list(table.schema.names) if hasattr(table, "schema") else list(table)
        if names.count(name) > 1:
            raise DataError(f"where {self.text!r}: {names.count(name)} columns are named {name!r}; rename one")
        if name not in names:
            hint = f"{did_you_mean(name, names)} (write a text in single quotes); columns: {', '.join(names)}"
            raise DataError(f"where {self.text!r}: the table has no column {name!r}{hint}")
        return table[name]

    def _typed(self, name: str, column: Any) -> pa.Array:
        """Return a column with the type that its comparisons need, and null for missing values."""
        column, literals = _flat(column), self._literals.get(name, frozenset())
        if is_list(column):
            return relisted(column, self._typed(name, pc.list_flatten(column)))
        kind = column.type
        if is_text(kind) and "boolean" in literals:
            lower = pc.utf8_lower(column)
            true, false = (pc.is_in(lower, value_set=pa.array(texts)) for texts in (("true", "1"), ("false", "0")))
            _require(pc.or_(true, false), column, name, "true, false, 1 or 0")
            return pc.if_else(pc.is_valid(column), true, pa.scalar(None, pa.bool_()))
        if "date" in literals and (_is_number(kind) or (_numeric(column) and column.null_count < len(column))):
            raise DataError(
                f"where {self.text!r}: {name!r} has numbers, but the condition compares it with a date; write a number "
                "(for times see --since and --until)"
            )
        if is_text(kind) and name in (self._numeric or ()):
            return _numbers(column, name)
        if _is_number(kind) and "text" in literals and "number" not in literals:
            return as_text(column)
        for wrong, fits in (("boolean", is_text(kind) or pa.types.is_boolean(kind)),
                            ("number", _is_number(kind) or pa.types.is_boolean(kind))):  # fmt: skip
            if wrong in literals and not fits:
                what = "true or false" if wrong == "boolean" else "the number of the condition"
                raise DataError(f"where {self.text!r}: {name!r} is of type {kind}, which does not compare with {what}")
        return column

    def _bound(self, node: Any, types: Mapping[str, pa.DataType]) -> Any:
        """Return a syntax tree over the columns c0, c1, ... with ``types`` by their names."""
        if isinstance(node, list):
            return [self._bound(one, types) for one in node]
        if not isinstance(node, dict):
            return node
        if node.get("class") == "COLUMN_REF":
            return _column(f"c{self.columns.index(_name(node))}")
        columns = [part for part in _parts(node) if part["class"] == "COLUMN_REF"] if "class" in node else []
        if not columns:
            return {key: self._bound(value, types) for key, value in node.items()}
        kind, compares = types[_name(columns[0])], node["class"] in _COMPARED or node["type"] == "COMPARE_IN"
        if pa.types.is_large_list(kind):
            column = self._bound(columns[0], types)
            if node["type"] in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
                empty = _template(_EMPTY, _0=column)
                return empty if node["type"] == "OPERATOR_IS_NULL" else _not(empty)
            if node["type"] == "COMPARE_NOTEQUAL":
                return _not(self._bound({**node, "type": "COMPARE_EQUAL"}, types))
            if compares:
                entry = self._with_literals(node, _name(columns[0]), kind.value_type)
                entry = _replaced(entry, lambda part: _column("_1") if part.get("class") == "COLUMN_REF" else None)
                return _template(_ANY_ENTRY, _0=column, _2=entry)
        node = self._with_literals(node, _name(columns[0]), kind) if compares else node
        return {key: self._bound(value, types) for key, value in node.items()}

    def _with_literals(self, node: Node, name: str, kind: pa.DataType) -> Node:
        """Return a comparison of a column with its texts as numbers or moments if the column has such values."""

        def converted(part: Node) -> Node | None:
            if part.get("class") != "CONSTANT" or part["literal"]["kind"] != "STRING":
                return None
            value = part["literal"]["text"]
            if _is_number(kind):
                if not re.fullmatch(rf"\s*{_PLAIN_NUMBER}\s*", value):
                    raise DataError(f"where {self.text!r}: {name!r} has numbers, but {value!r} is not a number")
                return {**part, "literal": {"kind": "NUMERIC", "text": value.strip()}}
            if not pa.types.is_temporal(kind):
                return None
            moment, good = to_seconds(pa.array([value]), "iso")
            if not good[0]:
                what = f"is of type {kind}, but {value!r} is not a date such as '2019-01-31'"
                raise DataError(f"where {self.text!r}: {name!r} {what}")
            iso = str(np.datetime64(round(float(moment[0]) * 1e6), "us")) + ("Z" if kind.tz else "")
            return {**part, "literal": {"kind": "STRING", "text": iso}}

        return _replaced(node, converted)


@functools.lru_cache(256)  # a server gets the same conditions again and again
def parse_where(text: str) -> Where:
    """Parse a condition; DataError, which shows what is wrong, for anything but one expression of SQL."""
    sql = f"SELECT (\n{_as_sql(text)}\n)"
    tree = engine.syntax_tree(sql)
    if tree["error"]:
        at_end = int(tree.get("position", 0)) >= len(sql) - 1
        got = re.search('near "(.*)"$', _first_line(tree["error_message"]), re.DOTALL)
        shown = "the end" if at_end else got[1].strip('"') if got else None
        _refuse(text, _first_line(tree["error_message"]) if shown is None else f"got {shown!r}")
    node = tree["statements"][0]["node"]
    several = len(tree["statements"]) > 1 or len(node["select_list"]) > 1 or "where_clause" in node
    if several or node["from_table"] != {"type": "EMPTY"}:
        _refuse(text, "it is more than one expression")
    root = node["select_list"][0]
    if root["class"] in ("COLUMN_REF", "CONSTANT"):
        _refuse(text, f"expected a comparison with a value, got {text.strip()!r}")
    columns: dict[str, None] = {}
    literals: dict[str, set[str]] = {}
    pairs: list[tuple[str, ...]] = []
    for one in _nodes(root):
        if one["class"] in _REFUSED:
            _refuse(text, f"{_REFUSED[one['class']]} is not allowed")
        digits = re.fullmatch(r"\s*[+-]?([0-9.]+)\s*", str(one.get("literal", {}).get("text", "")))
        if digits and len(digits[1]) > _MOST_DIGITS:
            _refuse(text, f"a number of {len(digits[1])} digits, but at most {_MOST_DIGITS} are read")
        if one.get("function_name") == "row":
            _refuse(text, f"got {text.strip() or 'the end'!r}, a list of values that is empty, or replaces one value")
        if one["class"] == "COLUMN_REF":
            columns[_name(one)] = None
        is_sum = one.get("function_name") in _ARITHMETIC
        if one["class"] in _COMPARED or one["type"] == "COMPARE_IN" or is_sum:
            parts = _parts(one)
            names = tuple(_name(part) for part in parts if part["class"] == "COLUMN_REF")
            kinds = {"number"} if is_sum else {"column"} if len(names) > 1 else set()
            kinds |= {_kind(part, text) for part in parts if part["class"] == "CONSTANT"}
            for name in names:
                literals.setdefault(name, set()).update(kinds)
            if kinds == {"column"}:
                pairs.append(names)
    if not columns:
        _refuse(text, f"got {text.strip()!r}, which names no column")
    return Where(text, tuple(columns), tree, {name: frozenset(kinds) for name, kinds in literals.items()}, tuple(pairs))


def _as_sql(text: str) -> str:
    """Return the condition with all names in double quotes, and all texts in single quotes."""
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        before, after = "".join(tokens[max(0, place - 12) : place]), "".join(tokens[place + 1 : place + 3]).lstrip()[:1]
        if token[0] == "`" and len(token) > 2:
            tokens[place] = _identifier(token[1:-1])
        elif token[0] == '"' and len(token) > 1 and _AFTER_SIGN.search(before):
            tokens[place] = "'" + token[1:-1].replace('""', '"').replace("'", "''") + "'"
        elif token[0].isalpha() or token[0] == "_":
            typed = before.rstrip().endswith("::") or before.rstrip().lower().endswith((" as", ")as"))
            keyword = _KEYWORDS.fullmatch(token.lower()) and not (token.lower() in _TYPES and after != "'")
            if not (keyword or typed or after == "("):
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


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]


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


def _parts(node: Node) -> list[Node]:
    """Return the operands of an expression."""
    named = [node[key] for key in ("left", "right", "input", "lower", "upper") if key in node]
    return [*named, *node.get("children", ()), *(one["expression"] for one in node.get("arguments", ()))]


def _kind(node: Node, text: str) -> str:
    """Return what a constant is compared as; DataError for null and an empty text, which equal nothing."""
    literal = node["literal"]
    if literal["kind"] == "NULL_LITERAL" or (literal["kind"] == "STRING" and not literal.get("text")):
        _refuse(text, "a missing value equals nothing; write COLUMN is null")
    if literal["kind"] == "STRING":
        kinds = {_PLAIN_NUMBER: "quoted number", _DATE: "date"}
        return next((kind for pattern, kind in kinds.items() if re.fullmatch(pattern, literal["text"])), "text")
    return {"BOOLEAN": "boolean", "INTEGER": "number", "NUMERIC": "number"}.get(literal["kind"], "text")


def _name(node: Node) -> str:
    return ".".join(node["column_names"])


def _column(name: str) -> Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [name]}


def _not(node: Node) -> Node:
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": [node]}


def _template(sql: str, **parts: Node) -> Node:
    """Return the syntax tree of ``sql`` with the columns named by ``parts`` replaced."""
    tree = engine.syntax_tree(f"SELECT {sql}")["statements"][0]["node"]["select_list"][0]
    return _replaced(tree, lambda one: parts.get(_name(one)) if one.get("class") == "COLUMN_REF" else None)


def _replaced(node: Any, change: Any) -> Any:
    if isinstance(node, list):
        return [_replaced(one, change) for one in node]
    if not isinstance(node, dict):
        return node
    changed = change(node)
    return {key: _replaced(value, change) for key, value in node.items()} if changed is None else changed


def _flat(column: Any) -> pa.Array:
    """Return a column as one decoded array, with null for empty texts and NaN, and dates as moments."""
    column = single(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        column = as_text(column)
    if is_text(column.type):
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    return column.cast(pa.timestamp("us")) if pa.types.is_date(kind) else column


def _numeric(column: pa.Array) -> bool:
    """Return whether this is a column of text whose values are all numbers without leading zeros."""
    column = pc.list_flatten(column) if is_list(column) else column
    if not is_text(column.type):
        return False
    return bool(as_mask(pc.fill_null(pc.match_substring_regex(column, rf"^\s*{_PLAIN_NUMBER}\s*$"), True)).all())


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _numbers(column: pa.Array, name: str) -> pa.Array:
    """Return texts as numbers, whole ones exactly; DataError for the first one that is not a number."""
    numbers, readable = to_numbers(column)
    _require(pa.array(readable), column, name, "a number, with which the condition compares it")
    if np.all(np.floor(numbers[readable]) == numbers[readable]):
        for whole in (pa.int64(), _INTEGER):
            try:
                return pc.utf8_trim_whitespace(column).cast(whole)
            except pa.ArrowInvalid:  # 1e3 or 1.0, or too large
                continue
    return pa.array(numbers, mask=~readable)


def _require(good: pa.Array, column: pa.Array, name: str, what: str) -> None:
    """Raise DataError for the first value that is neither missing nor ``good``."""
    row = pc.index(pc.and_not(pc.is_valid(column), pc.fill_null(good, False)), True).as_py()
    if row >= 0:
        raise DataError(f"where: row {row} (from 0): {column[row].as_py()[:80]!r} in {name!r} is not {what}")
