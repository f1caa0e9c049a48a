"""From a raw file to an atomic file: read, sort, filter, count, write."""

import contextlib
import dataclasses
import datetime
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables import formats, guess
from recbole_hyper.data.tables.archives import SourceFile, contents, matches, one_of, pick, unpacked
from recbole_hyper.data.tables.atomic import CARD, MISSING
from recbole_hyper.data.tables.interactions import Interactions, joined, write_interactions
from recbole_hyper.data.tables.malformed import Malformed
from recbole_hyper.data.tables.prepare import public
from recbole_hyper.data.tables.prepare.cleaning import Cleaning, apply, check_times
from recbole_hyper.data.tables.prepare.items import Items, read_items
from recbole_hyper.data.tables.prepare.public import Candidate, Entry
from recbole_hyper.data.tables.prepare.statistics import Statistics, describe
from recbole_hyper.data.tables.table import Table, open_table
from recbole_hyper.data.tables.times import UNITS, unit_of_times
from recbole_hyper.data.tables.where import parse_where
from recbole_hyper.errors import DataError, did_you_mean
from recbole_hyper.files import file_digest, read_json, replaced, write_json
from recbole_hyper.processes import package_version
from recbole_hyper.yaml_files import recbole_folder

MAX_MALFORMED = 0.001
_TABLES = ("*.csv", "*.tsv", "*.json", "*.jsonl", "*.ndjson", "*.parquet")
# columns of published files that interactions do not have, and what to know about them
_RETURNS = 'rows below 0 are returns, which count as purchases; --where="quantity > 0" leaves them out'
UNUSED = {
    **dict.fromkeys(("quantity", "Quantity", "qty"), _RETURNS),
    "item_id_list": "it has the items before each row; leave item_id out of the file to read its lists",
    "neg_items": "it has given candidates; eval_args mode: FILE ranks among those of lines 'user item item ...'",
}
ORDERS = ("time", "file")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What ``prepare`` wrote: the file, its statistics, the entry, and the number of rows after each step."""

    path: Path
    statistics: Statistics
    entry: Entry
    steps: tuple[tuple[str, int], ...]
    malformed: Malformed
    clock: str  # what the times are: ``dates``, ``steps``, or ``positions`` of the rows


def prepare(
    name: str,
    *,
    source: str | Path | None = None,
    output: str | Path = "dataset",
    format: str | None = None,
    layout: formats.Layout | None = None,
    changes: dict[str, Any] | None = None,
    where: str | None = None,
    items: str | Path | None = None,
    order: str = "time",
    max_malformed: float = MAX_MALFORMED,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Write ``output/name/name.inter`` and SOURCE.json from raw data, and ``name.item`` from a table of ``items``.

    Args:
        name: a public data set, or any name with your ``source``.
        source: raw file, archive or folder; None fetches ml-1m.
        output: folder of data sets (RecBole's data_path).
        format: raw format; None takes the format of the public data set, else guesses.
        layout: columns, separator, header and time format of generic formats; missing ones are guessed and printed.
        changes: fields of ``Cleaning`` that replace the cleaning of the public data set.
        where: condition that rows must meet, see :mod:`recbole_hyper.data.tables.where`; None keeps all.
        items: table of items, which is written to ``name.item``.
        order: ``time``, or ``file`` to ignore times and keep the order of the source.
        max_malformed: largest accepted share of unreadable lines.
        overwrite: replace a file that prepare did not write.
        say: called with each line of progress.

    Raises:
        DataError: wrong arguments, unreadable sources, or nothing left.
    """
    entry = _entry(name, has_source=source is not None)
    path = Path(output) / name / f"{name}.inter"
    for target in (path, path.with_suffix(".item")) if items is not None else (path,):
        _check_target(target, overwrite, [Path(read) for read in (source, items) if read is not None])
    condition = None if where is None else parse_where(where)
    if order not in ORDERS:
        raise DataError(f"order={order!r} is unknown; allowed: {', '.join(ORDERS)}")
    with contextlib.ExitStack() as stack:
        if source is None:
            say(entry.licence)
            source = public.fetch(entry, Path(stack.enter_context(tempfile.TemporaryDirectory())), say)
        layout = layout or formats.Layout()
        folder = stack.enter_context(unpacked(Path(source)))
        file, candidate = choose(entry, folder, format, order == "time", layout)
        origin = file if folder == Path(source) else SourceFile(Path(source))
        cleaning = _cleaning(entry, candidate, changes or {})
        malformed = Malformed(file.name, max_malformed)
        others = condition.columns if condition else ()
        listed = formats.find(candidate.format).kind == "sequences"
        table = open_table(
            file,
            layout,
            format=candidate.format,
            fields=[name for name in formats.FIELDS if order == "time" or name != "timestamp"],
            optional=[*(["rating"] if cleaning.threshold is None else ()), *(["timestamp"] if listed else ())],
            others=others,
        )
        options = guess.guessed_options(formats.find(candidate.format).set(layout, candidate.format), table.form)
        if options or (format is None and candidate not in entry.sources):
            say("guessed: " + shlex.join([f"--format={candidate.format}", *options]))
        what = f"{len(file.parts)} files" if file.parts else file.name
        say(f"reading {what}" + (f" of {origin.name}" if origin.name != what else "") + f" as {candidate.format}")
        clock = "positions" if listed or order == "file" else "steps" if table.form.time_format == "steps" else "dates"
        check_times(cleaning, clock)
        known_items = None if items is None else read_items(Path(items), table.columns["item_id"])
        data = joined(table.blocks(malformed, condition))
        if clock == "dates" and layout.time_format is None and table.form.time_format == "unix":
            if (unit := unit_of_times(data.times)) is None:  # numbers, where the format has seconds
                clock = "steps"
                check_times(cleaning, clock)
            elif unit != "unix":
                say(f"the times are read as {unit}")
                data.times /= UNITS[unit]
        _report_unreadable(data, malformed, say)
        _report_ids(data, table, say)
        for column in UNUSED.keys() & set(table.form.names) - {*table.columns.values(), *others}:
            say(f"the column {column} is not read: {UNUSED[column]}")
        if prefix := candidate.user_prefix:
            data.user_tokens = pc.replace_substring_regex(data.user_tokens, f"^{re.escape(prefix)}", "")
        if listed:
            data.number_rows()  # the lines of a user are joined
        data, steps = apply(data, cleaning, clock)
        result = Prepared(path, describe(data), entry, tuple(steps), malformed, clock)
        _report_ties(result, say)
        card = _card(result, origin, file, candidate, cleaning) | {"columns": table.columns, "where": where}
        _write(data, path, card, say, known_items)
        if items is None and path.with_suffix(".item").exists():
            say(f"{path.with_suffix('.item')} is from before; --items=FILE renews it")
    return result


