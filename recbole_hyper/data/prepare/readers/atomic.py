"""RecBole's own atomic files: a header ``field:type`` and a line per interaction."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO, cast

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.delimited import Header, read_delimited

_TYPES = {"user_id": "token", "item_id": "token", "timestamp": "float", "rating": "float"}


def read_atomic(
    stream: BinaryIO, malformed: Malformed, *, columns: Mapping[str, str] | None = None, separator: str = "\t"
) -> Iterator[RawChunk]:
    """Yield the interactions of an ``.inter`` file; other columns than the four are left out.

    ``columns`` has the names that differ from user_id, item_id, timestamp, rating; ``separator`` is RecBole's
    field_separator.

    Raises:
        PrepareError: the header is not one of an atomic file, a field is missing or has another type.
    """
    buffered = io.BufferedReader(cast(io.RawIOBase, stream))
    header = buffered.readline().decode("utf-8-sig", "replace").rstrip("\r\n")
    cells = header.split(separator)
    fields: dict[str, str] = {}
    for cell in cells:
        name, colon, kind = cell.rpartition(":")
        if not colon or kind not in ("token", "float", "token_seq", "float_seq"):
            raise PrepareError(
                f"{malformed.name}: the first line {header[:120]!r} is no header of an atomic file; "
                "expected fields such as user_id:token item_id:token timestamp:float, separated by tabs"
            )
        if name in fields:
            raise PrepareError(f"{malformed.name}, line 1: the column {name!r} stands there twice; rename one")
        fields[name] = kind
    chosen: dict[str, str] = {}
    for field, kind in _TYPES.items():
        name = (columns or {}).get(field, field)
        if name not in fields:
            if field == "rating" and field not in (columns or {}):
                continue
            raise PrepareError(
                f"{malformed.name} has no field {name!r}; it has {', '.join(fields)}. "
                f"Name the field by --columns={field}=..."
            )
        if fields[name] != kind:
            raise PrepareError(f"{malformed.name}: field {name!r} is of type {fields[name]!r}; expected {kind!r}")
        chosen[field] = name
    yield from read_delimited(buffered, malformed, Header(list(fields), chosen, lines=1), separator=separator)
