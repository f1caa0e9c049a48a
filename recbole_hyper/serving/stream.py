"""Recommendations for any number of users into one file: in parts that a killed process leaves, joined at the end.

The parts lie in a hidden folder beside the output, under the plan that they belong to. A part depends on nothing but
the plan, so that a file that was made in several goes is that of an uninterrupted one.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from tqdm import tqdm

from recbole_hyper.data.prepare.guess import head, separator_of
from recbole_hyper.data.prepare.sources import SourceFile
from recbole_hyper.evaluation.results import package_version
from recbole_hyper.files import digest, file_digest, locked, read_json, replaced, write_json
from recbole_hyper.serving.histories import column_of
from recbole_hyper.serving.recommender import Asked, Recommender

logger = logging.getLogger("recbole_hyper")

KINDS = (".parquet", ".csv")
_BATCH = 8192  # users of a part
_TYPES = (pa.string(), pa.int32(), pa.string(), pa.float32(), pa.bool_())
_SCHEMA = pa.schema(zip(("user_id", "position", "item_id", "score", "popular"), _TYPES, strict=True))


@dataclass(frozen=True)
class Question:
    """Who is asked about: ``n`` users, of whom ``part`` gives those from a start to before a stop.

    ``content`` is what decides the answers, as plain values.
    """

    n: int
    part: Callable[[int, int], Asked]
    content: dict[str, Any]


def about_users(model: Recommender, file: Path | None, unknown: str = "skip", cold: str = "popular") -> Question:
    """Return the question about the users in ``file``, None for all users with a history in the data.

    ValueError for what ``unknown`` and ``cold`` refuse, or a file that holds no ids.
    """
    store = model.store
    # once each: pre-split files may give a user several rows
    known = store.user_tokens[np.unique(store.users)]
    users = known if file is None else read_id_file(file, model.config["USER_ID_FIELD"], "user_id")
    if "error" in (unknown, cold):
        model.ask(users=users, unknown=unknown, cold=cold)  # refused before any answer
    content = {"users": "all" if file is None else file_digest(file), "unknown": unknown, "cold": cold}
    return Question(
        len(users), lambda start, stop: model.ask(users=users[start:stop], unknown=unknown, cold=cold), content
    )


def about_histories(model: Recommender, file: Path, unknown: str = "skip", cold: str = "popular") -> Question:
    """Return the question about the users of a table of interactions (text or parquet), in order of appearance.

    The table is held as numbers while its users are asked about. Raises ValueError as ``Recommender.recommend``.
    """
    asked = model.ask(histories=_read(file, model.config["TIME_FIELD"]), unknown=unknown, cold=cold)
    tell_skipped(asked.unknown_items, asked.unknown_users)  # of all, where a part knows of none
    content = {"histories": file_digest(file), "unknown": unknown, "cold": cold}
    return Question(len(asked), lambda start, stop: asked[start:stop], content)


def read_id_file(path: Path, own: str, field: str) -> Any:
    """Return the ids in a file as text: the only column of a table, else that of the field; a line each of .txt.

    ``own`` is the run's name of the ``field``, user_id or item_id. Empty lines, and the byte order mark that some
    editors write, are no ids. ValueError where there is no such column.
    """
    if path.suffix == ".txt":
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text: {error}") from error
        return pd.Series([line.strip() for line in lines if line.strip()], dtype=str).to_numpy(dtype=str)
    table = _read(path)
    names = table.column_names
    name = names[0] if len(names) == 1 else column_of(names, own, field)
    if name is None:
        raise ValueError(f"{path} has no column {own!r}; it has {', '.join(names)}")
    return table.column(name).cast(pa.string()).to_pandas().to_numpy(dtype=str)


def _read(path: Path, time: str = "timestamp") -> pa.Table:
    """Read a table whose ids stay the texts that they are, less blanks around them; the column ``time`` has any type.

    Names end before the colon of an atomic file.
    """
    if path.suffix == ".parquet":
        try:
            table = pa.parquet.read_table(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is no parquet file: {error}") from error
    else:
        table = _read_text(path, time)
    return table.rename_columns([name.partition(":")[0].strip() for name in table.column_names])


def _read_text(path: Path, time: str) -> pa.Table:
    file = SourceFile(path)
    first = next(iter(head(file)), "")
    if first.lstrip().startswith(("{", "[")):
        raise ValueError(f"{path} is JSON; a text with a header and separators, or parquet, is needed")
    parse = pa.csv.ParseOptions(delimiter=separator_of([first]))
    with file.open(progress=False) as stream:
        data = stream.read()
    try:
        names = pa.csv.open_csv(pa.BufferReader(data), parse_options=parse).schema.names
        bare = {name: name.partition(":")[0].strip() for name in names}
        when = column_of(bare.values(), time, "timestamp")
        # an id like 007 or NA is text, and so is everything but a time
        kinds = {name: pa.string() for name in names if bare[name] != when}
        convert = pa.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
        table = pa.csv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as a table with a header: {error}") from error
    for place, name in enumerate(names):
        if name in kinds:
            table = table.set_column(place, name, pc.utf8_trim_whitespace(table.column(place)))
    return table


def write_recommendations(
    model: Recommender, question: Question, output: Path, *, options: Mapping[str, Any], identity: Mapping[str, Any]
) -> int:
    """Write the answers to ``question`` into ``output``, and go on where an earlier call for the same was stopped.

    Args:
        model, question: what answers to what.
        output: file that ends in .parquet or .csv; an earlier one is replaced when the new one is complete.
        options: k, exclude_seen, items and exclude of ``Recommender.recommend``.
        identity: plain values that tell this model and its data from others.

    Returns the number of parts that were there already. ValueError for another ending, or options that are refused;
    NoSpaceError where the disk is full: the parts stay, and the same call goes on with space; LockedError where another
    process writes this file.
    """
    require_kind(output)
    allowed = model.allowed(options.get("items"), options.get("exclude"))
    seen = {"k": options["k"], "exclude_seen": options["exclude_seen"]}
    model.answer(question.part(0, 0), **seen)  # refuses bad options before any file
    mask = digest(None if allowed is None else allowed.tolist())
    plan = {**identity, **question.content, **seen, "allowed": mask, "n": question.n, "batch": _BATCH}
    plan["version"] = package_version()
    folder = output.with_name(f".{output.name}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", wait=False):
        _begin(folder, plan)
        parts = [folder / f"{number:08}{output.suffix}" for number in range(-(-question.n // _BATCH))]
        there, unknown_users = sum(part.is_file() for part in parts), 0
        with tqdm(total=question.n, desc="Recommend", unit="user", disable=None) as bar:
            for number, part in enumerate(parts):
                start, stop = number * _BATCH, min((number + 1) * _BATCH, question.n)
                if not part.is_file():
                    asked = question.part(start, stop)
                    unknown_users += asked.unknown_users
                    write_part(model.answer(asked, **seen, allowed=allowed), part)
                bar.update(stop - start)
        tell_skipped(0, unknown_users)  # of histories nothing is skipped any more
        _join(parts, output)
        shutil.rmtree(folder, ignore_errors=True)
    return there


def tell_skipped(items: int, users: int) -> None:
    """Warn of ids that the model does not know and that were skipped, where there are any."""
    if items or users:
        logger.warning("skipped, as the model does not know them: %d items in histories, %d users", items, users)


def require_kind(output: Path) -> None:
    """Raise ValueError for a file that is neither .parquet nor .csv."""
    if output.suffix not in KINDS:
        raise ValueError(f"output={str(output)!r}: the name must end in {' or '.join(KINDS)}")


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Keep the parts of the same plan, remove those of another."""
    file = folder / "plan.json"
    try:
        same = file.is_file() and read_json(file) == plan
    except ValueError:
        same = False
    if same:
        return
    for entry in folder.iterdir():
        if entry.name != ".lock":
            entry.unlink()
    write_json(file, plan)


def write_part(frame: pd.DataFrame, part: Path) -> None:
    """Write some answers as a parquet file, or as lines of csv without a header; whole or not at all."""
    names = {"user_id": frame["user_id"].astype(str), "item_id": frame["item_id"].astype(str)}
    table = pa.Table.from_pandas(frame.assign(**names), schema=_SCHEMA, preserve_index=False)
    table = table.replace_schema_metadata(None)
    with replaced(part) as file:
        if part.suffix == ".parquet":
            pa.parquet.write_table(table, file)
        else:
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))


def _join(parts: list[Path], output: Path) -> None:
    with replaced(output) as whole:
        if output.suffix == ".parquet":
            with pa.parquet.ParquetWriter(whole, _SCHEMA) as writer:
                for part in parts:
                    writer.write_table(pa.parquet.read_table(part))
            return
        with whole.open("wb") as file:
            file.write((",".join(_SCHEMA.names) + "\n").encode())
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, file, 1 << 20)
