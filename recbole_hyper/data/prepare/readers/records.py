"""Blocks of ``key: value`` lines with a blank line between: BeerAdvocate as SNAP publishes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.blocks import BLOCK_BYTES, blocks


def read_records(
    stream: BinaryIO,
    malformed: Malformed,
    *,
    keys: Mapping[str, str],
    time_format: str = "unix",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RawChunk]:
    """Yield the records' values; a record that lacks a key counts as malformed, under its first line's number."""
    for block in blocks(stream, malformed.name, end=b"\n\n", size=block_bytes):
        lines = block.lines()
        blank = np.asarray(pc.equal(pc.binary_length(lines), 0))
        # a record starts after a blank line (or at the block's start) with a line that is none
        starts = ~blank & np.concatenate([[True], blank[:-1]])
        records = np.cumsum(starts) - 1
        count = int(starts.sum())
        if count == 0:
            continue
        columns = {}
        for field, key in keys.items():
            prefix = f"{key}:".encode()
            here = np.flatnonzero(np.asarray(pc.starts_with(lines, prefix)))
            where = np.full(count, -1, np.int64)
            # the first of several lines with the same key counts
            where[records[here[::-1]]] = here[::-1]
            index = pa.array(where, mask=where < 0)
            columns[field] = pc.replace_substring_regex(lines.take(index).cast(pa.binary()), f"^{key}:", "")
        yield RawChunk.of(columns, block.numbers(len(lines))[starts], time_format)
