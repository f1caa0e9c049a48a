"""One Python dictionary a line, as the McAuley lab publishes Steam and BeerAdvocate reviews."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.blocks import BLOCK_BYTES, blocks
from recbole_hyper.data.prepare.values import to_strings

_STRING = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SCALAR = r"""[^'"\[\]{},]+"""
_NUMBER = r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?"


def _pattern(key: str) -> str:
    """A pattern that walks from the start of the line over whole ``key: value`` pairs to the one wanted.

    So the text of a review that itself looks like a dictionary is never taken for one.
    """
    before = rf"(?:{_STRING}: (?:{_STRING}|{_SCALAR}), )*?"
    return rf"""^\s*\{{{before}u?['"]{re.escape(key)}['"]: (?P<value>{_STRING}|{_NUMBER})[,}}]"""


def read_literals(
    stream: BinaryIO,
    malformed: Malformed,
    *,
    keys: Mapping[str, str],
    time_format: str = "unix",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RawChunk]:
    """Yield the dictionaries' values.

    Regular expressions find them at about a microsecond a line; only lines that they do not fit (nested values,
    missing keys) are read by ``ast.literal_eval``, which takes thirty times as long and runs no code.
    """
    patterns = {field: _pattern(key) for field, key in keys.items()}
    for block in blocks(stream, malformed.name, size=block_bytes):
        lines = block.lines()
        numbers = block.numbers(len(lines))
        text, filled = to_strings(lines)
        # bytes that are no UTF-8 leave an empty text; blank lines are no fault
        blank = np.asarray(pc.equal(pc.binary_length(lines), 0).to_numpy(zero_copy_only=False), dtype=bool)
        for row in np.flatnonzero(~filled & ~blank):
            malformed.add(int(numbers[row]), "no UTF-8", lines[int(row)].as_py().decode("utf-8", "backslashreplace"))
        text, numbers = text.filter(pa.array(filled)), numbers[filled]
        columns = {field: pc.extract_regex(text, pattern).field("value") for field, pattern in patterns.items()}
        unfit = ~np.logical_and.reduce(
            [np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool) for column in columns.values()]
        )
        columns = {field: _unquoted(column) for field, column in columns.items()}
        if unfit.any():
            columns, numbers = _evaluated(text, numbers, columns, unfit, keys, malformed)
        yield RawChunk.of(columns, numbers, time_format)


def _unquoted(values: pa.Array) -> pa.Array:
    """Turn string literals into their values; numbers stay as they are."""
    plain = pc.replace_substring_regex(values, r"""(?s)^u?['"](.*)['"]$""", r"\1")
    escaped = np.asarray(pc.fill_null(pc.match_substring(values, "\\"), False).to_numpy(zero_copy_only=False), bool)
    if not escaped.any():
        return plain
    mask = pa.array(escaped)
    return pc.replace_with_mask(plain, mask, pa.array(map(ast.literal_eval, values.filter(mask).to_pylist())))


def _evaluated(
    text: pa.Array,
    numbers: np.ndarray,
    columns: dict[str, pa.Array],
    unfit: np.ndarray,
    keys: Mapping[str, str],
    malformed: Malformed,
) -> tuple[dict[str, pa.Array], np.ndarray]:
    found: dict[str, list[Any]] = {field: [] for field in keys}
    lost = np.zeros(len(text), dtype=bool)
    for row in np.flatnonzero(unfit):
        line = text[int(row)].as_py()
        try:
            value = ast.literal_eval(line)
            if not isinstance(value, dict):
                raise ValueError("not a dictionary")
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            malformed.add(int(numbers[row]), "no dictionary", line)
            if malformed.hopeless:
                malformed.check()
            lost[row] = True
            value = {}
        for field, key in keys.items():
            entry = value.get(key)
            found[field].append(str(entry) if isinstance(entry, str | int | float) else None)
    mask = pa.array(unfit)
    kept = pa.array(~lost)
    columns = {
        field: pc.replace_with_mask(column, mask, pa.array(found[field], pa.string())).filter(kept)
        for field, column in columns.items()
    }
    return columns, numbers[~lost]
