"""A table of items to RecBole's ``.item`` file: the type of each column guessed, the ids those of the interactions."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.formats import matching_names
from recbole_hyper.data.ids import as_text, is_list, is_text
from recbole_hyper.data.tables import read_columns
from recbole_hyper.data.times import to_numbers, to_seconds
from recbole_hyper.errors import DataError

# which share of the parts between may be different: there are commas in titles, too
_SEPARATORS = {"|": 0.7, ";": 0.7, ",": 0.25, " ": 0.0}
_UNWRITABLE = '["\\s]+'  # what would end a value, or RecBole would take for a quotation


@dataclass(frozen=True)
class Items:
    """The columns of a table of items, as an atomic file has them: the text of each value, empty where missing."""

    source: Path
    ids: list[str]
    columns: dict[str, list[str]]  # by ``name:type``

    def write(self, tokens: list[str], written: list[str], path: Path) -> int:
        """Write a line for each of ``tokens``, by its ``written`` id; return how many, DataError for none."""
        lines = {token: line for line, token in reversed(list(enumerate(self.ids)))}
        rows = [(name, lines[token]) for token, name in zip(tokens, written, strict=True) if token in lines]
        if not rows:
            raise DataError(f"--items={self.source}: none of its ids is an item of the interactions")
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(["item_id:token", *self.columns]) + "\n")
            for name, line in rows:
                file.write("\t".join([name, *(values[line] for values in self.columns.values())]) + "\n")
        return len(rows)


def read_items(path: Path, item_column: str | None = None) -> Items:
    """Read a table of items of any form; DataError for none, or one without a column of item ids.

    Numbers and dates (Unix seconds) are float. Lists, and text that ``|``, ``;`` or ``,`` split into parts that recur,
    are token_seq, or float_seq where all have equally many numbers, also with blanks between. Others are token.
    """
    if not path.is_file():
        raise DataError(f"--items={path} does not exist; give a table with a line per item")
    table = read_columns(SourceFile(path))
    names = matching_names("item_id", table.column_names, [item_column] if item_column else [])
    if len(names) != 1:
        which = f"several columns of item ids ({', '.join(names)})" if names else "no column of item ids"
        raise DataError(f"--items={path} has {which}; its columns: {', '.join(table.column_names)}")
    columns = {}
    for name in table.column_names:
        if name != names[0]:
            kind, values = _typed(table[name].combine_chunks())
            columns[re.sub(r"[:\s]+", "_", name) + f":{kind}"] = values
    ids = as_text(table[names[0]].combine_chunks()).to_pylist()
    return Items(path, [token or "" for token in ids], columns)


def _typed(values: pa.Array) -> tuple[str, list[str]]:
    """Return the type of a column, and its values as an atomic file has them."""
    if is_list(values):
        return _sequence([list(entries or ()) for entries in values.to_pylist()])
    if pa.types.is_temporal(values.type):
        numbers, good = to_seconds(values, "iso")
        return "float", _numbers(np.where(good, numbers, np.nan))
    given = as_text(values)
    blank = pc.equal(pc.fill_null(pc.utf8_trim_whitespace(given), ""), "")
    if not pa.types.is_boolean(values.type):
        numbers, good = to_numbers(values)
        if good.any() and (good | np.asarray(blank)).all():
            return "float", _numbers(np.where(good, numbers, np.nan))
    texts = ["" if text is None else text for text in given.to_pylist()]
    for separator in _SEPARATORS if is_text(given.type) else ():
        parts = [[part.strip() for part in text.strip("[]").split(separator)] if text else [] for text in texts]
        every = [part for entry in parts for part in entry]
        kind, values = _sequence(parts)
        recurs = len(set(every)) <= _SEPARATORS[separator] * len(every)
        if len(every) > sum(map(bool, parts)) and (recurs or kind == "float_seq"):
            return kind, values
    return "token", _cleaned(texts, " ")


def _sequence(entries: list[list[Any]]) -> tuple[str, list[str]]:
    lengths = {len(entry) for entry in entries if entry}
    flat = pd.to_numeric(pd.Series([part for entry in entries for part in entry], dtype=object), errors="coerce")
    if len(lengths) == 1 and np.isfinite(flat.to_numpy(dtype=float)).all():
        return "float_seq", [" ".join(map(str, entry)) for entry in entries]
    parts = [[str(part) for part in entry if part is not None and str(part)] for entry in entries]
    return "token_seq", [" ".join(_cleaned(entry, "_")) for entry in parts]


def _numbers(values: Any) -> list[str]:
    return ["" if value != value else f"{value:.17g}" for value in values.tolist()]


def _cleaned(texts: list[str], mark: str) -> list[str]:
    return [re.sub(_UNWRITABLE, mark, text.strip()).strip(mark) for text in texts]
