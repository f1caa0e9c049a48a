"""A user a line: ``user item item ...`` in time order, without times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.blocks import BLOCK_BYTES, blocks
from recbole_hyper.data.prepare.values import to_strings


def read_sequences(
    stream: BinaryIO, malformed: Malformed, *, separator: str | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[RawChunk]:
    """Yield an interaction per item; its time is its position in the sequence, from 1.

    ``separator`` stands between the values; None takes blanks and tabs.
    """
    for block in blocks(stream, malformed.name, size=block_bytes):
        raw = block.lines()
        numbers = block.numbers(len(raw))
        text, filled = to_strings(raw)
        text, numbers = text.filter(pa.array(filled)), numbers[filled]
        values = pc.utf8_split_whitespace(text) if separator is None else pc.split_pattern(text, separator)
        lengths = np.asarray(pc.list_value_length(values)) - 1
        for row in np.flatnonzero(lengths < 1):
            malformed.add(int(numbers[row]), "a user without items", text[int(row)].as_py())
        if malformed.hopeless:
            malformed.check()
        enough = lengths >= 1
        if not enough.any():
            continue
        values, numbers, lengths = values.filter(pa.array(enough)), numbers[enough], lengths[enough]
        users = pc.list_element(values, 0).take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))
        ends = np.cumsum(lengths)
        positions = np.arange(1, ends[-1] + 1) - np.repeat(ends - lengths, lengths)
        yield RawChunk(
            users, pc.list_flatten(pc.list_slice(values, 1)), pa.array(positions), None, np.repeat(numbers, lengths)
        )
