"""The interactions of a table with ids as codes, and their writer to an atomic file."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.filters import by_user_and_time
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.ids import numbered
from recbole_hyper.data.tables.malformed import Refused, mapped
from recbole_hyper.data.tables.parsers import Frame, Rows
from recbole_hyper.data.tables.table import open_table
from recbole_hyper.errors import DataError

ROWS = 1 << 16


@dataclass
class Interactions:
    """Columns of equal length; users and items are codes into their token arrays."""

    users: npt.NDArray[np.int32]  # (n,) codes, numbered by first appearance in the source
    items: npt.NDArray[np.int32]  # (n,) codes, numbered in the same way
    times: npt.NDArray[np.float64]  # (n,) Unix seconds, or positions if the source has no times
    ratings: npt.NDArray[np.float32] | None  # (n,) None if the source has no ratings
    user_tokens: pa.Array  # the source's user ids, by code; may include users without rows
    item_tokens: pa.Array  # the source's item ids, by code

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[Any]) -> None:
        """Put the rows in this order, or keep those where a mask is True; a mask that keeps all copies nothing."""
        if rows.dtype == bool and rows.all():
            return
        for name in ("users", "items", "times", "ratings"):  # one after the other, to free its memory
            if (column := getattr(self, name)) is not None:
                setattr(self, name, column[rows])

    def copies(self) -> npt.NDArray[np.bool_]:
        """Return which rows equal an earlier one in user, item, time and rating."""
        columns = {"user": self.users, "item": self.items, "time": self.times, "rating": self.ratings}
        named = {name: column for name, column in columns.items() if column is not None}
        return pd.DataFrame(named, copy=False).duplicated().to_numpy()

    def cut(self, gap: float) -> None:
        """Split users into sessions more than ``gap`` seconds apart, named ``a#2``; the rows must be sorted."""
        begins = np.ones(len(self), dtype=bool)
        begins[1:] = (self.users[1:] != self.users[:-1]) | (np.diff(self.times) > gap)
        owners = self.users[begins]
        numbers = pa.array(pd.Series(owners).groupby(owners).cumcount() + 1).cast(pa.string())
        names = self.user_tokens.take(pa.array(owners)).cast(pa.string())
        self.user_tokens = pc.binary_join_element_wise(names, numbers, "#")
        self.users = (np.cumsum(begins) - 1).astype(np.int32)

    def number_rows(self) -> None:
        """Set each time to the row's position among the rows of its user, from 1."""
        self.times = np.asarray(pd.Series(self.users).groupby(self.users).cumcount() + 1, dtype=np.float64)

    def sort(self) -> None:
        """Sort the rows by user and time; ties keep the order of the source."""
        if len(self) >= 2**31:
            raise DataError(f"{len(self):,} interactions are too many; at most {2**31 - 1:,} fit")
        self.take(by_user_and_time(self.users, self.times))


def joined(blocks: Iterable[Rows]) -> Interactions:
    """Join all blocks and number their ids; without times, a row's time is its number, from 1."""
    users, items = [], []
    before, times, ratings = 0, [np.zeros(0)], []
    for block in blocks:
        users.append(block.columns["user_id"].cast(pa.large_string()).dictionary_encode())
        items.append(block.columns["item_id"].cast(pa.large_string()).dictionary_encode())
        after = before + len(block.lines)
        timed = "timestamp" in block.columns
        times.append(block.columns["timestamp"] if timed else np.arange(before + 1.0, after + 1.0))
        before = after
        if "rating" in block.columns:
            ratings.append(block.columns["rating"])
    user_codes, user_tokens = numbered(users)
    item_codes, item_tokens = numbered(items)
    rated = np.concatenate(ratings) if ratings else None
    ratings.clear()
    return Interactions(user_codes, item_codes, np.concatenate(times), rated, user_tokens, item_tokens)


def rows_of_file(path: Path, fields: Mapping[str, str], separator: str, encoding: str | None) -> Iterator[Rows]:
    """Yield the rows of an atomic file, with these columns by field; DataError as in ``atomic``."""
    layout, file = Layout(columns=fields, separator=separator, encoding=encoding), SourceFile(path)
    table = open_table(file, layout, format="atomic", fields=[*fields], optional=())
    yield from table.blocks(Refused(str(path)))


def of_frame(frame: Any, fields: Mapping[str, str]) -> tuple[Interactions, dict[str, str]]:
    """Return the interactions of a frame, and the columns of user, item and time: ``fields`` if it has them."""
    source = Frame(frame)
    given = {field: column for field, column in fields.items() if column in source.names}
    table = open_table(source, Layout(columns=given), fields=[*fields], optional=())
    return joined(table.blocks(Refused("the frame", "row {} (from 0)"))), table.columns


def write_interactions(data: Interactions, path: Path) -> str:
    """Write ``data`` as a RecBole ``.inter`` file, in their order, and return the file's sha256.

    Ids are written unchanged; DataError for one with a tab or a line end.
    """
    users, items = data.user_tokens, data.item_tokens
    whole = bool(np.all(data.times == np.floor(data.times)) and np.all(np.abs(data.times) < 2**53))
    for tokens in (users, items):
        if (row := pc.index(pc.match_substring_regex(tokens, "[\t\r\n]"), True).as_py()) >= 0:
            raise DataError(f"the id {tokens[row].as_py()!r} has a tab or a line end, which an atomic file cannot have")

    def text(start: int) -> bytes:
        rows = slice(start, start + ROWS)
        columns = [users.take(pa.array(data.users[rows])), items.take(pa.array(data.items[rows]))]
        if data.ratings is not None:
            encoded = pa.array(data.ratings[rows], from_pandas=True).dictionary_encode()  # NaN is blank
            columns.append(encoded.dictionary.cast(pa.string()).take(encoded.indices))  # each rating becomes text once
        columns.append(pa.array(data.times[rows].astype(np.int64) if whole else data.times[rows]))
        lines = pc.binary_join_element_wise(*(pc.fill_null(column.cast(pa.string()), "") for column in columns), "\t")
        return pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py().encode() + b"\n"

    rated = "" if data.ratings is None else "rating:float\t"
    header = f"user_id:token\titem_id:token\t{rated}timestamp:float\n".encode()
    digest = hashlib.sha256(header)
    with path.open("wb") as stream:
        stream.write(header)
        for piece in mapped(text, range(0, len(data), ROWS)):
            digest.update(piece)
            stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
