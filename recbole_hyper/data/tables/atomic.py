"""Reads RecBole's atomic files, such as ``.inter``, ``.user`` and ``.item``, without changing any value.

The first line names the columns as ``name:type``, and lines end with LF or CRLF. There are no quotes, escapes or
comments. An id may be any text, also ``NA``, ``null`` or ``"``. Blank lines are skipped.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import guess
from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Format, Layout, find
from recbole_hyper.data.tables.ids import PAD, Good, as_mask, as_text, id_fault
from recbole_hyper.data.tables.malformed import Refused, mapped
from recbole_hyper.data.tables.parsers import parsed, pieces
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

# pandas, and so RecBole, reads these as missing values; in features they are missing here too, in ids they are not
MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
CARD = "SOURCE.json"  # written by ``prepare`` beside the files
_UNWRITABLE = '["\\s]+'  # would end a value, or start a quotation in RecBole
_SHOWN = 120  # characters of a value that an error shows


def nothing_in(path: Path) -> DataError:
    """Return the error for a file without interactions."""
    return DataError(f"{path} has no interactions, only a header; prepare the data set again")


def opened(path: Path, separator: str = "\t", encoding: str | None = None) -> Format:
    """Return the format of an atomic file, with the names and types of its columns; DataError for another header."""
    return guess.named(SourceFile(path), find("atomic").set(Layout(separator=separator, encoding=encoding), "atomic"))


def typed_header(path: Path, separator: str = "\t", encoding: str | None = None) -> dict[str, str]:
    """Return name and type of all columns; DataError for an entry that is not name:type."""
    form = opened(path, separator, encoding)
    return dict(zip(form.names, form.types, strict=True))


def read_atomic(
    path: Path,
    columns: Mapping[str, str],
    *,
    ids: Collection[str] = (),
    separator: str = "\t",
    seq_separator: str = " ",
    encoding: str | None = None,
) -> pd.DataFrame:
    """Read ``columns`` (name to type) of an atomic file, one row per line that is not blank.

    Tokens are text, floats are float64 (NaN if missing), sequences are one array per row. The index is the line number
    minus 2. The token columns ``ids`` may have any text that is not empty; in other columns, empty values and pandas'
    words for missing ones are missing. DataError, with the line, for invalid values.
    """
    form = replace(opened(path, separator, encoding), columns={name: name for name in columns})
    refused = Refused(str(path))
    rows = list(mapped(lambda piece: parsed(piece, form, refused), pieces(SourceFile(path), form)))
    lines = np.concatenate([np.zeros(0, np.int64), *(piece.lines for piece in rows)])
    result: dict[str, Any] = {}
    for name, kind in columns.items():
        values = pa.chunked_array([as_text(piece.columns[name]) for piece in rows], pa.string())
        column = Column(path, name, values, lines)
        if kind == "float":
            result[name] = column.numbers()
        elif kind == "token":
            result[name] = (column.ids() if name in ids else column.texts()).to_pandas()
        else:
            result[name] = pd.Series(column.sequences(seq_separator, kind == "float_seq"), dtype=object)
    return pd.DataFrame(result).set_axis(pd.Index(lines - 2))


@dataclass(frozen=True)
class Column:
    """The values of one column as text (null if not UTF-8), and the line of each value."""

    path: Path
    name: str
    values: pa.ChunkedArray
    lines: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self.refuse(as_mask(pc.is_null(self.values)), "not UTF-8; give the file's --encoding")
        self.refuse(as_mask(pc.match_substring(self.values, "\0")), "a text with a NUL character")

    def ids(self) -> pa.ChunkedArray:
        """Return the values; DataError for "" and for RecBole's name for padding."""
        for word in ("", PAD):
            self.refuse(as_mask(pc.equal(self.values, word)), id_fault(word))
        return self.values

    def texts(self) -> pa.ChunkedArray:
        """Return the values, null if missing."""
        missing = pc.is_in(self.values, value_set=pa.array(sorted(MISSING)))
        return pc.if_else(missing, pa.scalar(None, pa.string()), self.values)

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return float64 numbers, NaN if missing."""
        try:
            numbers = self.values.cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:  # such as '+1', ' 1' and '': by Python's rules, each distinct text once
            encoded = pc.dictionary_encode(self.values).combine_chunks()
            known, codes = [_number(text) for text in encoded.dictionary.to_pylist()], np.asarray(encoded.indices)
            wrong = np.array([number is None for number in known], dtype=bool)[codes]
            self.refuse(wrong, "not a number (for dates see 'recbole-hyper prepare' --format=csv --time_format)")
            numbers = np.array(known, dtype=np.float64)[codes]
        self.refuse(np.isinf(numbers), "not a finite number")
        return np.asarray(numbers, dtype=np.float64)

    def sequences(self, separator: str, numbers: bool) -> list[npt.NDArray[Any]]:
        """Return the parts of every value, as text or as finite numbers; a missing value has no parts."""
        cells = ["" if cell in MISSING else cell for cell in self.values.to_pylist()]
        parts = [[part for part in cell.split(separator) if part] for cell in cells]
        if not numbers:
            return [np.array(words) for words in parts]
        read = [[_number(part) for part in words] for words in parts]
        wrong = np.array([any(part is None or not np.isfinite(part) for part in row) for row in read], dtype=bool)
        self.refuse(wrong, f"not a sequence of finite numbers with {separator!r} between")
        return [np.array(row, dtype=np.float64) for row in read]

    def refuse(self, wrong: Good, what: str) -> None:
        """Raise DataError for the first of the rows that are ``wrong``, if any."""
        if not wrong.any():
            return
        row, count = int(np.argmax(wrong)), int(wrong.sum())
        more = f"; {count} lines have this error" if count > 1 else ""
        value = (self.values[row].as_py() or "")[:_SHOWN]
        raise DataError(f"{self.path}, line {self.lines[row]}: {value!r} in {self.name!r} is {what}{more}")


def _number(text: str) -> float | None:
    if text.strip() in MISSING:
        return float("nan")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def cleaned(texts: Iterable[Any], mark: str) -> list[str]:
    """Return texts with ``mark`` for blanks and quotes, which would end a value in an atomic file."""
    return [re.sub(_UNWRITABLE, mark, str(text).strip()).strip(mark) for text in texts]