def _report_unreadable(data: Interactions, malformed: Malformed, say: Callable[[str], None]) -> None:
    if malformed.count:
        say(f"{malformed.count:,} lines could not be read and were left out; the first ones:\n{malformed.listing()}")
    if malformed.unknown:
        say(f"{malformed.unknown:,} rows lack a value that --where compares, and are left out; if only the first line "
            "of an order has it, fill the others first (docs/data.md)")  # fmt: skip
    if data.ratings is not None and (blank := int(np.isnan(data.ratings).sum())):
        say(f"{blank:,} ratings are not numbers and are left blank")
        if blank == len(data):
            data.ratings = None


def _report_ids(data: Interactions, table: Table, say: Callable[[str], None]) -> None:
    """Say which user or item has more than a tenth of the rows, and several times its share, and which number rows."""
    rest = ", ".join(sorted({*table.form.names} - {*table.columns.values()}))
    for kind, codes, tokens in (("user", data.users, data.user_tokens), ("item", data.items, data.item_tokens)):
        counts, column = np.bincount(codes), table.columns[f"{kind}_id"]
        share = counts.max() / len(data)
        if rest and 20 < len(data) == len(tokens):
            say(f"each row has another {kind} (column {column}): is it a number of the rows? The other columns are "
                f"{rest}; name that of the {kind}s by --columns={kind}_id=...")  # fmt: skip
        if share > max(0.1, 5 / len(tokens)):
            token, name = tokens[int(counts.argmax())].as_py(), column if column.isidentifier() else f'"{column}"'
            condition = "{} != '{}'".format(name, token.replace("'", "''"))
            say(f"{share:.0%} of the rows have the {kind} {token!r}; if it is a placeholder, leave it out: --where=\""
                + re.sub(r'([\\"$`])', r"\\\1", condition) + '"')  # fmt: skip


