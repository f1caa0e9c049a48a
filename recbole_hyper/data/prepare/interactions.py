"""The interactions of a data set in columns, and the builder that checks and numbers them block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.data.prepare.blocks import THREADS, mapped
from recbole_hyper.data.prepare.errors import Malformed, PrepareError
from recbole_hyper.data.prepare.parsers import Rows
from recbole_hyper.data.prepare.values import to_numbers, to_seconds, to_strings
from recbole_hyper.data.sequences import grouped
from recbole_hyper.data.table import Tokens

Codes = npt.NDArray[np.int32]
# the good rows of a block: users and items as text, times in seconds, ratings where the source has them
Checked = tuple[pa.Array, pa.Array, npt.NDArray[np.float64], npt.NDArray[np.float32] | None]


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

    def sort(self) -> None:
        """Group the rows by user and put each user's in time order; ties keep the source's order."""
        from recbole_hyper.kernels import pairs

        if len(self) >= 2**31:
            raise PrepareError(f"{len(self):,} interactions; {2**31 - 1:,} fit")
        counts = pairs.counts(self.users, len(self.user_tokens))
        columns = self.times, self.items, self.ratings
        self.times, self.items, self.ratings = grouped(self.users, *columns, counts, THREADS)
        self.users = np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def check(rows: Rows, time_format: str, malformed: Malformed) -> Checked:
    """Return the rows whose values can all be read; the others are counted as malformed."""
    columns = rows.columns
    users, users_good = to_strings(columns["user_id"])
    items, items_good = to_strings(columns["item_id"])
    times, times_good = to_seconds(columns["timestamp"], time_format)
    reasons = {"no user": users_good, "no item": items_good, "no time": times_good}
    ratings: npt.NDArray[np.float32] | None = None
    if "rating" in columns:
        numbers, reasons["no rating"] = to_numbers(columns["rating"])
        ratings = numbers.astype(np.float32)
    good = np.logical_and.reduce(list(reasons.values()))
    malformed.good += int(np.count_nonzero(good))
    if good.all():
        return users, items, times, ratings
    shown = [columns[field] for field in ("user_id", "item_id", "rating", "timestamp") if field in columns]
    for row in np.flatnonzero(~good):
        values = [column[int(row)].as_py() for column in shown]
        text = "\t".join(v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else str(v) for v in values)
        reason = next(reason for reason, fine in reasons.items() if not fine[row])
        malformed.add(int(rows.lines[row]), f"{rows.part}: {reason}" if rows.part else reason, text)
    kept = pa.array(good)
    return users.filter(kept), items.filter(kept), times[good], None if ratings is None else ratings[good]


def joined(blocks: Iterator[Checked]) -> Interactions:
    """Number the tokens of all blocks, of which there must be one, and join them; 20 bytes a row are kept."""
    users, items = Tokens(), Tokens()

    def numbered(block: Checked) -> tuple[Codes, Checked]:
        return items.codes(block[1]), block

    columns: tuple[list[npt.NDArray], ...] = ([], [], [], [])
    # one thread for the items, this one for the users
    for item_codes, (names, _, times, ratings) in mapped(numbered, blocks, threads=1):
        for chunks, column in zip(columns, (users.codes(names), item_codes, times, ratings), strict=True):
            if column is not None:
                chunks.append(column)
    return Interactions(*(_joined(chunks) for chunks in columns), users.names(), items.names())  # type: ignore[call-arg]


def _joined(chunks: list[npt.NDArray]) -> Any:
    whole = np.concatenate(chunks) if chunks else None
    chunks.clear()
    return whole
