"""Splits streams of text into blocks of whole records, maps work over them in threads, and counts unreadable lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import engine
from recbole_hyper.errors import DataError
from recbole_hyper.threads import Pool, default_threads

# the first block is small, so that an error in the format shows up early
FIRST_BYTES = 1 << 20
BLOCK_BYTES = 4 << 20
LONGEST = 16 << 20  # a longer record is not interactions but, say, compressed zeros
_SHOWN = 5
_HOPELESS = 10_000  # with more unreadable lines than this, and than readable ones, reading stops

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Whole records from line ``first`` on; ``ends`` are their end positions if some have several lines."""

    data: bytes
    first: int
    ends: npt.NDArray[np.int64] | None = None
    part: str = ""  # name of the file, where a source has several

    def lines(self) -> pa.Array:
        """Return the lines as an Arrow array of bytes, without line ends."""
        data = self.data.removesuffix(b"\n")
        lines = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n"))
        return (pc.replace_substring_regex(lines, "\r$", "") if b"\r" in data else lines).cast(pa.binary())

    def numbers(self, records: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the line number at which each of the ``records`` (from 0) starts."""
        if self.ends is None:
            return (self.first + records).astype(np.int64, copy=False)
        newlines = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return self.first + np.searchsorted(newlines, np.concatenate([[0], self.ends])[records])


def blocks(stream: BinaryIO, name: str, *, quotes: str = "", size: int = 0) -> Iterator[Block]:
    """Yield the stream, without a byte order mark, in blocks of about ``size`` bytes (0: a small one, then large ones).

    Each block but the last stops after a line end. If values may be in double quotes and contain line ends, ``quotes``
    is the separator of values, else "". Line ends CR become LF. DataError for more than ``LONGEST`` bytes without an
    end, and for a quoted value that spans lines and is not closed.
    """
    carry, first, wanted, returns = b"", 1, size or FIRST_BYTES, False
    while data := stream.read(wanted):
        if first == 1 and not carry:
            data = data.removeprefix(b"\xef\xbb\xbf")
            returns = data.count(b"\r") > 2 * data.count(b"\n")
        data = carry + (data.replace(b"\r", b"\n") if returns else data)
        ends = record_ends(data, quotes, name, first)
        cut = data.rfind(b"\n") + 1 if ends is None else int(ends.max(initial=0))
        carry = data[cut:]
        if len(carry) > LONGEST:
            line = first + data.count(b"\n", 0, cut)
            raise DataError(f"{name}, line {line}: no end within {LONGEST >> 20} MiB; is this text in this format?")
        if cut:
            count = data.count(b"\n", 0, cut)
            yield Block(data[:cut], first, ends if ends is not None and len(ends) < count else None)
            first, wanted = first + count, size or BLOCK_BYTES
    if carry:
        yield Block(carry, first, record_ends(carry, quotes, name, first, last=True))


def record_ends(
    data: bytes, separator: str, name: str = "", first: int = 1, last: bool = False
) -> npt.NDArray[np.int64] | None:
    """Return the position after each line end outside double quotes, None if no value is quoted.

    DataError for a quote beside a line end in a value that neither opens nor closes it, nor is one of two in a row.
    """
    if not separator or b'"' not in data:
        return None
    text = np.frombuffer(data, np.uint8)
    quotes, newlines = np.flatnonzero(text == ord('"')), np.flatnonzero(text == ord("\n"))
    after = np.searchsorted(quotes, newlines)
    inside = np.unique(after[after % 2 == 1])  # the places of the quotes after the line ends inside values
    borders = np.frombuffer(f'{separator}\n\r"'.encode(), np.uint8)
    padded = np.concatenate([borders[1:2], text, borders[1:2]])
    opening, closing = quotes[inside - 1], quotes[inside[inside < len(quotes)]]
    bad = [opening[~np.isin(padded[opening], borders)], closing[~np.isin(padded[closing + 2], borders)]]
    bad += [quotes[-1:]] if last and len(quotes) % 2 else []
    if any(map(len, bad)):
        line = first + data.count(b"\n", 0, int(np.concatenate(bad).min()))
        raise DataError(
            f"{name}, line {line}: a double quote neither opens nor closes a value that continues on the next line; "
            "if quotes are plain text, set --quoting=none"
        )
    return newlines[after % 2 == 0] + 1


def quoted(data: bytes, separator: str, complete: bool) -> bool:
    """Return whether ``data``, the start of a text or a ``complete`` one, puts values in double quotes."""
    mark = re.escape(separator.encode())
    text = len(re.findall(rb'[^%b\r\n"]"[^%b\r\n"]' % (mark, mark), data))
    if text > len(re.findall(rb'[^"]"(?:%b|\r|\n|\Z)' % mark, data)):
        return False
    try:
        record_ends(data, separator, last=complete)
    except DataError:
        return False
    return True


def reading_threads() -> int:
    """:func:`default_threads`, at most 4: more would wait for the disk."""
    return min(4, default_threads())


def mapped(work: Callable[[Piece], Result], pieces: Iterable[Piece], threads: int | None = None) -> Iterator[Result]:
    """Yield ``work(piece)`` in order, run in threads (None: :func:`reading_threads`), with few pieces in memory."""
    with Pool(reading_threads() if threads is None else threads) as pool:
        try:
            yield from pool.stream(work, pieces)
        except KeyboardInterrupt:  # the pool would wait for conditions that its threads evaluate
            engine.interrupt()
            raise


class Malformed:
    """Counts the unreadable lines of a file, or of the ``part`` of a folder; accepts ``max_share`` of all lines."""

    place = "line {}"  # how messages name a row

    def __init__(self, name: str, max_share: float = 1.0, part: str = "") -> None:
        if not 0 <= max_share <= 1:
            raise DataError(f"max_malformed={max_share} is not a share; use a number from 0 to 1, such as 0.001")
        self.name, self.max_share, self.part = name, max_share, part
        self.count = self.good = 0
        self.invalid = 0  # of the unreadable lines, those that meet a condition
        self.unmet = 0  # rows that do not meet a condition
        self.unknown = 0  # of these, those that lack a value which it compares
        self.examples: list[tuple[int, str, str]] = []

    def add(self, line: int, reason: str, text: str) -> None:
        """Count one unreadable line (numbered from 1) and keep the first few."""
        self.count += 1
        reason = f"{self.part}: {reason}" if self.part else reason
        if len(self.examples) < _SHOWN:
            self.examples.append((line, reason, text if len(text) <= 120 else text[:117] + "..."))

    def merge(self, piece: Malformed) -> None:
        """Add the counts of the next piece; DataError if most of a long file cannot be read."""
        for key in ("count", "good", "invalid", "unmet", "unknown"):
            setattr(self, key, getattr(self, key) + getattr(piece, key))
        self.examples = (self.examples + sorted(piece.examples))[:_SHOWN]
        if self.count > _HOPELESS and self.count > self.good and self.max_share < 0.5:
            self.check()

    def listing(self) -> str:
        """Return the first unreadable lines, in the order of the file."""
        return "\n".join(f"  line {line}: {reason}: {text!r}" for line, reason, text in self.examples)

    def check(self) -> None:
        """Raise DataError if too many lines are unreadable, or none was read."""
        total, kept = self.count + self.good + self.unmet, self.invalid + self.good
        # rows that a condition leaves out say nothing about the others
        for count, of, what in ((self.count, total, "lines"), (self.invalid, kept, "rows that meet the condition")):
            if count <= self.max_share * of:
                continue
            raise DataError(
                f"{self.name}: {count:,} of {of:,} {what} cannot be read ({count / of:.2%}, "
                f"accepted {self.max_share:.2%}). The first ones:\n{self.listing()}\n"
                "Check that --format is the format of the file, or accept more lines by --max_malformed=SHARE"
            )
        if self.good == 0 and self.unmet:
            raise DataError(f"{self.name}: none of the {self.unmet:,} rows meets the condition; check --where")
        if self.good == 0:
            raise DataError(f"{self.name} has no interactions; check that the download is complete")


class Refused(Malformed):
    """Raises an error, with its ``place``, for the first unreadable line."""

    def __init__(self, name: str, place: str = "line {}") -> None:
        super().__init__(name)
        self.place = place

    def add(self, line: int, reason: str, text: str) -> None:
        """Raise DataError."""
        raise DataError(f"{self.name}, {self.place.format(line)}: {reason}" + (f": {text[:120]!r}" if text else ""))

    def skip(self, line: int) -> None:
        """Count a skipped row, and keep the smallest line number."""
        self.count += 1
        self.examples = sorted([*self.examples, (line, "", "")])[:1]
