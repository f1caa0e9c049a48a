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

import pyarrow.compute as pc
from tqdm import tqdm

from recbole_hyper.data.prepare import catalogue, formats, guess
from recbole_hyper.data.prepare.catalogue import Candidate, Entry
from recbole_hyper.data.prepare.errors import Malformed, PrepareError
from recbole_hyper.data.prepare.interactions import CHECKS, Interactions, read
from recbole_hyper.data.prepare.recipe import Recipe, apply
from recbole_hyper.data.prepare.sources import SourceFile, contents, pick
from recbole_hyper.data.prepare.statistics import Statistics, describe
from recbole_hyper.data.prepare.writer import write_interactions
from recbole_hyper.errors import did_you_mean
from recbole_hyper.files import replaced, write_json
from recbole_hyper.recbole_files import recbole_folder

MAX_MALFORMED = 0.001
CARD = "SOURCE.json"


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
        format: raw format; None takes the one that the catalogue names for the file, else the file's own looks.
        layout: columns, separator, header and time format of generic formats; what is left out is guessed and said.
        changes: fields of ``catalogue.Recipe`` to set instead of the catalogue's.
        max_malformed: largest accepted share of unreadable lines.
        overwrite: replace a file that prepare has not written itself.
        progress: show progress bars; None shows them on a terminal only.
        say: told what is going on, a line at a time.

    Raises:
        PrepareError: wrong arguments, unreadable sources, nothing left, or counts that the catalogue forbids.
    """
    entry = _entry(name, has_source=source is not None)
    path = Path(output) / name / f"{name}.inter"
    _check_target(path, overwrite)
    with contextlib.ExitStack() as stack:
        if source is None:
            say(entry.licence)
            source = catalogue.fetch(entry, Path(stack.enter_context(tempfile.TemporaryDirectory())), say)
        file, candidate = choose(entry, Path(source), format)
        before = file.state()
        recipe = _recipe(entry, candidate, changes or {})
        malformed = Malformed(file.name, max_malformed)
        given = formats.find(candidate.format).set(layout, candidate.format)
        form = guess.completed(file, given)
        options = guess.told(given, form) if given.own else []
        if options or (format is None and candidate not in entry.sources):
            say("guessed: " + shlex.join([f"--format={candidate.format}", *options]))
        say(f"reading {file.name}" + (f" of {file.path.name}" if file.member else "") + f" as {candidate.format}")
        data = read(file, form, malformed, progress)
        if malformed.count:
            say(
                f"{malformed.count:,} lines could not be read and were left out; the first ones:\n{malformed.listing()}"
            )
        data.user_tokens = pc.replace_substring_regex(data.user_tokens, f"^{re.escape(candidate.user_prefix)}", "")
        if form.check:
            CHECKS[form.check](data)
        data, steps = apply(data, recipe)
        result = Prepared(path, describe(data), entry, tuple(steps), malformed, form.positions)
        _check_counts(entry, result.statistics)
        card = _card(result, file, candidate, recipe)
        file.check_unchanged(before)
        _write(data, path, card, progress)
    return result


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


def _write(data: Interactions, path: Path, card: dict[str, Any], progress: bool | None) -> None:
    """Write the file and its card: both under temporary names, and both complete before either takes its place."""
    hidden = None if progress is None else not progress
    with replaced(path.with_name(CARD)) as card_part, replaced(path) as part:
        with tqdm(total=len(data), unit=" rows", unit_scale=True, desc=path.name, disable=hidden) as bar:
            card["file"]["sha256"] = write_interactions(data, part, progress=bar.update)
        write_json(card_part, card)


def _entry(name: str, *, has_source: bool) -> Entry:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise PrepareError(f"data set name {name!r}: use letters, digits, '.', '_' and '-', since it names a folder")
    entry = catalogue.entries().get(name)
    if has_source:
        return entry or Entry(name=name, about="")
    if entry is None:
        hint = did_you_mean(name, catalogue.entries(), " Did you mean ")
        raise PrepareError(
            f"data set {name!r} is not in the catalogue ({', '.join(catalogue.entries())}).{hint} "
            "Your own data need --source=FILE (csv, json lines, parquet, ... are told apart; else --format)"
        )
    if not entry.package:
        get = f"get {entry.get} ({entry.address}) and give it by --source=FILE_OR_FOLDER"
        raise PrepareError(f"{name} cannot be fetched by itself: {get}")
    return entry


def _check_target(path: Path, overwrite: bool) -> None:
    """Refuse, before the long work, a place that cannot be written to or holds someone else's file."""
    place = next(parent for parent in path.absolute().parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise PrepareError(f"{place} is no folder that can be written to; give another one by --output")
    if path.exists() and not path.with_name(CARD).exists() and not overwrite:
        raise PrepareError(f"{path} exists and was not written by prepare; give --overwrite to replace it")


def choose(entry: Entry, source: Path, format: str | None) -> tuple[SourceFile, Candidate]:
    """Find the raw file in ``source`` and how to read it; PrepareError where no file fits, or its format is open."""
    files = contents(source)
    if format is not None:
        own = [candidate for candidate in entry.sources if candidate.format == format]
        patterns = [pattern for candidate in own for pattern in candidate.files]
        file = files[0] if len(files) == 1 else pick(files, [*patterns, *formats.find(format).files])
        if file is None:
            raise PrepareError(f"{source} holds several files, none named as {format} files are; give the file itself")
        return file, own[0] if own else Candidate(format, (), done="all" if format == "atomic" else "nothing")
    usual = Candidate("atomic", (f"{entry.name}.inter", "*.inter"), done="all")
    for candidate in (*entry.sources, usual):
        if file := pick(files, candidate.files):
            return file, candidate
    if len(files) == 1 and not entry.sources:
        return files[0], Candidate(guess.format_of(files[0]), ())
    wanted = ", ".join(f"{name} ({c.format})" for c in (*entry.sources, usual) for name in c.files)
    raise PrepareError(
        f"{source} holds no file known for {entry.name}; looked for {wanted}. For a file of another name say how to "
        f"read it by --format=NAME ({', '.join(sorted(formats.formats()))})"
    )


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
    folder = recbole_folder() / "dataset_example" / name
    return folder if folder.is_dir() else None