def _report_ties(result: Prepared, say: Callable[[str], None]) -> None:
    if result.statistics.tied > 0.5 and not result.entry.about:
        say(
            f"{result.statistics.tied:.0%} of a user's neighbouring interactions have equal times, in the order of the "
            "file; sort the file by what orders them, or evaluate whole baskets: eval_args split {LB: valid_and_test}"
        )


def _cleaning(entry: Entry, candidate: Candidate, changes: dict[str, Any]) -> Cleaning:
    """Return the entry's cleaning, less the steps already done to the file, with the user's changes."""
    unfiltered = dataclasses.replace(entry.cleaning, filter="none", min_user=0, min_item=0)
    remaining = {"nothing": entry.cleaning, "filter": unfiltered, "all": Cleaning()}
    cleaning = dataclasses.replace(remaining[candidate.done], **changes)
    cleaning.check()
    return cleaning


def _card(
    result: Prepared, origin: SourceFile, file: SourceFile, candidate: Candidate, cleaning: Cleaning
) -> dict[str, Any]:
    """Return the content of SOURCE.json, except the checksum of the file, which is not written yet."""
    entry, member = result.entry, None if origin == file else file.name
    source = {"file": origin.name, "member": member, "sha256": origin.sha256(), "format": candidate.format}
    return {
        "dataset": entry.name,
        "about": entry.about or None,
        "source": source,
        "address": entry.address or None,
        "terms": entry.terms or None,
        "tokens": entry.tokens or None,
        "timestamps": {"dates": "Unix seconds", "steps": "steps", "positions": "positions in the user's sequence"}[
            result.clock
        ],
        "cleaning": dataclasses.asdict(cleaning),
        "rows": dict(result.steps),
        "malformed_lines": result.malformed.count,
        "statistics": dataclasses.asdict(result.statistics),
        "file": {"name": result.path.name},
        "prepared": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "recbole_hyper": package_version(),
    }


def _write(
    data: Interactions,
    path: Path,
    card: dict[str, Any],
    say: Callable[[str], None],
    items: Items | None,
) -> None:
    """Write the files and their card under temporary names, and rename them when all are complete."""
    for kind, tokens in (("user", data.user_tokens), ("item", data.item_tokens)):
        lost = pc.or_(pc.is_in(tokens, pa.array(sorted(MISSING), tokens.type)), pc.starts_with(tokens, '"'))
        if count := pc.sum(lost).as_py():
            say(f"{count:,} {kind} ids are words such as NA or begin with a quote, which RecBole alone would not read")
    with contextlib.ExitStack() as stack:
        card_part, part = stack.enter_context(replaced(path.with_name(CARD))), stack.enter_context(replaced(path))
        if items is not None:
            item_part = stack.enter_context(replaced(path.with_suffix(".item")))
            used = np.unique(data.items)
            names = data.item_tokens.take(pa.array(used)).to_pylist()
            count, columns = items.write(names, item_part), ", ".join(items.columns)
            say(f"{path.stem}.item has {count:,} of {len(used):,} items, and the columns {columns}")
            if repeated := items.repeated:
                say(f"{repeated:,} rows of {items.source.name} repeat an item: its first row counts")
            card["items"] = {"file": items.source.name, "sha256": file_digest(item_part)}
        card["file"]["sha256"] = write_interactions(data, part)
        write_json(card_part, card)


