"""From a table of items to RecBole's ``.item`` file; the types of the columns are guessed."""

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.atomic import cleaned
from recbole_hyper.data.tables.formats import matching_names
from recbole_hyper.data.tables.ids import MISSING_IDS, Good, as_mask, as_text, is_list
from recbole_hyper.data.tables.table import read_columns, whole_numbers
from recbole_hyper.data.tables.times import to_numbers, to_seconds
from recbole_hyper.errors import DataError

# the largest share of distinct parts with which a separator counts as one; titles, too, contain commas
SEPARATORS = {"|": 0.7, ";": 0.7, ",": 0.25, " ": 0.0}
_EXACT = 2.0**53
# 1,000 and 19,99 are numbers or pairs; nobody knows
_AMBIGUOUS = r"^[+-]?([0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?|[0-9]+,[0-9]+|[0-9]{1,3}(\.[0-9]{3})+,[0-9]+)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"


@dataclass(frozen=True)
class Items:
    """The columns of a table of items, as text for an atomic file; missing values are empty."""

    source: Path
    ids: list[str]
    columns: dict[str, list[str]]  # by ``name:type``

    @property
    def repeated(self) -> int:
        """The number of rows whose item has an earlier one, which counts."""
        ids = [token for token in self.ids if token]
        return len(ids) - len(set(ids))

    def write(self, tokens: list[str], path: Path) -> int:
        """Write a line for each known one of ``tokens``; return the number of lines."""
        lines = {token: line for line, token in reversed(list(enumerate(self.ids)))}
        rows = [(token, lines[token]) for token in tokens if token in lines]
        if not rows:
            raise DataError(f"--items={self.source}: none of its ids occurs in the interactions")
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(["item_id:token", *self.columns]) + "\n")
            for name, line in rows:
                file.write("\t".join([name, *(values[line] for values in self.columns.values())]) + "\n")
        return len(rows)


def read_items(path: Path, item_column: str | None = None) -> Items:
    """Read a table of items, with types as in docs/data.md; DataError if it is missing or has no column of item ids."""
    if not path.is_file():
        raise DataError(f"--items={path} does not exist; use a table with one line per item")
    table = read_columns(SourceFile(path))
    names = matching_names("item_id", table.column_names, [item_column] if item_column else [])
    if len(names) != 1:
        fault = f"several columns of item ids ({', '.join(names)})" if names else "no column of item ids"
        raise DataError(
            f"--items={path} has {fault}; its columns: {', '.join(table.column_names)}; if the file has no line "
            "with their names, add one"
        )
    columns: dict[str, list[str]] = {}
    for place, name in enumerate(table.column_names):
        if name != names[0]:
            written = re.sub(r"[:\s]+", "_", name) or f"column_{place + 1}"
            declared = (table.schema.field(place).metadata or {}).get(b"type", b"").decode()
            try:
                kind, values = _typed(table.column(place).combine_chunks(), declared)
            except DataError as error:
                raise DataError(f"--items={path}, column {name!r}: {error}") from error
            if any(written == other.rpartition(":")[0] for other in columns) or written == "item_id":
                raise DataError(f"--items={path}: {name!r} and another column become {written!r}; rename one")
            columns[f"{written}:{kind}"] = values
    ids = whole_numbers(as_text(table[names[0]].combine_chunks())).to_pylist()
    items, words = Items(path, [token or "" for token in ids], columns), " ".join(columns).lower()
    if items.repeated and re.search("property|feature|attr|key:", words) and "val" in words:
        raise DataError(
            f"--items={path} has a property of an item in each row ({', '.join(table.column_names)}); make a "
            "table with one row per item and one column per property, for example by pivot of pandas"
        )
    return items


def _typed(values: pa.Array, declared: str = "") -> tuple[str, list[str]]:
    """Return the type of a column, ``declared`` in an atomic file, and its values as text."""
    if is_list(values):
        return _sequence([_flat(entries or ()) for entries in values.to_pylist()])
    if pa.types.is_temporal(values.type):
        return "float", _floats(*to_seconds(values, "iso"))
    texts = pc.utf8_trim_whitespace(pc.fill_null(as_text(values), ""))
    if declared:
        return declared, cleaned(texts.to_pylist(), " ")
    filled = pc.invert(pc.is_in(texts, value_set=pa.array(["", *MISSING_IDS])))
    some = texts.filter(filled)
    if len(some) and not pa.types.is_boolean(values.type):
        numbers, good = to_numbers(some)
        # numbers with leading zeros are codes, and float64 loses digits of large ones
        if (
            good.all()
            and np.abs(numbers).max() < _EXACT
            and not as_mask(pc.match_substring_regex(some, r"^[+-]?0[0-9]")).any()
        ):
            return "float", _floats(*to_numbers(pc.if_else(filled, texts, None)))
        if as_mask(pc.match_substring_regex(some, _DATE)).all() and to_seconds(some, "iso")[1].all():
            return "float", _floats(*to_seconds(pc.if_else(filled, texts, None), "iso"))
    plain = texts.to_pylist()
    with_commas = some.filter(pc.match_substring(some, ","))
    ambiguous = len(with_commas) and as_mask(pc.match_substring_regex(with_commas, _AMBIGUOUS)).all()
    objects = len(some) and as_mask(pc.starts_with(some, "{")).all()  # of JSON
    for separator in () if objects else SEPARATORS:
        if separator == "," and ambiguous:
            continue
        parts = [[part.strip() for part in text.strip("[]").split(separator)] if text else [] for text in plain]
        all_parts = [part for entry in parts for part in entry]
        kind, found = _sequence(parts)
        recur = len(set(all_parts)) <= SEPARATORS[separator] * len(all_parts)
        if len(all_parts) > sum(map(bool, parts)) and (recur or kind == "float_seq"):
            return kind, found
    return "token", cleaned(plain, " ")


def _flat(entries: Any) -> list[Any]:
    """Return the entries of a list, and those of the lists in it, which JSON lines have as text."""
    found = []
    for entry in entries:
        if isinstance(entry, str) and entry.startswith("["):
            with contextlib.suppress(ValueError):
                entry = json.loads(entry)
        found += _flat(entry) if isinstance(entry, list) else [entry]
    return found


def _floats(numbers: npt.NDArray[np.float64], good: Good) -> list[str]:
    """Return numbers as the shortest texts with the same values, and others as empty ones."""
    return pc.fill_null(pa.array(numbers, mask=~good).cast(pa.string()), "").to_pylist()


def _sequence(entries: list[list[Any]]) -> tuple[str, list[str]]:
    lengths = {len(entry) for entry in entries if entry}
    flat = pd.to_numeric(pd.Series([part for entry in entries for part in entry], dtype=object), errors="coerce")
    if flat.dtype != bool and len(lengths) == 1 and np.isfinite(flat.to_numpy(dtype=float)).all():
        return "float_seq", [" ".join(map(str, entry)) for entry in entries]
    parts = [[str(part) for part in entry if part is not None and str(part)] for entry in entries]
    return "token_seq", [" ".join(cleaned(entry, "_")) for entry in parts]
