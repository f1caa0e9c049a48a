"""Streams of lines in blocks that end where a line ends, and the largest line that is read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.errors import PrepareError

BLOCK_BYTES = 16 << 20
# a line, or a record of several; what is longer is no text of interactions but, say, zeros that were compressed
LONGEST = 16 << 20


@dataclass(frozen=True)
class Block:
    """Whole lines of a file; ``first`` is the number of the first one, from 1."""

    data: bytes
    first: int

    def lines(self) -> pa.Array:
        """Return the lines as an Arrow array of bytes, without their ends."""
        data = self.data.removesuffix(b"\n")
        lines = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n"))
        return pc.replace_substring_regex(lines, "\r$", "") if b"\r" in data else lines

    def numbers(self, count: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the first ``count`` lines."""
        return np.arange(self.first, self.first + count, dtype=np.int64)


class Lines(io.RawIOBase):
    """A stream of text that refuses a line longer than ``LONGEST`` bytes, before it fills the memory."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._complete = 0
        self._open = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(min(len(buffer), LONGEST + 1))
        count, end = len(data), data.find(b"\n")
        buffer[:count] = data
        if self._open + (end if end >= 0 else count) > LONGEST:
            raise too_long(self._name, self._complete + 1)
        self._open = count - 1 - data.rfind(b"\n") if end >= 0 else self._open + count
        self._complete += data.count(b"\n")
        return count


def too_long(name: str, line: int) -> PrepareError:
    """Return the error about a line, or a record that starts there, that has no end."""
    return PrepareError(
        f"{name}, line {line}: no end within {LONGEST >> 20} MiB; the file is damaged or of another format"
    )


def blocks(stream: BinaryIO, name: str, *, end: bytes = b"\n", size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the stream in blocks of at least ``size`` bytes that stop after an ``end`` (the last one may lack it).

    Raises:
        PrepareError: there is no ``end`` for more than ``LONGEST`` bytes; ``name`` is the file's, for the message.
    """
    carry = b""
    first = 1
    while data := stream.read(size):
        if len(carry) > LONGEST:
            raise too_long(name, first)
        data = carry + data
        cut = data.rfind(end)
        if cut < 0:
            carry = data
            continue
        cut += len(end)
        yield Block(data[:cut], first)
        first += data.count(b"\n", 0, cut)
        carry = data[cut:]
    if carry:
        yield Block(carry, first)
