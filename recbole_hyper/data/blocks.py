"""Streams of text in blocks that end where a record ends, and work on them in threads."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.errors import DataError
from recbole_hyper.threads import Pool, default_threads

# the first block is small, so that a file of another format is found out early
FIRST_BYTES = 1 << 20
BLOCK_BYTES = 4 << 20
# a line, or a record of several; what is longer is no text of interactions but, say, zeros that were compressed
LONGEST = 16 << 20
MOST_THREADS = 4
_LONG_VALUE = 1 << 16

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Block:
    """Whole records of a file; ``first`` is the number of the first line, from 1.

    ``ends`` has the position after each record where some take several lines; None where each record is one line.
    """

    data: bytes
    first: int
    ends: npt.NDArray[np.int64] | None = None
    part: str = ""  # name of the file, where a source has several

    def lines(self) -> pa.Array:
        """Return the lines as an Arrow array of bytes, without their ends."""
        data = self.data.removesuffix(b"\n")
        lines = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n"))
        return (pc.replace_substring_regex(lines, "\r$", "") if b"\r" in data else lines).cast(pa.binary())

    def numbers(self, records: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the number of the line on which each of the ``records``, from 0, starts."""
        if self.ends is None:
            return (self.first + records).astype(np.int64, copy=False)
        newlines = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return self.first + np.searchsorted(newlines, np.concatenate([[0], self.ends])[records])


def blocks(stream: BinaryIO, name: str, *, end: bytes = b"\n", quotes: str = "", size: int = 0) -> Iterator[Block]:
    """Yield the stream, less a byte order mark, in blocks of about ``size`` bytes (0: a small one and then large ones).

    They stop after an ``end``, which the last one may lack; DataError where there is none for more than ``LONGEST``
    bytes. ``quotes`` is the separator of values that may be in double quotes and then contain line ends, "" for none;
    DataError for one that spans lines and is not closed as such values are. Lines that end with CR alone end with LF.
    """
    carry, first, wanted, returns = b"", 1, size or FIRST_BYTES, False
    while data := stream.read(wanted):
        if first == 1 and not carry:
            data = data.removeprefix(b"\xef\xbb\xbf")
            returns = b"\r" in data and b"\n" not in data
        if returns:
            data = data.replace(b"\r", b"\n")
        data = carry + data
        ends = _quoted_ends(data, quotes, name, first) if quotes and b'"' in data else None
        cut = data.rfind(end) + len(end) if ends is None else int(ends[-1]) if len(ends) else 0
        if cut < len(end):
            cut = 0
        carry = data[cut:]
        if len(carry) > LONGEST:
            line = first + data.count(b"\n", 0, cut)
            raise DataError(f"{name}, line {line}: no end within {LONGEST >> 20} MiB; is it text of this format?")
        if cut:
            count = data.count(b"\n", 0, cut)
            yield Block(data[:cut], first, ends if ends is not None and len(ends) < count else None)
            first += count
            wanted = size or BLOCK_BYTES
    if carry:
        ends = _quoted_ends(carry, quotes, name, first, last=True) if quotes and b'"' in carry else None
        yield Block(carry, first, ends)


def _quoted_ends(data: bytes, separator: str, name: str, first: int, last: bool = False) -> npt.NDArray[np.int64]:
    from recbole_hyper.kernels import tokens

    ends, counts, place = tokens.record_ends(np.frombuffer(data, np.uint8), ord(separator))
    if place >= 0 or (last and counts[2]):
        line = first + data.count(b"\n", 0, place if place >= 0 else int(counts[3]))
        raise DataError(
            f"{name}, line {line}: a double quote opens a value that runs over the end of the line and is not closed "
            "before a separator; where quotes are plain text give --quoting=none"
        )
    return ends


def quoted(data: bytes, separator: str, complete: bool) -> bool:
    """Return whether ``data``, the start of a text or all of it, puts values in double quotes as csv files do."""
    from recbole_hyper.kernels import tokens

    if b'"' not in data:
        return True
    _, (closed, open_text, unclosed, place), across = tokens.record_ends(np.frombuffer(data, np.uint8), ord(separator))
    if unclosed and (complete or len(data) - place > _LONG_VALUE):
        open_text += 1
    return across < 0 and closed >= open_text and not (closed == 0 and open_text)


def reading_threads() -> int:
    """:func:`default_threads`, at most 4: more wait for the disk and for the rows' one table of ids."""
    return min(MOST_THREADS, default_threads())


def mapped(work: Callable[[Given], Made], pieces: Iterable[Given], threads: int | None = None) -> Iterator[Made]:
    """Yield ``work`` of each piece, in order, done by threads (None: :func:`reading_threads`); few pieces are held."""
    with Pool(reading_threads() if threads is None else threads) as pool:
        yield from pool.stream(work, pieces)
