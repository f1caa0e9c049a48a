"""Atomic files on disk: written under a temporary name, renamed when complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recbole_hyper.data.atomic import MISSING, PAD
from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import Interactions
from recbole_hyper.files import replaced

ROWS = 1 << 20
# RecBole without this package reads by pandas, which drops rows of these; with it, only '' and [PAD] are no ids
_MISSING = {*MISSING, PAD}
_STRUCTURAL = '["\\t\\r\\n\\x00]'


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[BinaryIO]:
    """Open what takes the place of ``path`` when the block ends well; PrepareError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"no permission to write to {path.parent}")
    except OSError as error:
        raise PrepareError(f"{path.parent} cannot be written to ({error}); give another folder by --output") from error
    with replaced(path) as part, part.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def safe_tokens(tokens: pa.Array) -> pa.Array:
    """Return the tokens with what RecBole's reader would misread written as %XX.

    That is tabs, line ends and double quotes anywhere, and the first character of names that pandas takes for
    missing values (a user called NA or null) and of [PAD]. Our own reader takes NA and quotes as they are; they stay
    escaped, since stock RecBole does not, and the same source has to give the same tokens as before.

    Raises:
        PrepareError: two tokens became one.
    """
    odd = np.asarray(pc.match_substring_regex(tokens, _STRUCTURAL).to_numpy(zero_copy_only=False), dtype=bool)
    odd |= np.asarray(pc.is_in(tokens, value_set=pa.array(sorted(_MISSING))).to_numpy(zero_copy_only=False), bool)
    if not odd.any():
        return tokens
    changed = [_escaped(token) for token in tokens.filter(pa.array(odd)).to_pylist()]
    result = pc.replace_with_mask(tokens, pa.array(odd), pa.array(changed, pa.string()))
    if pc.count_distinct(result).as_py() < pc.count_distinct(tokens).as_py():
        raise PrepareError(f"tokens such as {changed[:3]} stand for two different names; rename one in the source")
    return result


def _escaped(token: str) -> str:
    if token in _MISSING:
        return f"%{ord(token[0]):02X}{token[1:]}" if token else "%00"
    return "".join(f"%{ord(letter):02X}" if letter in '\t\r\n"\x00' else letter for letter in token)


def write_interactions(data: Interactions, path: Path, *, progress: Callable[[int], Any] | None = None) -> str:
    """Write ``data`` as a RecBole ``.inter`` file and return the file's sha256.

    Fields: user_id:token item_id:token [rating:float] timestamp:float, a line per row, in the order given.

    Args:
        data: what to write.
        path: the file; an existing one is replaced only when the new one is complete.
        progress: told the number of rows written since the last call.
    """
    users, items = safe_tokens(data.user_tokens), safe_tokens(data.item_tokens)
    whole = bool(np.all(data.times == np.floor(data.times)) and np.all(np.abs(data.times) < 2**53))
    rated = data.ratings is not None
    header = "user_id:token\titem_id:token\t" + ("rating:float\t" if rated else "") + "timestamp:float\n"
    digest = hashlib.sha256()
    with _stream(path) as stream:
        output = _Hashed(stream, digest)
        output.write(header.encode())
        for start in range(0, len(data), ROWS):
            rows = slice(start, start + ROWS)
            times = data.times[rows].astype(np.int64) if whole else data.times[rows]
            columns = [users.take(pa.array(data.users[rows])), items.take(pa.array(data.items[rows]))]
            if data.ratings is not None:
                columns.append(pa.array(data.ratings[rows]))
            table = pa.table([*columns, pa.array(times)], names=[str(i) for i in range(len(columns) + 1)])
            options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
            pacsv.write_csv(table, pa.PythonFile(output, mode="w"), options)
            if progress:
                progress(len(table))
    return digest.hexdigest()


class _Hashed:
    """A writable stream that also feeds a checksum; Arrow may close it, the file stays open."""

    closed = False

    def __init__(self, stream: BinaryIO, digest: Any) -> None:
        self._stream = stream
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._stream.write(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
