"""One JSON object a line: Amazon reviews, Yelp reviews."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.blocks import BLOCK_BYTES, Block, blocks


def read_json_lines(
    stream: BinaryIO,
    malformed: Malformed,
    *,
    keys: Mapping[str, str],
    numbers: Collection[str] = (),
    time_format: str = "unix",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RawChunk]:
    """Yield the objects' four values, those of the keys ``numbers`` as numbers; other keys are passed over."""
    schema = pa.schema([(key, pa.float64() if key in numbers else pa.string()) for key in keys.values()])
    for block in blocks(stream, malformed.name, size=block_bytes):
        table, lines = _parsed(block, schema) or _line_by_line(block, schema, malformed)
        columns = {field: table.column(key).combine_chunks() for field, key in keys.items()}
        if len(lines):
            yield RawChunk.of(columns, lines, time_format)


def _parsed(block: Block, schema: pa.Schema) -> tuple[pa.Table, np.ndarray] | None:
    """Parse a whole block at once; None where a line is malformed (Arrow then refuses the block) or blank."""
    data = block.data
    options = pajson.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pajson.read_json(io.BytesIO(data), options, parse)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    # with another count than lines, the rows could not be numbered
    return (table, block.numbers(count)) if table.num_rows == count else None


def _line_by_line(block: Block, schema: pa.Schema, malformed: Malformed) -> tuple[pa.Table, np.ndarray]:
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    kept: list[int] = []
    for number, line in enumerate(block.data.split(b"\n"), start=block.first):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except ValueError:
            malformed.add(number, "no JSON object", line.decode("utf-8", "backslashreplace"))
            if malformed.hopeless:
                malformed.check()
            continue
        kept.append(number)
        for name in schema.names:
            columns[name].append(_fitting(value.get(name), schema.field(name).type))
    arrays = [pa.array(columns[name], schema.field(name).type) for name in schema.names]
    return pa.table(arrays, schema=schema), np.asarray(kept, np.int64)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return the value in the column's type, None where it has no such form."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    if kind == pa.string():
        return str(value)
    try:
        return float(value)
    except ValueError:
        return None