def _entry(name: str, *, has_source: bool) -> Entry:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise DataError(f"data set name {name!r}: use letters, digits, '.', '_' and '-', as it becomes a folder's name")
    entry = public.entries().get(name)
    if has_source:
        return entry or Entry(name=name, about="")
    if entry is None:
        hint = did_you_mean(name, public.entries(), " Did you mean ")
        raise DataError(
            f"data set {name!r} is not a public data set ({', '.join(public.entries())}).{hint} "
            "For your data add --source=FILE (csv, json lines, parquet, ... are recognized; else --format)"
        )
    if not entry.package:
        get = f"get {entry.get} ({entry.address}) and add --source=FILE_OR_FOLDER"
        raise DataError(f"{name} cannot be fetched automatically: {get}")
    return entry


def _check_target(path: Path, overwrite: bool, read: Sequence[Path]) -> None:
    """Raise DataError, before any long work, for a folder without write access or a file that is not to be replaced.

    That is one that prepare did not write, or that is ``read``.
    """
    if "\0" in str(path):
        raise DataError(f"--output={str(path.parent.parent)!r} has a NUL character; choose another folder")
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise DataError(f"{parent} is not a folder that you can write to; choose another one with --output")
    if not path.exists() or overwrite:
        return
    if any(one.exists() and one.samefile(path) for one in read):
        raise DataError(f"{path} is read and would be replaced; choose another name or --output, or add --overwrite")
    card = path.with_name(CARD)
    if not card.exists() or (path.suffix == ".item" and "items" not in read_json(card)):
        raise DataError(f"{path} exists and was not written by prepare; add --overwrite to replace it")


def choose(
    entry: Entry, source: Path, format: str | None, timed: bool = True, layout: formats.Layout | None = None
) -> tuple[SourceFile, Candidate]:
    """Find the raw file in ``source`` and how to read it; DataError if no file matches, or its format is unknown."""
    files, header = contents(source), layout is None or layout.header is not False
    candidates = [*entry.sources, Candidate("atomic", (f"{entry.name}.inter", "*.inter"), done="all")]
    if format is not None:
        form, done = formats.find(format), "all" if format == "atomic" else "nothing"
        own = [candidate for candidate in entry.sources if candidate.format == format]
        candidates = own or [Candidate(format, (*form.files,), done)]
        if not own and (len(files) == 1 or not form.published) and (file := one_of(source, files, header)):
            return file, candidates[0]
    for candidate in candidates:
        if file := pick(files, candidate.files):
            return file, candidate
    if format is not None:
        if len(files) > 1:
            raise DataError(f"{source} has several files, but none is named like a {format} file; give the file itself")
        return files[0], candidates[0]
    if not entry.sources:
        known_files = [pattern for form in formats.formats().values() if form.published for pattern in form.files]
        tables = [one for one in files if any(matches(one.name, ending) for ending in _TABLES)]
        only = tables[0] if len(tables) == 1 else None
        if file := one_of(source, files, header) or pick(files, known_files) or only:
            return file, Candidate(guess.format_of(file, timed, layout), ())
        names = ", ".join(one.name for one in files[:8]) + (", ..." if len(files) > 8 else "")
        raise DataError(
            f"{source} has several files ({names}); give one by --source=FILE, unpacked if needed; "
            "training and test files are prepared one by one, for benchmark_filename"
        )
    known = ", ".join(f"{name} ({c.format})" for c in candidates for name in c.files)
    raise DataError(
        f"{source} has no known file of {entry.name}, which are {known}. For a file of another name add "
        f"--format=NAME ({', '.join(sorted(formats.formats()))})"
    )


def installed_folder(name: str) -> Path | None:
    """Return the folder of a data set that comes with the recbole package (ml-100k), or None."""
    folder = recbole_folder() / "dataset_example" / name
    return folder if folder.is_dir() else None
