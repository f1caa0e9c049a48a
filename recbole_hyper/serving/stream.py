"""Write recommendations for any number of users into one file, in parts, so that a killed call can continue.

The parts are in a hidden folder beside the output. A part depends only on the query and the plan, so interrupted calls
write the same file as one call.
"""

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from tqdm import tqdm

from recbole_hyper.files import digest, locked, replaced, require_own
from recbole_hyper.processes import package_version
from recbole_hyper.serving.query import Query, array_digest
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Plan

_TYPES = (pa.string(), pa.int32(), pa.string(), pa.float32(), pa.bool_())
_SCHEMA = pa.schema(zip(("user_id", "position", "item_id", "score", "popular"), _TYPES, strict=True))
_HEADER = (",".join(_SCHEMA.names) + "\n").encode()


def is_recommendations(path: Path) -> bool:
    """Return whether a file has exactly the columns of recommendations, so that it may be replaced."""
    if path.suffix == ".csv":
        with path.open("rb") as file:
            return file.readline(len(_HEADER) + 1) == _HEADER
    try:
        return bool(pa.parquet.read_schema(path).names == _SCHEMA.names)
    except (pa.ArrowInvalid, OSError):
        return False


def write_part(frame: pd.DataFrame, part: Path) -> None:
    """Write the answers of a part as parquet."""
    ids = {name: frame[name].astype(str) for name in ("user_id", "item_id")}
    table = pa.Table.from_pandas(frame.assign(**ids), schema=_SCHEMA, preserve_index=False).replace_schema_metadata()
    with replaced(part) as file:
        pa.parquet.write_table(table, file, write_page_checksum=True)


def is_complete(part: Path) -> bool:
    """Return whether a part exists and is undamaged."""
    try:
        _read(part)
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def join(parts: Sequence[Path], output: Path) -> None:
    """Write the rows of all parts into one file, .parquet or .csv."""
    with replaced(output) as target:
        if output.suffix == ".parquet":
            with pa.parquet.ParquetWriter(target, _SCHEMA) as writer:
                for part in parts:
                    writer.write_table(_read(part))
            return
        with target.open("wb") as file:
            file.write(_HEADER)
            for part in parts:
                pa.csv.write_csv(_read(part), file, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))


def _read(part: Path) -> pa.Table:
    return pa.parquet.read_table(part, schema=_SCHEMA, page_checksum_verification=True)


logger = logging.getLogger("recbole_hyper")

USERS_OF_A_PART = 8192


def all_users(model: Recommender) -> Any:
    """Return the ids of all users with a history in the data."""
    # unique, because a user may have several rows in pre-split files
    return model.store.user_tokens[np.unique(model.store.users)]


def require_output(output: Path, inputs: Iterable[Path | None] = ()) -> None:
    """Raise ValueError for another suffix than .parquet or .csv, a file with other content, or an input."""
    if output.suffix not in (".parquet", ".csv"):
        raise ValueError(f"output={str(output)!r}: the name must end in .parquet or .csv")
    require_own(output, is_recommendations, "recommendations of this command", inputs)


def write_recommendations(
    model: Recommender, query: Query, output: Path, *, plan: Plan, identity: Mapping[str, Any]
) -> int:
    """Write the recommendations for ``query`` with ``plan``; return how many parts an earlier call had computed.

    ``output`` ends in .parquet or .csv and is replaced once the new recommendations are complete. The plain values of
    ``identity`` identify the model and its data. ConfigError for a file with other content, ValueError for another
    suffix, LockedError if another process writes this file. After a NoSpaceError the same call can continue.
    """
    require_output(output)
    content = {**identity, "query": array_digest(query), "plan": array_digest(plan), "size": USERS_OF_A_PART}
    content["version"] = package_version()
    parts_folder = output.with_name(f".{output.name}.parts")
    parts_folder.mkdir(parents=True, exist_ok=True)
    with locked(parts_folder / ".lock", wait=False):
        folder = parts_folder / digest(content, 32)
        for other in parts_folder.iterdir():  # left by other calls
            if other.is_dir() and other != folder:
                shutil.rmtree(other)
        folder.mkdir(exist_ok=True)
        starts = range(0, len(query), USERS_OF_A_PART)
        parts = {folder / f"{number:08}.parquet": slice(at, at + USERS_OF_A_PART) for number, at in enumerate(starts)}
        missing = [part for part in parts if not is_complete(part)]
        for part in tqdm(missing, desc="Recommend", unit="part", disable=None):
            write_part(model.answer(query[parts[part]], plan), part)
        warn_unknown(query, plan)
        join(list(parts), output)
        shutil.rmtree(parts_folder, ignore_errors=True)
    return len(parts) - len(missing)


def warn_unknown(query: Query, plan: Plan) -> None:
    """Warn about ids that the model does not know, and items to exclude of other users only."""
    if plan.excluded and not {*plan.excluded} & {str(name) for name in query.names.tolist()}:
        logger.warning("exclude: none of its users (the first: %s) gets a list", next(iter(plan.excluded)))
    if query.unknown_items:
        logger.warning("%d items in histories are unknown to the model and were skipped", query.unknown_items)
    if query.unknown_users:
        logger.warning("%d users are unknown to the model and got the most popular items", query.unknown_users)
