"""Recommendations on disk: parts, which are parquet files with checksums, and the file that they are joined into."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from recbole_hyper.files import replaced

_TYPES = (pa.string(), pa.int32(), pa.string(), pa.float32(), pa.bool_())
_SCHEMA = pa.schema(zip(("user_id", "position", "item_id", "score", "popular"), _TYPES, strict=True))
_HEADER = (",".join(_SCHEMA.names) + "\n").encode()
# what spreadsheets take for the start of a formula
_FORMULA = r"^([=+\-@\t\r])"


def is_recommendations(path: Path) -> bool:
    """Return whether a file has the columns of recommendations and no others, so that it may be written anew."""
    if path.suffix == ".csv":
        with path.open("rb") as file:
            return file.readline(len(_HEADER) + 1) == _HEADER
    try:
        return bool(pa.parquet.read_schema(path).names == _SCHEMA.names)
    except (pa.ArrowInvalid, OSError):
        return False


def write_part(frame: pd.DataFrame, part: Path) -> None:
    """Write some answers as a parquet file."""
    ids = {name: frame[name].astype(str) for name in ("user_id", "item_id")}
    table = pa.Table.from_pandas(frame.assign(**ids), schema=_SCHEMA, preserve_index=False).replace_schema_metadata()
    with replaced(part) as file:
        pa.parquet.write_table(table, file, write_page_checksum=True)


def is_complete(part: Path) -> bool:
    """Return whether a part is there as it was written."""
    try:
        _read(part)
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def join(parts: Sequence[Path], output: Path, *, csv_safe: bool = False) -> None:
    """Write the rows of all parts, one after another, into one file, .parquet or .csv.

    With ``csv_safe`` an id in a csv file that a spreadsheet would take for a formula begins with an apostrophe.
    """
    with replaced(output) as whole:
        if output.suffix == ".parquet":
            with pa.parquet.ParquetWriter(whole, _SCHEMA) as writer:
                for part in parts:
                    writer.write_table(_read(part))
            return
        with whole.open("wb") as file:
            file.write(_HEADER)
            for part in parts:
                table = _read(part)
                for name in ("user_id", "item_id") if csv_safe else ():
                    safe = pa.compute.replace_substring_regex(table[name], _FORMULA, r"'\1")
                    table = table.set_column(table.column_names.index(name), name, safe)
                pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))


def _read(part: Path) -> pa.Table:
    return pa.parquet.read_table(part, schema=_SCHEMA, page_checksum_verification=True)
