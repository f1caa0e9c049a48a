"""Streams of lines in blocks that end where a line ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_BYTES = 16 << 20


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


def blocks(stream: BinaryIO, *, end: bytes = b"\n", size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the stream in blocks of at least ``size`` bytes that stop after an ``end`` (the last one may lack it)."""
    carry = b""
    first = 1
    while data := stream.read(size):
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
