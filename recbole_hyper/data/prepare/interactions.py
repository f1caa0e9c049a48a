"""The interactions of a table as codes: blocks checked in threads, ids numbered in order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.blocks import mapped, reading_threads
from recbole_hyper.data.ids import Tokens
from recbole_hyper.data.malformed import Malformed
from recbole_hyper.data.sequences import grouped
from recbole_hyper.data.tables import Checked, Table
from recbole_hyper.data.where import Where
from recbole_hyper.errors import DataError

Codes = npt.NDArray[np.int32]


@dataclass
class Interactions:
    """Columns of equal length; users and items are codes into their token arrays."""

    users: Codes  # (n,) int32 codes, numbered by first appearance in the source
    items: Codes  # (n,) int32 codes, likewise
    times: npt.NDArray[np.float64]  # (n,) float64, Unix seconds (or positions, where the source has no times)
    ratings: npt.NDArray[np.float32] | None  # (n,) float32, or None where the source has none
    user_tokens: pa.Array  # the source's names of the users, by code; may name users that no row has any more
    item_tokens: pa.Array  # the source's names of the items, by code

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

    def cut(self, gap: float) -> None:
        """Make users of the sessions of each user, between which there are more than ``gap`` seconds.

        The rows must be sorted; session 2 of user ``a`` is called ``a#2``.
        """
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


def read(table: Table, malformed: Malformed, where: Where | None = None, progress: bool | None = None) -> Interactions:
    """Read a table; DataError where too many lines are malformed, none is read, or a file is damaged."""
    return joined(table.blocks(malformed, where, progress))


def joined(blocks: Iterator[Checked]) -> Interactions:
    """Number the tokens of all blocks, of which there must be one, and join them; 20 bytes a row are kept.

    Where no times were read, a row's is its number in the file, from 1.
    """
    users, items = Tokens(), Tokens()
    before = 0

    def numbered(block: Checked) -> tuple[Codes, Checked]:
        return items.codes(block.items), block

    columns: tuple[list[npt.NDArray], ...] = ([], [], [], [])
    # one thread for the items, this one for the users
    for item_codes, block in mapped(numbered, blocks, threads=1):
        times = block.times
        if times is None:
            times = np.arange(before + 1, before + 1 + len(item_codes), dtype=np.float64)
            before += len(item_codes)
        for chunks, column in zip(columns, (users.codes(block.users), item_codes, times, block.ratings), strict=True):
            if column is not None:
                chunks.append(column)
    return Interactions(*(_joined(chunks) for chunks in columns), users.names(), items.names())  # type: ignore[call-arg]


def _joined(chunks: list[npt.NDArray]) -> Any:
    whole = np.concatenate(chunks) if chunks else None
    chunks.clear()
    return whole


def amazon(data: Interactions) -> None:
    """Refuse ratings read with users and items exchanged: item codes (ASIN) have ten characters, user codes more."""
    items, users = (
        float(np.mean(np.asarray(pc.utf8_length(tokens)) == 10)) for tokens in (data.item_tokens, data.user_tokens)
    )
    if users > items:
        raise DataError(
            f"the users' column holds Amazon item codes ({users:.0%} have ten characters, items {items:.0%}): files of "
            "2014 are user,item,rating,time (--format=amazon-ratings-2014), those of 2018 item,user,rating,time "
            "(--format=amazon-ratings-2018)"
        )


def one_line_per_user(data: Interactions) -> None:
    """Refuse sequences of which a user has two: their positions would be mixed."""
    ordered = replace(data)
    ordered.sort()
    users, times = ordered.users, ordered.times
    twice = np.flatnonzero((users[1:] == users[:-1]) & (times[1:] == times[:-1]))
    if len(twice):
        name = data.user_tokens[int(users[twice[0]])].as_py()
        raise DataError(f"user {name!r} has more than one line; join the lines of a user in time order")


# by the word in formats.yaml
CHECKS = {"amazon": amazon, "one_line_per_user": one_line_per_user}
