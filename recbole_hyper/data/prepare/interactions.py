"""A raw file to interactions: blocks or parquet batches, parsed and checked in threads, numbered in order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recbole_hyper.data.prepare import parsers
from recbole_hyper.data.prepare.blocks import Block, blocks, mapped, reading_threads
from recbole_hyper.data.prepare.errors import Malformed, PrepareError
from recbole_hyper.data.prepare.formats import Format
from recbole_hyper.data.prepare.parsers import Rows
from recbole_hyper.data.prepare.sources import SourceFile
from recbole_hyper.data.prepare.values import as_text, to_numbers, to_seconds, to_strings
from recbole_hyper.data.sequences import grouped
from recbole_hyper.data.table import Tokens

Codes = npt.NDArray[np.int32]
# the good rows of a block: users and items as text, times in seconds, ratings where the source has them
Checked = tuple[pa.Array, pa.Array, npt.NDArray[np.float64], npt.NDArray[np.float32] | None]
# parsers of text by kind; parquet is the one kind that is none
PARSERS = {
    "delimited": parsers.delimited,
    "csv": parsers.delimited,
    "atomic": parsers.delimited,
    "json": parsers.json_lines,
    "literals": parsers.literals,
    "records": parsers.records,
    "sequences": parsers.sequences,
}
PARQUET_ROWS = 1 << 19


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
        self.times, self.items, self.ratings = grouped(self.users, *columns, counts, reading_threads())
        self.users = np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def read(file: SourceFile, form: Format, malformed: Malformed, progress: bool | None = None) -> Interactions:
    """Read a file, or its parts; PrepareError where too many lines are malformed, none is read, or it is damaged."""

    def work(piece: Block | Rows) -> tuple[Malformed, Checked]:
        found = Malformed(malformed.name)
        rows = PARSERS[form.kind](piece, form, found) if isinstance(piece, Block) else piece
        return found, check(rows, form.time_format or "unix", found)

    def checked() -> Iterator[Checked]:
        for found, block in mapped(work, pieces(file, form, progress)):
            malformed.merge(found)
            yield block
        malformed.check()

    return joined(checked())


def pieces(file: SourceFile, form: Format, progress: bool | None) -> Iterator[Block | Rows]:
    """Yield the blocks of a text, the batches of parquet parts."""
    if form.kind == "parquet":
        for part in file.parts or (file,):
            yield from _batches(part, file, form, progress)
        return
    with file.open(progress=progress) as stream:
        quotes = form.separator or "" if form.kind == "csv" and form.separator != "::" else ""
        yield from blocks(stream, str(file), end=b"\n\n" if form.kind == "records" else b"\n", quotes=quotes)


def _batches(part: SourceFile, whole: SourceFile, form: Format, progress: bool | None) -> Iterator[Rows]:
    columns, before, name = form.columns or {}, 0, part.name if whole.parts else ""
    with part.open(progress=False if whole.parts else progress) as stream:
        source, named = pq.ParquetFile(pa.PythonFile(stream, mode="r")), hive_keys(part, whole)
        inside = [name for name in set(columns.values()) if name in source.schema_arrow.names]
        if lost := sorted(set(columns.values()) - set(inside) - set(named)):
            raise PrepareError(f"{part} has no column {', '.join(lost)}, which other parts have")
        for batch in source.iter_batches(PARQUET_ROWS, columns=inside):
            given = {name: pa.repeat(value, len(batch)) for name, value in named.items()}
            given |= {name: batch.column(name) for name in inside}
            lines = np.arange(before + 1, before + len(batch) + 1)
            yield Rows({field: given[column] for field, column in columns.items()}, lines, name)
            before += len(batch)


def hive_keys(part: SourceFile, whole: SourceFile) -> dict[str, str]:
    """Return the values that a part's folders, called ``key=value``, give to all of its rows."""
    folders = part.path.relative_to(whole.path).parts[:-1] if whole.parts else ()
    return dict(folder.split("=", 1) for folder in folders if "=" in folder)


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
        if as_text(pa.array([v for v in values if isinstance(v, bytes)], pa.binary())).null_count:
            reason = "not UTF-8, to which iconv converts a file"
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


def amazon(data: Interactions) -> None:
    """Refuse ratings read with users and items exchanged: item codes (ASIN) have ten characters, user codes more."""
    items, users = (
        float(np.mean(np.asarray(pc.utf8_length(tokens)) == 10)) for tokens in (data.item_tokens, data.user_tokens)
    )
    if users > items:
        raise PrepareError(
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
        raise PrepareError(f"user {name!r} has more than one line; join the lines of a user in time order")


# by the word in formats.yaml
CHECKS = {"amazon": amazon, "one_line_per_user": one_line_per_user}
