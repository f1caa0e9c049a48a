"""Recommendations for any number of users into one file: in parts that a killed process leaves, joined at the end.

The parts lie in a hidden folder beside the output, under the plan that they belong to. A part depends on nothing but
the plan, so that a file that was made in several goes is that of an uninterrupted one.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
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
from recbole_hyper.files import digest, file_digest, locked, read_json, write_json
from recbole_hyper.outputs import require_own
from recbole_hyper.serving.histories import column_of
from recbole_hyper.serving.parts import is_complete, is_recommendations, join, require_kind, write_part
from recbole_hyper.serving.recommender import Query, Recommender
from recbole_hyper.serving.rules import Plan

logger = logging.getLogger("recbole_hyper")

_BATCH = 8192  # users of a part


@dataclass(frozen=True)
class Question:
    """Who is asked about: ``n`` users, of whom ``part`` gives those from a start to before a stop.

    ``content`` is what decides the answers, as plain values.
    """

    n: int
    part: Callable[[int, int], Query]
    content: dict[str, Any]


def about_users(
    model: Recommender, source: Path | list[str] | None, unknown: str = "skip", cold: str = "popular"
) -> Question:
    """Return the question about the users in a file or a list of ids, None for all users with a history in the data.

    ValueError for what ``unknown`` and ``cold`` refuse, or a file that holds no ids.
    """
    store = model.store
    # once each: pre-split files may give a user several rows
    known = store.user_tokens[np.unique(store.users)]
    users: Any = known if source is None else source
    if isinstance(source, Path):
        users = read_id_file(source, model.config["USER_ID_FIELD"], "user_id")
    if "error" in (unknown, cold):
        model.query(users=users, unknown=unknown, cold=cold)  # refused before any answer
    content = {"users": digest(list(map(str, users)), 64), "unknown": unknown, "cold": cold}
    return Question(
        len(users), lambda start, stop: model.query(users=users[start:stop], unknown=unknown, cold=cold), content
    )


def about_histories(model: Recommender, file: Path, unknown: str = "skip", cold: str = "popular") -> Question:
    """Return the question about the users of a table of interactions (text or parquet), in order of appearance.

    The table is held as numbers while its users are asked about. Raises ValueError as ``Recommender.recommend``.
    """
    query = model.query(histories=read_table(file, model.config["TIME_FIELD"]), unknown=unknown, cold=cold)
    tell_skipped(query.unknown_items, query.unknown_users)  # of all, where a part knows of none
    content = {"histories": file_digest(file), "unknown": unknown, "cold": cold}
    return Question(len(query), lambda start, stop: query[start:stop], content)


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
    table = read_table(path)
    names = table.column_names
    name = names[0] if len(names) == 1 else column_of(names, own, field)
    if name is None:
        raise ValueError(f"{path} has no column {own!r}; it has {', '.join(names)}")
    return table.column(name).cast(pa.string()).to_pandas().to_numpy(dtype=str)


def read_exclusions(path: Path, user: str, item: str) -> Any:
    """Return the items to leave out: a mapping by user where the file has a column of users, else ids for everyone."""
    if path.suffix == ".txt":
        return read_id_file(path, item, "item_id")
    table = read_table(path)
    owner, own = column_of(table.column_names, user, "user_id"), column_of(table.column_names, item, "item_id")
    if owner is None or own is None or owner == own:
        return read_id_file(path, item, "item_id")
    frame = table.select([owner, own]).cast(pa.schema([(owner, pa.string()), (own, pa.string())])).to_pandas()
    return {name: group.tolist() for name, group in frame.groupby(owner, sort=False)[own]}


def read_boosts(path: Path) -> dict[str, float]:
    """Return {item id: number} from a table with a column ``boost``; ValueError where there is none."""
    table = read_table(path)
    item = column_of(table.column_names, "item_id", "item_id")
    if item is None or "boost" not in table.column_names:
        raise ValueError(f"{path}: columns item_id and boost are needed; it has {', '.join(table.column_names)}")
    try:
        numbers = table["boost"].cast(pa.float64()).to_pylist()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: the column boost holds what is no number ({error})") from error
    return dict(zip(table[item].cast(pa.string()).to_pylist(), numbers, strict=True))


def read_table(path: Path, time: str = "timestamp") -> pa.Table:
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


def require_output(output: Path, inputs: Iterable[Path | None] = ()) -> None:
    """Raise ValueError for a file that is neither .parquet nor .csv, one that holds something else, or an input."""
    require_kind(output)
    require_own(output, is_recommendations, "recommendations of this command", inputs)


def write_recommendations(
    model: Recommender,
    question: Question,
    output: Path,
    *,
    plan: Plan,
    identity: Mapping[str, Any],
    csv_safe: bool = False,
) -> int:
    """Write the answers to ``question`` into ``output``, and go on where an earlier call for the same was stopped.

    What is there already is replaced when the new file is complete, and only if it holds recommendations.

    Args:
        model, question, plan: what answers to what, with which lists.
        output: file that ends in .parquet or .csv.
        identity: plain values that tell this model and its data from others.
        csv_safe: see ``write_part``.

    Returns the number of parts that were there already. ConfigError for a file that holds something else; ValueError
    for another ending; NoSpaceError where the disk is full: the parts stay, and the same call goes on with space;
    LockedError where another process writes this file.
    """
    require_output(output)
    content = {**identity, **question.content, "plan": plan.digest(), "n": question.n, "batch": _BATCH}
    content |= {"version": package_version(), "csv_safe": csv_safe}
    folder = output.with_name(f".{output.name}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", wait=False):
        _begin(folder, content)
        parts = [folder / f"{number:08}{output.suffix}" for number in range(-(-question.n // _BATCH))]
        complete, unknown_users = {part for part in parts if is_complete(part)}, 0
        with tqdm(total=question.n, desc="Recommend", unit="user", disable=None) as bar:
            for number, part in enumerate(parts):
                start, stop = number * _BATCH, min((number + 1) * _BATCH, question.n)
                if part not in complete:
                    query = question.part(start, stop)
                    unknown_users += query.unknown_users
                    write_part(model.answer(query, plan), part, csv_safe=csv_safe)
                bar.update(stop - start)
        tell_skipped(0, unknown_users)  # of histories nothing is skipped any more
        join(parts, output)
        shutil.rmtree(folder, ignore_errors=True)
    return len(complete)


def tell_skipped(items: int, users: int) -> None:
    """Warn of ids that the model does not know and that were skipped, where there are any."""
    if items or users:
        logger.warning("skipped, as the model does not know them: %d items in histories, %d users", items, users)


def _begin(folder: Path, content: dict[str, Any]) -> None:
    """Keep the parts of a call for the same, remove those of another."""
    file = folder / "content.json"
    try:
        same = file.is_file() and read_json(file) == content
    except ValueError:
        same = False
    if same:
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != ".lock":
            entry.unlink()
    write_json(file, content)
