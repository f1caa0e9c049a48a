"""Recommendations for any number of users in one file, computed in parts, so that a killed call can continue.

The parts are in a hidden folder beside the output. A part depends only on the query and the plan: interrupted calls and
several processes write the same file as one call.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from recbole_hyper.evaluation.results import package_version
from recbole_hyper.files import digest, locked
from recbole_hyper.outputs import require_own
from recbole_hyper.serving.parts import is_complete, is_recommendations, join, write_part
from recbole_hyper.serving.query import Query, array_digest
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Plan

logger = logging.getLogger("recbole_hyper")

USERS_OF_A_PART = 8192


class Part(NamedTuple):
    """The rows of a query whose answers are in a file."""

    rows: slice
    file: Path


#: writes the answers to a query under a plan into the files of parts
Compute = Callable[[Query, Plan, Sequence[Part]], None]


def all_users(model: Recommender) -> Any:
    """Return the ids of all users with a history in the data."""
    # once each: pre-split files may give a user several rows
    return model.store.user_tokens[np.unique(model.store.users)]


def require_output(output: Path, inputs: Iterable[Path | None] = ()) -> None:
    """Raise ValueError for a file that is neither .parquet nor .csv, one that holds something else, or an input."""
    if output.suffix not in (".parquet", ".csv"):
        raise ValueError(f"output={str(output)!r}: the name must end in .parquet or .csv")
    require_own(output, is_recommendations, "recommendations of this command", inputs)


def write_recommendations(
    model: Recommender,
    query: Query,
    output: Path,
    *,
    plan: Plan,
    identity: Mapping[str, Any],
    csv_safe: bool = False,
    compute: Compute | None = None,
) -> int:
    """Write the recommendations for ``query`` into ``output``; continue an earlier call that was stopped.

    A file of recommendations is replaced when the new one is complete.

    Args:
        model, query, plan: the model, the histories, and the rules of their lists.
        output: file that ends in .parquet or .csv.
        identity: plain values that tell this model and its data from others.
        csv_safe: see ``join``.
        compute: writes the parts that are missing; None computes them in this process.

    Returns the number of parts that an earlier call had computed. ConfigError for a file with other content; ValueError
    for another ending; NoSpaceError for a full disk, where the parts stay and the same call can continue; LockedError
    if another process writes this file.
    """
    require_output(output)
    content = {**identity, "query": array_digest(query), "plan": array_digest(plan), "size": USERS_OF_A_PART}
    content["version"] = package_version()
    place = output.with_name(f".{output.name}.parts")
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / ".lock", wait=False):
        folder = place / digest(content, 32)
        for other in place.iterdir():  # of another call
            if other.is_dir() and other != folder:
                shutil.rmtree(other)
        folder.mkdir(exist_ok=True)
        starts = range(0, len(query), USERS_OF_A_PART)
        rows = [slice(at, at + USERS_OF_A_PART) for at in starts]
        parts = [Part(some, folder / f"{number:08}.parquet") for number, some in enumerate(rows)]
        missing = [part for part in parts if not is_complete(part.file)]
        if compute is None:
            for part in tqdm(missing, desc="Recommend", unit="part", disable=None):
                write_part(model.answer(query[part.rows], plan), part.file)
        elif missing:
            compute(query, plan, missing)
        tell_skipped(query)
        join([part.file for part in parts], output, csv_safe=csv_safe)
        shutil.rmtree(place, ignore_errors=True)
    return len(parts) - len(missing)


def tell_skipped(query: Query) -> None:
    """Warn of unknown ids that were skipped."""
    if query.unknown_items or query.unknown_users:
        logger.warning(
            "skipped, as the model does not know them: %d items in histories, %d users",
            query.unknown_items, query.unknown_users,
        )  # fmt: skip
