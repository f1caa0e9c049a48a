"""From atomic files to a :class:`SequenceStore` by columns, with RecBole's ids and filters, bit by bit."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.data import filters
from recbole_hyper.data.atomic import PAD, DataError
from recbole_hyper.data.filters import Side
from recbole_hyper.data.histories_given import read_rows
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.data.table import Table, joined, read_table


def read_store(source: Source) -> SequenceStore:
    """Read, filter, number and sort the interactions, as RecBole's Dataset does with the same keys.

    DataError for a missing column, a value that is none, nothing left after filtering, fewer than two items.
    """
    if source.has_histories:
        return read_rows(source)
    source.check_header()
    fields = (source.user_field, source.item_field, *([source.time_field] if source.timed else []))
    kinds = {name: kind for name, kind in source.columns("inter").items() if name in fields}
    kinds.update(source.filtering("inter"))
    if odd := [name for name, kind in kinds.items() if kind.endswith("_seq")]:
        raise DataError(f"val_interval: {odd[0]!r} is a sequence, of which no interval can be asked")
    tables = [
        read_table(
            path,
            kinds,
            ids=(source.user_field, source.item_field),
            finite=source.time_field if source.timed else None,
            separator=source.field_separator,
            encoding=source.encoding,
        )
        for path in source.inter_paths()
    ]
    table = joined(tables)
    if not source.timed:
        table.numbers[source.time_field] = np.arange(len(table), dtype=np.float64)
    named = _named(source, "user", source.user_field), _named(source, "item", source.item_field)
    parts = part_numbers([len(one) for one in tables]) if source.parts else None
    return make_store(source, table, named, str(source.path("inter")), parts)


def require_items(count: int, where: object) -> None:
    """Raise DataError unless there are at least two items."""
    if count < 2:
        raise DataError(f"{where}: {count} item is left after filtering; ranking needs at least 2")


def part_numbers(sizes: list[int]) -> npt.NDArray[np.int8]:
    """Return 0, 1 or 2 for each interaction of files of training, validation and test, or of training and test."""
    return np.repeat(np.array([0, 1, 2] if len(sizes) == 3 else [0, 2], dtype=np.int8), sizes)


def make_store(
    source: Source,
    table: Table,
    named: tuple[pa.Array | None, pa.Array | None],
    where: str,
    parts: npt.NDArray[np.int8] | None = None,
) -> SequenceStore:
    """Filter, number and sort the interactions of a table: user, item, time and what ``val_interval`` looks at.

    ``named`` are the users and items that feature files name, None without such a file; ``where`` held the
    interactions, for messages. Those that come in ``parts``, see :func:`part_numbers`, are not filtered.
    """
    users = Side.of(table.tokens[source.user_field], named[0], source.user_inter_num_interval)
    items = Side.of(table.tokens[source.item_field], named[1], source.item_inter_num_interval)
    users, items, times = _filtered(source, users, items, table, where)
    require_items(len(items.tokens), where)
    del table
    for side in (users, items):
        side.codes += 1  # in place: 0 is padding
    return SequenceStore.from_interactions(
        users.codes, items.codes, times, _padded(users.tokens), _padded(items.tokens), parts
    )


def _named(source: Source, suffix: str, field: str) -> pa.Array | None:
    """Return the ids that a feature file names, once each, less those that ``val_interval`` drops; None: not read."""
    if suffix not in source.load_col:
        return None
    columns = source.columns(suffix)
    if not columns:
        return None
    path = source.path(suffix)
    if field not in columns:
        raise DataError(f"{path}: column {field!r} must be loaded; add it to load_col {suffix}, now {list(columns)}")
    wanted = {field: columns[field], **source.filtering(suffix)}
    frame = source.read(path, wanted, ids=(field,)).drop_duplicates([field])
    for name, allowed in source.val_interval.items():
        if name in wanted:
            if wanted[name] == "float":
                inside = filters.within(frame[name].to_numpy(), filters.parsed_intervals(allowed))
            else:
                inside = frame[name].isin(allowed).to_numpy()
            frame = frame[inside]
    if frame.empty:
        raise DataError(f"{path}: nothing is left after val_interval={dict(source.val_interval)}")
    return pa.array(frame[field].to_numpy(dtype=object), pa.string())


def _filtered(
    source: Source, users: Side, items: Side, table: Table, where: str
) -> tuple[Side, Side, npt.NDArray[np.float64]]:
    """Return what RecBole's filters leave, numbered anew where they take anything away."""
    times, rows = table.numbers[source.time_field], None
    if source.rm_dup_inter is not None:
        rows = filters.first_of_pairs(users, items, times, source.rm_dup_inter)
    masks = [
        filters.value_mask(table.column(name), allowed)
        for name, allowed in source.val_interval.items()
        if name in table
    ]
    if source.filter_inter_by_user_or_item and (users.named is not None or items.named is not None):
        masks.append(filters.known_rows(users, items))
    if masks:
        keep = np.logical_and.reduce(masks)
        rows = np.flatnonzero(keep) if rows is None else rows[keep[rows]]
    named = [np.empty(0, np.int32) if side.named is None else side.named for side in (users, items)]
    if users.interval is not None or items.interval is not None:
        rows, left = filters.enough(users, items, rows)
        named = [codes[flags[codes]] for codes, flags in zip(named, left, strict=True)]
    for suffix, side, codes in (("user", users, named[0]), ("item", items, named[1])):
        if side.named is not None and not len(codes):
            raise DataError(f"{source.path(suffix)}: nothing of it is left after filtering; leave it out of load_col")
    if rows is None:
        return users, items, times
    if not len(rows):
        raise source.nothing_left(where)
    users.codes, items.codes = users.codes[rows], items.codes[rows]
    return users.renumbered(named[0]), items.renumbered(named[1]), times[rows]


def _padded(tokens: pa.Array) -> np.ndarray:
    return np.array([PAD, *tokens.to_pylist()])
