"""The atomic file: pieces turned to text in threads, written in order with their checksum."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from recbole_hyper.data.atomic import MISSING
from recbole_hyper.data.blocks import mapped
from recbole_hyper.data.ids import PAD
from recbole_hyper.data.interactions import Interactions

ROWS = 1 << 16
# RecBole without this package reads by pandas, which drops rows of these; with it, only '' and [PAD] are no ids
NO_IDS = sorted({*MISSING, PAD})


def write_interactions(data: Interactions, path: Path, *, progress: Callable[[int], Any] | None = None) -> str:
    """Write ``data`` as a RecBole ``.inter`` file, in the order given, and return the file's sha256.

    Ids are written as they are, see ``ids.escaped``; ``progress`` is called with the number of rows since the last
    call.
    """
    users, items = data.user_tokens, data.item_tokens
    whole = bool(np.all(data.times == np.floor(data.times)) and np.all(np.abs(data.times) < 2**53))
    options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")

    def text(start: int) -> pa.Buffer:
        rows = slice(start, start + ROWS)
        columns = [users.take(pa.array(data.users[rows])), items.take(pa.array(data.items[rows]))]
        if data.ratings is not None:
            columns.append(pa.array(data.ratings[rows], from_pandas=True))  # NaN is blank
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
