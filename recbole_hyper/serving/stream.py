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
from tqdm import tqdm

from recbole_hyper.data.formats import Layout
from recbole_hyper.evaluation.results import package_version
from recbole_hyper.files import digest, file_digest, locked, read_json, write_json
from recbole_hyper.outputs import require_own
from recbole_hyper.serving.inputs import read_history_file, read_id_file
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
    note: str = ""  # how the question was read, for people


def about_users(
    model: Recommender,
    source: Path | list[str] | None,
    unknown: str = "skip",
    cold: str = "popular",
    layout: Layout | None = None,
) -> Question:
    """Return the question about the users in a file or a list of ids, None for all users with a history in the data.

    ValueError for what ``unknown`` and ``cold`` refuse, or a file that holds no ids.
    """
    store = model.store
    # once each: pre-split files may give a user several rows
    known = store.user_tokens[np.unique(store.users)]
    users: Any = known if source is None else source
    if isinstance(source, Path):
        users = read_id_file(source, model.names, "user_id", layout)
    if "error" in (unknown, cold):
        model.query(users=users, unknown=unknown, cold=cold)  # refused before any answer
    content = {"users": digest(list(map(str, users)), 64), "unknown": unknown, "cold": cold}
    return Question(
        len(users), lambda start, stop: model.query(users=users[start:stop], unknown=unknown, cold=cold), content
    )


def about_histories(
    model: Recommender, file: Path, unknown: str = "skip", cold: str = "popular", layout: Layout | None = None
) -> Question:
    """Return the question about the users of a table of interactions (text or parquet), in order of appearance.

    The table is held as numbers while its users are asked about. Raises ValueError as ``Recommender.recommend``.
    """
    histories = read_history_file(file, model.names, layout, model.unit)
    query = model.query(histories=histories, unknown=unknown, cold=cold)
    tell_skipped(query.unknown_items, query.unknown_users)  # of all, where a part knows of none
    content = {"histories": file_digest(file), "unknown": unknown, "cold": cold}
    note = f"histories in order: {histories.order}"
    return Question(len(query), lambda start, stop: query[start:stop], content, note)


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
