"""``recbole-hyper prepare``: convert raw public data to RecBole atomic files."""

import argparse
import re
import sys
from pathlib import Path

from recbole_hyper.commands import argument, command, options_of


@command(
    "convert raw public data (MovieLens, Amazon, Yelp, csv, ...) to RecBole atomic files",
    argument("name", nargs="?", help="a public data set, or your name for --source; else the name of the file"),
    argument("--list", action="store_true", help="list the public data sets and the raw formats, then stop"),
    argument("--source", help="raw file, zip or tar archive, folder (also of parquet parts), or .inter file"),
    argument("--output", default="dataset", help="folder of data sets (default: %(default)s)"),
    argument("--format", help="raw format, if the file's name and first bytes do not show it; see --list"),
    argument("--columns", help="columns of a table: user_id=...,item_id=...,timestamp=..."),
    argument(
        "--separator",
        help="for csv and atomic files: character between values; \\t is a tab, \\x01 a control character",
    ),
    argument("--no_header", action="store_true", help="for csv without a header: columns are numbered from 1"),
    argument("--time_format", help="unix, unix_ms, unix_us, unix_ns, steps, iso, or '%%m %%d, %%Y'"),
    argument("--quoting", help="for csv: csv (values in double quotes) or none (a quote is text)"),
    argument("--encoding", help="of text, by its Python name: utf-8, utf-16, cp1252, ..."),
    argument("--missing_ids", help="for csv: drop or keep ids such as NA or null"),
    argument("--where", help="condition on the rows to read: \"event = 'view' and price > 0\""),
    argument("--items", help="table with a row per item, for the .item file"),
    argument("--order", default="time", help="time, or file: use the order of the rows instead of times"),
    argument("--since", help="earliest time to keep: a date or Unix seconds"),
    argument("--until", help="latest time to keep; a date includes the whole day"),
    argument("--threshold", type=float, help="smallest rating of a positive interaction; others are dropped"),
    argument("--session_gap", help="make each session a user; pauses longer than 30min, 2h, ... separate them"),
    argument("--duplicates", help="for a repeated (user, item) pair: keep, first, last (in time) or exact"),
    argument("--filter", help="none, k_core (to a fixed point) or single_pass (items, then users)"),
    argument("--k_core", type=int, help="short for --filter=k_core --min_user=K --min_item=K; 0 for none"),
    argument("--min_user", type=int, help="fewest interactions of a user"),
    argument("--min_item", type=int, help="fewest interactions of an item"),
    argument("--count", help="what --min_user and --min_item count: interactions or distinct partners"),
    argument("--max_malformed", type=float, default=0.001, help="share of unreadable lines that is accepted"),
    argument("--overwrite", action="store_true", help="replace a file that prepare did not write"),
    example="prepare ml-1m",
)
def prepare(arguments: argparse.Namespace) -> int:
    """Prepare one data set, or list what can be prepared."""
    from recbole_hyper.data.tables.formats import Layout
    from recbole_hyper.data.tables.prepare.pipeline import installed_folder, prepare
    from recbole_hyper.data.tables.prepare.statistics import notes, rows
    from recbole_hyper.evaluation.tables import table

    if arguments.source is not None and arguments.name is None:
        arguments.name = name_of(arguments.source)
    if arguments.list or arguments.name is None:
        _list()
        return 0 if arguments.list else 2
    installed = installed_folder(arguments.name) if arguments.source is None else None
    if installed is not None:
        print(f"{arguments.name} comes with the installed recbole package: {installed}; nothing to prepare")
        return 0
    try:
        layout = Layout(
            columns=named_columns(arguments.columns),
            separator=_unescaped(arguments.separator),
            header=False if arguments.no_header else None,
            time_format=arguments.time_format,
            quoting=arguments.quoting,
            encoding=arguments.encoding,
            missing_ids=arguments.missing_ids,
        )
        result = prepare(**options_of(prepare, arguments), layout=layout, changes=_changes(arguments), say=print)
    except KeyboardInterrupt:
        print(f"\nprepare {arguments.name}: interrupted, nothing was changed; run it again", file=sys.stderr)
        return 130
    for label, count in result.steps:
        print(f"{count:>12,} interactions: {label}")
    counts = rows(result.statistics, result.entry.published, clock=result.clock)
    print(f"{result.entry.name}\n{table(counts)}")
    for line in notes(result.statistics, result.entry.published):
        print(line)
    if result.clock == "positions":
        print("No times were read: a user's timestamps are increasing numbers in the order of the source.")
    print(result.path)
    return 0


def _unescaped(text: str | None) -> str | None:
    return text and re.sub(r"\\x([0-9a-fA-F]{2})|\\t", lambda code: chr(int(code[1] or "9", 16)), text)


def _changes(arguments: argparse.Namespace) -> dict[str, object]:
    from recbole_hyper.data.tables.prepare.cleaning import Cleaning

    values = {key: getattr(arguments, key, None) for key in vars(Cleaning())}
    changes = {key: value for key, value in values.items() if value is not None}
    if arguments.k_core is not None:
        core = arguments.k_core
        changes = {"filter": "k_core" if core else "none", "min_user": core, "min_item": core} | changes
    return changes


def named_columns(text: str | None) -> dict[str, str] | None:
    """Return the column of each field in ``--columns``; DataError for an entry that is not field=column."""
    from recbole_hyper.errors import DataError

    if not text:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    fields = {"user_id", "item_id", "timestamp", "rating"}
    wrong = [field for field, sign, column in pairs if field.strip() not in fields or not sign or not column.strip()]
    if wrong:
        known = "user_id=COLUMN,item_id=COLUMN,timestamp=COLUMN[,rating=COLUMN]"
        raise DataError(f"--columns={text}: {wrong[0]!r} is not understood; write {known}")
    names = [field.strip() for field, _, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"--columns={text}: {twice[0]} is named twice; name one column for it")
    return {field.strip(): column.strip() for field, _, column in pairs}


def name_of(source: str) -> str:
    """Return a name for the data in a file or a folder: its name without endings; DataError if that has no letters."""
    from recbole_hyper.errors import DataError

    plain = Path(source).name.split(".")[0] or Path(source).name
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")
    if not name:
        raise DataError(f"--source={source}: the data need a name: recbole-hyper prepare NAME --source={source}")
    return name


def _list() -> None:
    from recbole_hyper.data.tables.formats import formats
    from recbole_hyper.data.tables.prepare.public import entries

    print("Data sets:")
    for entry in entries().values():
        print(f"  {entry.name:<26}{entry.about}")
        if entry.get:
            print(f"  {'':<26}source: {entry.get}")
    print("\nRaw formats (--format):")
    for name, format in formats().items():
        print(f"  {name:<26}{format.about}")
