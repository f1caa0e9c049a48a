"""A raw file to interactions: blocks or parquet batches, parsed and checked in threads, numbered in order."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recbole_hyper.data.prepare import parsers
from recbole_hyper.data.prepare.blocks import Block, blocks, mapped
from recbole_hyper.data.prepare.errors import Malformed, PrepareError
from recbole_hyper.data.prepare.formats import Format
from recbole_hyper.data.prepare.interactions import Checked, Interactions, check, joined
from recbole_hyper.data.prepare.parsers import Rows
from recbole_hyper.data.prepare.sources import SourceFile

# parsers of text by kind; parquet is the one kind that is none
PARSERS = {
    "delimited": parsers.delimited,
    "csv": parsers.delimited,
    "atomic": parsers.delimited,
    "json": parsers.json_lines,
    "literals": parsers.literals,
    "records": parsers.records,
    "sequences": parsers.sequences,
}
PARQUET_ROWS = 1 << 19


def read(file: SourceFile, form: Format, malformed: Malformed, progress: bool | None = None) -> Interactions:
    """Read a file, or its parts; PrepareError where too many lines are malformed, none is read, or it is damaged."""

    def work(piece: Block | Rows) -> tuple[Malformed, Checked]:
        found = Malformed(malformed.name)
        rows = PARSERS[form.kind](piece, form, found) if isinstance(piece, Block) else piece
        return found, check(rows, form.time_format or "unix", found)

    def checked() -> Iterator[Checked]:
        for found, block in mapped(work, pieces(file, form, progress)):
            malformed.merge(found)
            yield block
        malformed.check()

    return joined(checked())


def pieces(file: SourceFile, form: Format, progress: bool | None) -> Iterator[Block | Rows]:
    """Yield the blocks of a text, the batches of parquet parts."""
    if form.kind == "parquet":
        for part in file.parts or (file,):
            yield from _batches(part, file, form, progress)
        return
    with file.open(progress=progress) as stream:
        quotes = form.separator or "" if form.kind == "csv" and form.separator != "::" else ""
        yield from blocks(stream, str(file), end=b"\n\n" if form.kind == "records" else b"\n", quotes=quotes)


def _batches(part: SourceFile, whole: SourceFile, form: Format, progress: bool | None) -> Iterator[Rows]:
    columns, before, name = form.columns or {}, 0, part.name if whole.parts else ""
    with part.open(progress=False if whole.parts else progress) as stream:
        source, named = pq.ParquetFile(pa.PythonFile(stream, mode="r")), hive_keys(part, whole)
        inside = [name for name in set(columns.values()) if name in source.schema_arrow.names]
        if lost := sorted(set(columns.values()) - set(inside) - set(named)):
            raise PrepareError(f"{part} has no column {', '.join(lost)}, which other parts have")
        for batch in source.iter_batches(PARQUET_ROWS, columns=inside):
            given = {name: pa.repeat(value, len(batch)) for name, value in named.items()}
            given |= {name: batch.column(name) for name in inside}
            lines = np.arange(before + 1, before + len(batch) + 1)
            yield Rows({field: given[column] for field, column in columns.items()}, lines, name)
            before += len(batch)


def hive_keys(part: SourceFile, whole: SourceFile) -> dict[str, str]:
    """Return the values that a part's folders, called ``key=value``, give to all of its rows."""
    folders = part.path.relative_to(whole.path).parts[:-1] if whole.parts else ()
    return dict(folder.split("=", 1) for folder in folders if "=" in folder)


def amazon(data: Interactions) -> None:
    """Refuse ratings read with users and items exchanged: item codes (ASIN) have ten characters, user codes more."""
    items, users = (
        float(np.mean(np.asarray(pc.utf8_length(tokens)) == 10)) for tokens in (data.item_tokens, data.user_tokens)
    )
    if users > items:
        raise PrepareError(
            f"the users' column holds Amazon item codes ({users:.0%} have ten characters, items {items:.0%}): files of "
            "2014 are user,item,rating,time (--format=amazon-ratings-2014), those of 2018 item,user,rating,time "
            "(--format=amazon-ratings-2018)"
        )


def one_line_per_user(data: Interactions) -> None:
    """Refuse sequences of which a user has two: their positions would be mixed."""
    ordered = replace(data)
    ordered.sort()
    users, times = ordered.users, ordered.times
    twice = np.flatnonzero((users[1:] == users[:-1]) & (times[1:] == times[:-1]))
    if len(twice):
        name = data.user_tokens[int(users[twice[0]])].as_py()
        raise PrepareError(f"user {name!r} has more than one line; join the lines of a user in time order")


# by the word in formats.yaml
CHECKS = {"amazon": amazon, "one_line_per_user": one_line_per_user}
