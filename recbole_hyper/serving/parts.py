"""Recommendations on disk: parts, each with its size and digest beside it, and one file joined from them.

A part counts only while it is what was written, so that a call that was stopped goes on after the last whole part.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from recbole_hyper.files import file_digest, read_json, replaced, write_json

#: endings of the files of recommendations
KINDS = (".parquet", ".csv")
#: of a folder of parts; readers of a folder of parquet files pass over a name that begins so
NOTES = "_parts"
_TYPES = (pa.string(), pa.int32(), pa.string(), pa.float32(), pa.bool_())
_SCHEMA = pa.schema(zip(("user_id", "position", "item_id", "score", "popular"), _TYPES, strict=True))
_HEADER = (",".join(_SCHEMA.names) + "\n").encode()
# what spreadsheets take for the start of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def require_kind(output: Path) -> None:
    """Raise ValueError for a file that is neither .parquet nor .csv."""
    if output.suffix not in KINDS:
        raise ValueError(f"output={str(output)!r}: the name must end in {' or '.join(KINDS)}")


def is_recommendations(path: Path) -> bool:
    """Return whether a file has the columns of recommendations and no others, so that it may be written anew."""
    if path.suffix == ".csv":
        with path.open("rb") as file:
            return file.readline(len(_HEADER) + 1) == _HEADER
    try:
        return bool(pa.parquet.read_schema(path).names == _SCHEMA.names)
    except (pa.ArrowInvalid, OSError):
        return False


def write_part(frame: pd.DataFrame, part: Path, *, csv_safe: bool = False) -> None:
    """Write some answers as a parquet file, or as lines of csv without a header, and then their size and digest.

    With ``csv_safe`` an id in a csv file that a spreadsheet would take for a formula begins with an apostrophe.
    """
    ids = {name: frame[name].astype(str) for name in ("user_id", "item_id")}
    if csv_safe and part.suffix == ".csv":
        ids = {name: column.where(~column.str.startswith(_FORMULA), "'" + column) for name, column in ids.items()}
    table = pa.Table.from_pandas(frame.assign(**ids), schema=_SCHEMA, preserve_index=False).replace_schema_metadata()
    with replaced(part) as file:
        if part.suffix == ".parquet":
            pa.parquet.write_table(table, file)
        else:
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))
    write_json(_note_of(part), {"bytes": part.stat().st_size, "sha256": file_digest(part)})


def is_complete(part: Path) -> bool:
    """Return whether a part is there as it was written."""
    note = _note_of(part)
    if not part.is_file() or not note.is_file():
        return False
    try:
        written = read_json(note)
    except ValueError:
        return False
    return written.get("bytes") == part.stat().st_size and written.get("sha256") == file_digest(part)


def _note_of(part: Path) -> Path:
    return part.parent / NOTES / f"{part.name}.json"


def join(parts: Sequence[Path], output: Path) -> None:
    """Write the rows of all parts, one after another, into one file."""
    with replaced(output) as whole:
        if output.suffix == ".parquet":
            with pa.parquet.ParquetWriter(whole, _SCHEMA) as writer:
                for part in parts:
                    writer.write_table(pa.parquet.read_table(part))
            return
        with whole.open("wb") as file:
            file.write(_HEADER)
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, file, 1 << 20)
