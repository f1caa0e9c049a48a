"""Raw file to atomic file: read, order, filter, count, write."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from recbole_hyper.data import formats, guess
from recbole_hyper.data.archives import SourceFile, contents, parts_of, pick
from recbole_hyper.data.columns import FIELDS
from recbole_hyper.data.ids import escaped
from recbole_hyper.data.malformed import Malformed
from recbole_hyper.data.prepare import catalogue
from recbole_hyper.data.prepare.catalogue import Candidate, Entry
from recbole_hyper.data.prepare.interactions import CHECKS, Interactions, read
from recbole_hyper.data.prepare.recipe import Recipe, apply
from recbole_hyper.data.prepare.statistics import Statistics, describe
from recbole_hyper.data.prepare.writer import NO_IDS, write_interactions
from recbole_hyper.data.source import CARD
from recbole_hyper.data.tables import open_table
from recbole_hyper.data.where import parse_where
from recbole_hyper.errors import DataError, did_you_mean
from recbole_hyper.files import replaced, write_json
from recbole_hyper.recbole_files import recbole_folder

MAX_MALFORMED = 0.001
ORDERS = ("time", "file")


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
    where: str | None = None,
    order: str = "time",
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
        format: raw format; None takes the one that the catalogue names for the file, else the file's own looks.
        layout: columns, separator, header and time format of generic formats; what is left out is guessed and said.
        changes: fields of ``catalogue.Recipe`` to set instead of the catalogue's.
        where: condition that rows fulfil, see :mod:`recbole_hyper.data.where`; None takes all.
        order: ``time``, or ``file``: no times are read, and the order of a user's rows is that of the source.
        max_malformed: largest accepted share of unreadable lines.
        overwrite: replace a file that prepare has not written itself.
        progress: show progress bars; None shows them on a terminal only.
        say: told what is going on, a line at a time.

    Raises:
        DataError: wrong arguments, unreadable sources, nothing left, or counts that the catalogue forbids.
    """
    entry = _entry(name, has_source=source is not None)
    path = Path(output) / name / f"{name}.inter"
    _check_target(path, overwrite)
    condition = None if where is None else parse_where(where)
    if order not in ORDERS:
        raise DataError(f"order={order!r} is unknown; allowed: {', '.join(ORDERS)}")
    with contextlib.ExitStack() as stack:
        if source is None:
            say(entry.licence)
            source = catalogue.fetch(entry, Path(stack.enter_context(tempfile.TemporaryDirectory())), say)
        file, candidate = choose(entry, Path(source), format, timed=order == "time")
        before = file.state()
        recipe = _recipe(entry, candidate, changes or {})
        malformed = Malformed(file.name, max_malformed)
        rated = recipe.threshold is not None or "rating" in ((layout or formats.Layout()).columns or {})
        table = open_table(
            file,
            layout,
            format=candidate.format,
            fields=FIELDS if order == "time" else tuple(name for name in FIELDS if name != "timestamp"),
            optional=() if rated and recipe.threshold is None else ("rating",),
            others=condition.columns if condition else (),
        )
        table = dataclasses.replace(table, blank_ratings=not rated and bool(table.form.own))
        given = formats.find(candidate.format).set(layout, candidate.format)
        options = guess.told(given, table.form) if given.own else []
        if options or (format is None and candidate not in entry.sources):
            say("guessed: " + shlex.join([f"--format={candidate.format}", *options]))
        say(f"reading {file.name}" + (f" of {file.path.name}" if file.member else "") + f" as {candidate.format}")
        data = read(table, malformed, condition, progress)
        _tell_read(data, malformed, say)
        data.user_tokens = pc.replace_substring_regex(data.user_tokens, f"^{re.escape(candidate.user_prefix)}", "")
        if table.form.refusing and order == "time":
            CHECKS[table.form.refusing](data)
        data, steps = apply(data, recipe)
        positions = table.form.positions or order == "file"
        result = Prepared(path, describe(data), entry, tuple(steps), malformed, positions)
        _check_counts(entry, result.statistics)
        card = _card(result, file, candidate, recipe) | {"columns": table.columns, "where": where}
        file.check_unchanged(before)
        _write(data, path, card, progress, say)
    return result


def _tell_read(data: Interactions, malformed: Malformed, say: Callable[[str], None]) -> None:
    if malformed.count:
        say(f"{malformed.count:,} lines could not be read and were left out; the first ones:\n{malformed.listing()}")
    if data.ratings is not None and (blank := int(np.isnan(data.ratings).sum())):
        say(f"{blank:,} ratings are no numbers and are left blank")
        if blank == len(data):
            data.ratings = None


def _recipe(entry: Entry, candidate: Candidate, changes: dict[str, Any]) -> Recipe:
    """Return the entry's recipe without what has been done to the file, with the user's changes."""
    unfiltered = dataclasses.replace(entry.recipe, filter="none", min_user=0, min_item=0)
    left = {"nothing": entry.recipe, "filter": unfiltered, "all": Recipe()}
    recipe = dataclasses.replace(left[candidate.done], **changes)
    recipe.check()
    return recipe


