"""The files that a call of recommend reads: histories, ids, items to leave out, boosts, a catalogue of items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.data import guess
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.columns import is_name
from recbole_hyper.data.formats import Layout
from recbole_hyper.data.ids import text_array
from recbole_hyper.data.tables import Table, open_table, read_columns
from recbole_hyper.data.times import to_numbers
from recbole_hyper.errors import DataError
from recbole_hyper.serving.histories import Histories, Names, of_table


def read_history_file(path: Path, own: Names, layout: Layout | None = None, unit: str | None = None) -> Histories:
    """Return the histories of a file of interactions, of any form that ``prepare`` reads."""
    return of_table(open_table(_file(path), layout, own=own, optional=("timestamp",)), unit)


def read_id_file(path: Path, own: Names, field: str, layout: Layout | None = None) -> npt.NDArray[Any]:
    """Return the ids in a file as text: those of its only column, else of the one of the ``field``.

    The only column of a text has no header, unless its first line is a name of the field. Empty lines are no ids.
    DataError where there is no such column.
    """
    file, format = _file(path), None
    given = layout or Layout()
    lines = [] if _is_parquet(path) else guess.head(file)
    if path.suffix == ".txt" or (lines and not given.columns and _alone(lines)):
        known = bool(lines) and is_name(lines[0].strip().strip('"'), field, own.get(field, ()))
        # no separator that an id may hold
        alone = Layout(columns={field: "1"}, separator="\x1f", header=False, missing_ids=given.missing_ids)
        if not lines:
            return np.zeros(0, dtype=str)
        table = open_table(file, alone, format="csv", fields=(field,), optional=(), own=own)
        texts = _texts(table, field)
        return texts[1:] if known else texts
    table = open_table(file, layout, format=format, fields=(field,), optional=(), own=own, alone=True)
    return _texts(table, field)


def _texts(table: Table, field: str) -> npt.NDArray[Any]:
    found = table.whole()
    texts = found.users if field == "user_id" else found.items
    return text_array(texts)  # type: ignore[arg-type]


def _alone(lines: list[str]) -> bool:
    """Return whether the lines of a text are one value each."""
    return guess.separator_of(lines, default="") == "" and not lines[0].lstrip().startswith(("{", "["))


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _file(path: Path) -> SourceFile:
    if not path.exists():
        raise DataError(f"{path} does not exist")
    return SourceFile(path)


def read_table(path: Path) -> pa.Table:
    """Return all columns of a table; those of a text file are text."""
    return read_columns(_file(path))


def read_exclusions(path: Path, own: Names, layout: Layout | None = None) -> Any:
    """Return the items to leave out: a mapping by user where the file has a column of users, else ids for everyone."""
    file = _file(path)
    if path.suffix == ".txt" or (not _is_parquet(path) and _alone(guess.head(file))):
        return read_id_file(path, own, "item_id", layout)
    table = open_table(file, layout, fields=("user_id", "item_id"), optional=("user_id", "item_id"), own=own)
    if set(table.columns) != {"user_id", "item_id"}:
        return read_id_file(path, own, "item_id", layout)
    found = table.whole()
    assert found.users is not None
    assert found.items is not None
    excluded: dict[str, list[str]] = {}
    for user, item in zip(found.users.to_pylist(), found.items.to_pylist(), strict=True):
        excluded.setdefault(user, []).append(item)
    return excluded


def read_boosts(path: Path, own: Names) -> dict[str, float]:
    """Return {item id: number} from a table with a column ``boost``; ValueError where there is none."""
    table = open_table(_file(path), fields=("item_id",), optional=(), own=own, others=("boost",))
    items, numbers = table.whole(), [np.zeros(0)]
    for block in items.others["boost"].chunks:
        values, good = to_numbers(block)
        if not good.all():
            value = block[int(np.flatnonzero(~good)[0])].as_py()
            raise DataError(f"{path}: the column boost holds {value!r}, no number")
        numbers.append(values)
    assert items.items is not None
    return dict(zip(items.items.to_pylist(), np.concatenate(numbers).tolist(), strict=True))
