"""The interactions of a table as codes: ids numbered in order, and written as an atomic file."""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recbole_hyper.data.atomic import MISSING
from recbole_hyper.data.blocks import mapped, reading_threads
from recbole_hyper.data.ids import PAD, Tokens
from recbole_hyper.data.parsers import Rows
from recbole_hyper.data.sequences import grouped
from recbole_hyper.errors import DataError

ROWS = 1 << 16
# RecBole without this package reads by pandas, which drops rows of these; with it, only '' and [PAD] are no ids
NO_IDS = sorted({*MISSING, PAD})


@dataclass
class Interactions:
    """Columns of equal length; users and items are codes into their token arrays."""

    users: npt.NDArray[np.int32]  # (n,) codes, numbered by first appearance in the source
    items: npt.NDArray[np.int32]  # (n,) codes, likewise
    times: npt.NDArray[np.float64]  # (n,) float64, Unix seconds (or positions, where the source has no times)
    ratings: npt.NDArray[np.float32] | None  # (n,) float32, or None where the source has none
    user_tokens: pa.Array  # the source's names of the users, by code; may name users that no row has any more
    item_tokens: pa.Array  # the source's names of the items, by code
    # (n,) how many were bought, below 0 for a return; only until these are netted
    quantities: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.users)

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Drop the rows that the mask leaves out, a column at a time."""
        if rows.all():
            return
        self.users, self.items, self.times = self.users[rows], self.items[rows], self.times[rows]
        self.ratings = None if self.ratings is None else self.ratings[rows]

    def copies(self) -> npt.NDArray[np.bool_]:
        """Return which rows are equal to one before in user, item, time and rating."""
        columns = {"user": self.users, "item": self.items, "time": self.times, "rating": self.ratings}
        named = {name: column for name, column in columns.items() if column is not None}
        return pd.DataFrame(named, copy=False).duplicated().to_numpy()

    def bought(self, quantities: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return the purchases of which something is left: a return (below 0) gives back the newest of the pair."""
        order = np.lexsort((self.times, self.items, self.users))
        pairs = (self.users.astype(np.int64) * len(self.item_tokens) + self.items)[order]
        each = pd.Series(quantities[order])
        total = each.groupby(pairs).cumsum()
        # of what was bought, as much is left as the total never falls below later
        lowest = total[::-1].groupby(pairs[::-1]).cummin()[::-1]
        left = np.zeros(len(self), dtype=bool)
        left[order] = (each > 0) & (np.minimum(each, lowest - total + each) > 1e-9)
        return left

    def cut(self, gap: float) -> None:
        """Make users of the sessions of each, over ``gap`` seconds apart, called ``a#2``; the rows must be sorted."""
        begins = np.ones(len(self), dtype=bool)
        begins[1:] = (self.users[1:] != self.users[:-1]) | (np.diff(self.times) > gap)
        owners = self.users[begins]
        places = np.arange(len(owners))
        firsts = np.concatenate([[True], owners[1:] != owners[:-1]])
        numbers = pa.array(places - np.maximum.accumulate(np.where(firsts, places, 0)) + 1).cast(pa.string())
        names = self.user_tokens.take(pa.array(owners)).cast(pa.string())
        self.user_tokens = pc.binary_join_element_wise(names, numbers, "#")
        self.users = (np.cumsum(begins) - 1).astype(np.int32)

    def sort(self) -> None:
        """Group the rows by user and put each user's in time order; ties keep the source's order."""
        from recbole_hyper.kernels import pairs

        if len(self) >= 2**31:
            raise DataError(f"{len(self):,} interactions; {2**31 - 1:,} fit")
        counts = pairs.counts(self.users, len(self.user_tokens))
        columns = self.times, self.items, self.ratings
        self.times, self.items, self.ratings = grouped(self.users, *columns, counts, reading_threads())
        self.users = np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def joined(blocks: Iterable[Rows]) -> Interactions:
    """Number the tokens of all blocks and join them; a row without a time has its number in the file, from 1."""
    users, items = Tokens(), Tokens()
    before, times, ratings = 0, [np.zeros(0)], []

    def numbered(block: Rows) -> Rows:
        items.add(block.columns.pop("item_id"))
        return block

    # one thread for the items, this one for the users
    for block in mapped(numbered, blocks, threads=1):
        users.add(block.columns["user_id"])
        after = before + len(block.lines)
        timed = "timestamp" in block.columns
        times.append(block.columns["timestamp"] if timed else np.arange(before + 1.0, after + 1.0))
        before = after
        if "rating" in block.columns:
            ratings.append(block.columns["rating"])
    user_codes, user_tokens = users.joined()
    item_codes, item_tokens = items.joined()
    rated = np.concatenate(ratings) if ratings else None
    ratings.clear()
    return Interactions(user_codes, item_codes, np.concatenate(times), rated, user_tokens, item_tokens)


def write_interactions(data: Interactions, path: Path, *, progress: Callable[[int], Any] | None = None) -> str:
    """Write ``data`` as a RecBole ``.inter`` file, in the order given, and return the file's sha256.

    Ids are written as they are, see ``ids.escaped``; ``progress`` is called with the number of rows since the last
    call.
    """
    users, items = data.user_tokens, data.item_tokens
    whole = bool(np.all(data.times == np.floor(data.times)) and np.all(np.abs(data.times) < 2**53))
    options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")

    def text(start: int) -> pa.Buffer:
        rows = slice(start, start + ROWS)
        columns = [users.take(pa.array(data.users[rows])), items.take(pa.array(data.items[rows]))]
        if data.ratings is not None:
            columns.append(pa.array(data.ratings[rows], from_pandas=True))  # NaN is blank
        columns.append(pa.array(data.times[rows].astype(np.int64) if whole else data.times[rows]))
        output = pa.BufferOutputStream()
        pacsv.write_csv(pa.table(columns, names=[str(n) for n in range(len(columns))]), output, options)
        return output.getvalue()

    rated = "" if data.ratings is None else "rating:float\t"
    header = f"user_id:token\titem_id:token\t{rated}timestamp:float\n".encode()
    digest = hashlib.sha256(header)
    with path.open("wb") as stream:
        stream.write(header)
        for count, piece in enumerate(mapped(text, range(0, len(data), ROWS))):
            digest.update(piece)
            stream.write(piece)
            if progress:
                progress(min(ROWS, len(data) - count * ROWS))
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
