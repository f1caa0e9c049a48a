"""Reads RecBole's atomic files, such as ``.inter``, ``.user`` and ``.item``, without changing any value.

The first line names the columns as ``name:type``, and lines end with LF or CRLF. There are no quotes, escapes or
comments. An id may be any text, also ``NA``, ``null`` or ``"``. Blank lines are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
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
from recbole_hyper.data.tables.ids import PAD, Good, as_mask, as_text, id_fault, single
from recbole_hyper.data.tables.malformed import Refused, mapped
from recbole_hyper.data.tables.parsers import Rows, parsed, pieces
from recbole_hyper.data.tables.times import to_numbers
from recbole_hyper.errors import DataError

# pandas, and so RecBole, reads these as missing values; in features they are missing here too, in ids they are not
MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
CARD = "SOURCE.json"  # written by ``prepare`` beside the files
_UNWRITABLE = '["\\s]+'  # would end a value, or start a quotation in RecBole


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
    lenient: bool = False,
) -> pd.DataFrame:
    """Read ``columns`` (name to type) of an atomic file, one row per line that is not blank.

    Tokens are text, floats are float64 (NaN if missing), sequences are one array per row. The index is the line number
    minus 2. The token columns ``ids`` may have any text that is not empty; in other columns, empty values and pandas'
    words for missing ones are missing. DataError, with the line, for invalid values, and for a line with more or fewer
    values than the header; if ``lenient``, pandas cuts or fills it, as for RecBole, and an empty id is missing.
    """
    form = replace(opened(path, separator, encoding), columns={name: name for name in columns})
    if lenient:
        given: dict[str, Any] = {"sep": separator, "encoding": form.encoding, "names": form.names, "header": 0}
        given |= {"dtype": str, "na_filter": False, "quoting": csv.QUOTE_NONE, "index_col": False}
        texts = pd.read_csv(path, usecols=[*columns], **given)
        rows = [Rows({name: pa.array(texts[name].fillna("")) for name in columns}, np.arange(2, len(texts) + 2))]
    else:
        rows = list(mapped(lambda piece: parsed(piece, form, Refused(str(path))), pieces(SourceFile(path), form)))
    lines = np.concatenate([np.zeros(0, np.int64), *(piece.lines for piece in rows)])
    result: dict[str, Any] = {}
    for name, kind in columns.items():
        values = pa.chunked_array([as_text(piece.columns[name]) for piece in rows], pa.string())
        column = Column(path, name, single(values), lines)
        if kind == "float":
            result[name] = column.numbers()
        elif kind == "token":
            strict = name in ids and not lenient
            result[name] = (column.ids() if strict else column.texts([""] if name in ids else MISSING)).to_pandas()
        else:
            result[name] = pd.Series(column.sequences(seq_separator, kind == "float_seq"), dtype=object)
    return pd.DataFrame(result).set_axis(pd.Index(lines - 2))


@dataclass(frozen=True)
class Column:
    """The values of one column as text (null if not UTF-8), and the line of each value."""

    path: Path
    name: str
    values: pa.Array
    lines: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self.refuse(as_mask(pc.is_null(self.values)), "not UTF-8; give the file's --encoding")
        self.refuse(as_mask(pc.match_substring(self.values, "\0")), "a text with a NUL character")

    def ids(self) -> pa.Array:
        """Return the values; DataError for "" and for RecBole's name for padding."""
        for word in ("", PAD):
            self.refuse(as_mask(pc.equal(self.values, word)), id_fault(word))
        return self.values

    def texts(self, words: Collection[str] = MISSING) -> pa.Array:
        """Return the values, null for the ``words`` of a missing one."""
        missing = pc.is_in(self.values, value_set=pa.array(sorted(words)))
        return pc.if_else(missing, pa.scalar(None, pa.string()), self.values)

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return float64 numbers, NaN if missing."""
        missing = as_mask(pc.is_in(pc.utf8_trim_whitespace(self.values), value_set=pa.array(sorted(MISSING))))
        numbers, good = to_numbers(self.values)
        self.refuse(~good & ~missing, "not a finite number (for dates see 'recbole-hyper prepare' --time_format)")
        return np.where(good, numbers, np.nan)

    def sequences(self, separator: str, numbers: bool) -> list[npt.NDArray[Any]]:
        """Return the parts of every value, as text or as finite numbers; a missing value has no parts."""
        cells = ["" if cell in MISSING else cell for cell in self.values.to_pylist()]
        parts = [[part for part in cell.split(separator) if part] for cell in cells]
        if not numbers:
            return [np.array(words) for words in parts]
        read, good = to_numbers(pa.array([*chain(*parts)], pa.string()))
        ends = np.cumsum([0, *map(len, parts)])
        wrong = np.array([not good[start:stop].all() for start, stop in pairwise(ends)], dtype=bool)
        self.refuse(wrong, f"not a sequence of finite numbers with {separator!r} between")
        return [read[start:stop] for start, stop in pairwise(ends)]

    def refuse(self, wrong: Good, what: str) -> None:
        """Raise DataError for the first of the rows that are ``wrong``, if any."""
        if not wrong.any():
            return
        row, count = int(np.argmax(wrong)), int(wrong.sum())
        more = f"; {count} lines have this error" if count > 1 else ""
        value = (self.values[row].as_py() or "")[:120]
        raise DataError(f"{self.path}, line {self.lines[row]}: {value!r} in {self.name!r} is {what}{more}")


def cleaned(texts: Iterable[Any], mark: str) -> list[str]:
    """Return texts with ``mark`` for blanks and quotes, which would end a value in an atomic file."""
    return [re.sub(_UNWRITABLE, mark, str(text).strip()).strip(mark) for text in texts]
