"""The atomic file: pieces turned to text in threads, written in order with their checksum."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recbole_hyper.data.atomic import MISSING, PAD
from recbole_hyper.data.prepare.blocks import mapped
from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import Interactions
from recbole_hyper.data.prepare.values import as_mask

ROWS = 1 << 16
# RecBole without this package reads by pandas, which drops rows of these; with it, only '' and [PAD] are no ids
_MISSING = {*MISSING, PAD}
_STRUCTURAL = '["\\t\\r\\n\\x00]'


def safe_tokens(tokens: pa.Array) -> pa.Array:
    """Return the tokens with what RecBole's reader would misread written as %XX; PrepareError where two become one.

    That is tabs, line ends and double quotes anywhere, and the first character of names that pandas takes for
    missing values (a user called NA or null) and of [PAD]. Our own reader takes NA and quotes as they are; they stay
    escaped, since stock RecBole does not, and the same source has to give the same tokens as before.
    """
    missing = pc.is_in(tokens, value_set=pa.array(sorted(_MISSING), tokens.type))
    odd = pc.or_(pc.match_substring_regex(tokens, _STRUCTURAL), missing)
    if not as_mask(odd).any():
        return tokens
    changed = [_escaped(token) for token in tokens.filter(odd).to_pylist()]
    result = pc.replace_with_mask(tokens, odd, pa.array(changed, tokens.type))
    if pc.count_distinct(result).as_py() < pc.count_distinct(tokens).as_py():
        raise PrepareError(f"tokens such as {changed[:3]} stand for two different names; rename one in the source")
    return result


def _escaped(token: str) -> str:
    if token in _MISSING:
        return f"%{ord(token[0]):02X}{token[1:]}" if token else "%00"
    return "".join(f"%{ord(letter):02X}" if letter in '\t\r\n"\x00' else letter for letter in token)


def write_interactions(data: Interactions, path: Path, *, progress: Callable[[int], Any] | None = None) -> str:
    """Write ``data`` as a RecBole ``.inter`` file and return the file's sha256.

    Fields: user_id:token item_id:token [rating:float] timestamp:float, a line per row, in the order given. The caller
    puts the file in its place when it is complete; ``progress`` is told the number of rows since the last call.
    """
    users, items = safe_tokens(data.user_tokens), safe_tokens(data.item_tokens)
    whole = bool(np.all(data.times == np.floor(data.times)) and np.all(np.abs(data.times) < 2**53))
    options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")

    def text(start: int) -> pa.Buffer:
        rows = slice(start, start + ROWS)
        columns = [users.take(pa.array(data.users[rows])), items.take(pa.array(data.items[rows]))]
        if data.ratings is not None:
            columns.append(pa.array(data.ratings[rows]))
        columns.append(pa.array(data.times[rows].astype(np.int64) if whole else data.times[rows]))
        output = pa.BufferOutputStream()
        pacsv.write_csv(pa.table(columns, names=[str(n) for n in range(len(columns))]), output, options)
        return output.getvalue()

    rated = "" if data.ratings is None else "rating:float\t"
    header = f"user_id:token\titem_id:token\t{rated}timestamp:float\n".encode()
    digest = hashlib.sha256(header)
    with path.open("wb") as stream:
        stream.write(header)
        for count, piece in enumerate(mapped(text, range(0, len(data), ROWS))):
            digest.update(piece)
            stream.write(piece)
            if progress:
                progress(min(ROWS, len(data) - count * ROWS))
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()