def _card(result: Prepared, file: SourceFile, candidate: Candidate, recipe: Recipe) -> dict[str, Any]:
    """Return what SOURCE.json says, but for the checksum of the file that is still to be written."""
    entry = result.entry
    return {
        "dataset": entry.name,
        "about": entry.about or None,
        "source": {
            "file": file.path.name,
            "member": file.member,
            "sha256": file.sha256(),
            "format": candidate.format,
        },
        "address": entry.address or None,
        "terms": entry.terms or None,
        "tokens": entry.tokens or None,
        "timestamps": "positions in the user's sequence" if result.positions else "Unix seconds",
        "recipe": dataclasses.asdict(recipe),
        "rows": dict(result.steps),
        "malformed_lines": result.malformed.count,
        "statistics": dataclasses.asdict(result.statistics),
        "file": {"name": result.path.name},
        "prepared": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "recbole_hyper": _version(),
    }


def _version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("recbole-hyper")
    return "unknown"


def _write(
    data: Interactions, path: Path, card: dict[str, Any], progress: bool | None, say: Callable[[str], None]
) -> None:
    """Write the file and its card: both under temporary names, and both complete before either takes its place."""
    hidden = None if progress is None else not progress
    data.user_tokens, card["escaped"] = _safe(data.user_tokens, "user", {}, say)
    data.item_tokens, card["escaped"] = _safe(data.item_tokens, "item", card["escaped"], say)
    with replaced(path.with_name(CARD)) as card_part, replaced(path) as part:
        with tqdm(total=len(data), unit=" rows", unit_scale=True, desc=path.name, disable=hidden) as bar:
            card["file"]["sha256"] = write_interactions(data, part, progress=bar.update)
        write_json(card_part, card)


def _safe(
    tokens: pa.Array, kind: str, before: dict[str, int], say: Callable[[str], None]
) -> tuple[pa.Array, dict[str, int]]:
    """Return ids as the file holds them, and how many of a kind are not written as they are."""
    safe, count = escaped(tokens, NO_IDS)
    if count:
        say(f"{count:,} {kind} ids hold what RecBole's reader would lose and are written with %XX; runs read them back")
    return safe, before | ({f"{kind}_id": count} if count else {})


def _entry(name: str, *, has_source: bool) -> Entry:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise DataError(f"data set name {name!r}: use letters, digits, '.', '_' and '-', since it names a folder")
    entry = catalogue.entries().get(name)
    if has_source:
        return entry or Entry(name=name, about="")
    if entry is None:
        hint = did_you_mean(name, catalogue.entries(), " Did you mean ")
        raise DataError(
            f"data set {name!r} is not in the catalogue ({', '.join(catalogue.entries())}).{hint} "
            "Your own data need --source=FILE (csv, json lines, parquet, ... are told apart; else --format)"
        )
    if not entry.package:
        get = f"get {entry.get} ({entry.address}) and give it by --source=FILE_OR_FOLDER"
        raise DataError(f"{name} cannot be fetched by itself: {get}")
    return entry


def _check_target(path: Path, overwrite: bool) -> None:
    """Refuse, before the long work, a place that cannot be written to or holds someone else's file."""
    place = next(parent for parent in path.absolute().parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise DataError(f"{place} is no folder that can be written to; give another one by --output")
    if path.exists() and not path.with_name(CARD).exists() and not overwrite:
        raise DataError(f"{path} exists and was not written by prepare; give --overwrite to replace it")


def choose(entry: Entry, source: Path, format: str | None, timed: bool = True) -> tuple[SourceFile, Candidate]:
    """Find the raw file in ``source`` and how to read it; DataError where no file fits, or its format is open."""
    files = contents(source)
    if format is not None:
        own = [candidate for candidate in entry.sources if candidate.format == format]
        patterns = [pattern for candidate in own for pattern in candidate.files]
        generic = bool(formats.find(format).own)
        file = files[0] if len(files) == 1 else parts_of(source, files) if generic and not own else None
        file = file or pick(files, [*patterns, *formats.find(format).files])
        if file is None:
            raise DataError(f"{source} holds several files, none named as {format} files are; give the file itself")
        return file, own[0] if own else Candidate(format, (), done="all" if format == "atomic" else "nothing")
    usual = Candidate("atomic", (f"{entry.name}.inter", "*.inter"), done="all")
    for candidate in (*entry.sources, usual):
        if file := pick(files, candidate.files):
            return file, candidate
    file = files[0] if len(files) == 1 else parts_of(source, files)
    if file is not None and not entry.sources:
        return file, Candidate(guess.format_of(file, timed), ())
    wanted = ", ".join(f"{name} ({c.format})" for c in (*entry.sources, usual) for name in c.files)
    raise DataError(
        f"{source} holds no file known for {entry.name}; looked for {wanted}. For a file of another name say how to "
        f"read it by --format=NAME ({', '.join(sorted(formats.formats()))})"
    )


def _check_counts(entry: Entry, statistics: Statistics) -> None:
    if not entry.exact:
        return
    expected = entry.published[0]
    found = (statistics.users, statistics.items, statistics.interactions)
    if found != (expected.users, expected.items, expected.interactions):
        raise DataError(
            f"{entry.name} must have {expected.users:,} users, {expected.items:,} items and "
            f"{expected.interactions:,} interactions; the source has {found[0]:,}, {found[1]:,} and {found[2]:,}. "
            "The file is incomplete or another version; fetch it again. Nothing was written"
        )


def installed_folder(name: str) -> Path | None:
    """Return the folder of a data set that the recbole package carries (ml-100k), or None."""
    folder = recbole_folder() / "dataset_example" / name
    return folder if folder.is_dir() else None
