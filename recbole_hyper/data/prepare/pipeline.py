"""Raw file to atomic file: read, order, filter, count, write."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare import catalogue, filters, formats, movielens_1m
from recbole_hyper.data.prepare.catalogue import Candidate, Entry, Recipe
from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import InteractionBuilder, Interactions
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.sources import SourceFile, contents, pick
from recbole_hyper.data.prepare.statistics import Statistics, describe
from recbole_hyper.data.prepare.values import to_seconds
from recbole_hyper.data.prepare.writer import write_interactions, write_json

MAX_MALFORMED = 0.001


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What ``prepare`` wrote: the file, its counts, the catalogue's entry and the steps with the rows each one left."""

    path: Path
    statistics: Statistics
    entry: Entry
    steps: tuple[tuple[str, int], ...]
    malformed: Malformed
    positions: bool


def prepare(
    name: str,
    *,
    source: str | Path | None = None,
    output: str | Path = "dataset",
    format: str | None = None,
    layout: formats.Layout | None = None,
    changes: dict[str, Any] | None = None,
    max_malformed: float = MAX_MALFORMED,
    overwrite: bool = False,
    progress: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Write ``output/name/name.inter`` and SOURCE.json from raw data.

    Args:
        name: a data set of the catalogue, or a name of your own with ``source`` and ``format``.
        source: raw file, archive or folder; may be None for ml-1m, which is then fetched.
        output: folder of data sets (RecBole's data_path).
        format: raw format; None takes the one that the catalogue names for the file.
        layout: columns and separators of generic formats.
        changes: fields of ``catalogue.Recipe`` to set instead of the catalogue's.
        max_malformed: largest accepted share of unreadable lines.
        overwrite: replace a file that prepare has not written itself.
        progress: show progress bars; None shows them on a terminal only.
        say: told what is going on, a line at a time.

    Raises:
        PrepareError: wrong arguments, unreadable sources, nothing left, or counts that the catalogue forbids.
    """
    entry = catalogue.find(name)
    if entry is None:
        if source is None:
            raise PrepareError(_unknown(name))
        entry = Entry(name=name, about="")
    path = Path(output) / name / f"{name}.inter"
    _check_target(path, overwrite)
    recipe = _changed(entry.recipe, changes or {})
    if source is not None:
        return _prepare(entry, Path(source), path, format, layout, recipe, changes, max_malformed, progress, say)
    if name != "ml-1m":
        raise PrepareError(f"{name} cannot be fetched by itself: {entry.get}; then give it by --source=FILE_OR_FOLDER")
    say(movielens_1m.TERMS)
    with tempfile.TemporaryDirectory() as folder:
        archive = movielens_1m.fetch(Path(folder), say)
        return _prepare(entry, archive, path, format, layout, recipe, changes, max_malformed, progress, say)


def _prepare(
    entry: Entry,
    source: Path,
    path: Path,
    format: str | None,
    layout: formats.Layout | None,
    recipe: Recipe,
    changes: dict[str, Any] | None,
    max_malformed: float,
    progress: bool | None,
    say: Callable[[str], None],
) -> Prepared:
    file, candidate = choose(entry, source, format)
    if candidate.as_is:
        recipe = _changed(Recipe(), changes or {})
    read = formats.reader(candidate.format, layout or formats.Layout())
    malformed = Malformed(file.name, max_malformed)
    builder = InteractionBuilder(malformed)
    say(f"reading {file.name} of {file.path.name} as {candidate.format}")
    with file.open(progress=progress) as stream:
        for chunk in read(stream, malformed):
            builder.add(chunk)
    data = builder.finish()
    if malformed.count:
        say(f"{malformed.count:,} lines could not be read and were left out; the first ones:\n{malformed.listing()}")
    if candidate.user_prefix:
        data.user_tokens = pc.replace_substring_regex(data.user_tokens, f"^{candidate.user_prefix}", "")
    data, steps = apply(data, recipe)
    statistics = describe(data)
    _check_counts(entry, statistics)
    checksum = write_interactions(data, path)
    positions = formats.FORMATS[candidate.format].positions
    card = {
        "dataset": entry.name,
        "about": entry.about,
        "source": {"file": file.path.name, "member": file.member, "sha256": file.sha256(), "format": candidate.format},
        "address": entry.address or None,
        "terms": entry.terms or "unknown to recbole_hyper; see the source",
        "tokens": entry.tokens or None,
        "timestamps": "positions in the user's sequence; the source has no times" if positions else "Unix seconds",
        "recipe": dataclasses.asdict(recipe),
        "rows": dict(steps),
        "malformed_lines": malformed.count,
        "statistics": statistics.as_dict(),
        "file": {"name": path.name, "sha256": checksum},
        "prepared": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "recbole_hyper": _version(),
    }
    write_json(card, path.with_name("SOURCE.json"))
    return Prepared(path, statistics, entry, tuple(steps), malformed, positions)


def _version() -> str:
    try:
        return importlib.metadata.version("recbole-hyper")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _unknown(name: str) -> str:
    close = catalogue.near(name)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return (
        f"data set {name!r} is not in the catalogue ({', '.join(catalogue.entries())}).{hint} "
        "Your own data need --source=FILE and --format=csv|parquet|sequences|atomic|..."
    )


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    return dataclasses.replace(recipe, **{key: value for key, value in changes.items() if value is not None})


def _check_target(path: Path, overwrite: bool) -> None:
    if path.exists() and not path.with_name("SOURCE.json").exists() and not overwrite:
        raise PrepareError(f"{path} exists and was not written by prepare; give --overwrite to replace it")


def choose(entry: Entry, source: Path, format: str | None) -> tuple[SourceFile, Candidate]:
    """Find the raw file in ``source`` and how to read it.

    Raises:
        PrepareError: no file fits, or the format of the file is not known.
    """
    files = contents(source)
    if format is not None:
        known = formats.FORMATS.get(format)
        if known is None:
            raise PrepareError(f"format {format!r} is unknown; known: {', '.join(sorted(formats.FORMATS))}")
        own = [candidate for candidate in entry.sources if candidate.format == format]
        patterns = [pattern for candidate in own for pattern in candidate.files]
        file = files[0] if len(files) == 1 else pick(files, [*patterns, *known.files])
        if file is None:
            raise PrepareError(f"{source} holds several files, none named as {format} files are; give the file itself")
        candidate = own[0] if own else Candidate(format, (), as_is=format == "atomic")
        return file, candidate
    for candidate in entry.sources:
        file = pick(files, candidate.files)
        if file is not None:
            return file, candidate
    for usual in (f"{entry.name}.inter", "*.inter"):
        file = pick(files, [usual])
        if file is not None:
            return file, Candidate("atomic", (), as_is=True)
    wanted = ", ".join(f"{name} ({c.format})" for c in entry.sources for name in c.files)
    raise PrepareError(
        f"{source} holds no file known for {entry.name}"
        + (f"; looked for {wanted}, *.inter (atomic)" if wanted else "")
        + ". For a file of another name say how to read it by --format=NAME "
        + f"({', '.join(sorted(formats.FORMATS))})"
    )


def apply(data: Interactions, recipe: Recipe) -> tuple[Interactions, list[tuple[str, int]]]:
    """Order the interactions and drop what the recipe drops; returns also the rows left after each step.

    Raises:
        PrepareError: a step leaves nothing, or the recipe has a value that is not allowed.
    """
    if recipe.duplicates not in filters.DUPLICATES:
        raise PrepareError(f"duplicates={recipe.duplicates!r} is unknown; allowed: {', '.join(filters.DUPLICATES)}")
    steps = [("read", len(data))]

    def keep(rows: np.ndarray, label: str, advice: str) -> Interactions:
        left = data if rows.all() else data.take(rows)
        steps.append((label, len(left)))
        if len(left) == 0:
            raise PrepareError(f"{label} leaves none of {len(data):,} interactions; {advice}")
        return left

    if recipe.since is not None:
        data = keep(data.times >= _seconds(recipe.since), f"since {recipe.since}", "give an earlier --since")
    if recipe.until is not None:
        data = keep(data.times <= _seconds(recipe.until), f"until {recipe.until}", "give a later --until")
    if recipe.threshold is not None:
        if data.ratings is None:
            raise PrepareError(f"threshold={recipe.threshold} needs ratings, but the source has none")
        data = keep(data.ratings >= recipe.threshold, f"rating >= {recipe.threshold:g}", "lower --threshold")
    data = data.in_order()
    if recipe.duplicates != "keep":
        rows = ~filters.repeated(data.users, data.items, recipe.duplicates)
        data = keep(rows, f"{recipe.duplicates} of repeated pairs", "")
    if recipe.filter != "none":
        rows = filters.filtered(
            data.users,
            data.items,
            method=recipe.filter,
            min_user=recipe.min_user,
            min_item=recipe.min_item,
            count=recipe.count,
        )
        label = f"{recipe.filter}, users >= {recipe.min_user}, items >= {recipe.min_item} {recipe.count}"
        data = keep(rows, label, "")
    return data, steps


def _seconds(text: str) -> float:
    for form in ("unix", "iso"):
        seconds, good = to_seconds(pa.array([str(text)]), form)
        if good[0]:
            return float(seconds[0])
    raise PrepareError(f"time {text!r} is no date (2019-01-31 or 2019-01-31 10:20:30) and no number of Unix seconds")


def _check_counts(entry: Entry, statistics: Statistics) -> None:
    if not entry.exact:
        return
    expected = entry.published[0]
    found = (statistics.users, statistics.items, statistics.interactions)
    if found != (expected.users, expected.items, expected.interactions):
        raise PrepareError(
            f"{entry.name} must have {expected.users:,} users, {expected.items:,} items and "
            f"{expected.interactions:,} interactions; the source has {found[0]:,}, {found[1]:,} and {found[2]:,}. "
            "The file is incomplete or another version; fetch it again. Nothing was written"
        )


def installed_folder(name: str) -> Path | None:
    """Return the folder of a data set that the recbole package carries (ml-100k), or None."""
    spec = importlib.util.find_spec("recbole")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "dataset_example" / name
        if folder.is_dir():
            return folder
    return None
