"""From atomic files, or a frame, to a :class:`SequenceStore` by columns, with RecBole's ids and filters, bit by bit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from recbole.data.dataset import Dataset

from recbole_hyper.data.atomic import PAD
from recbole_hyper.data.filters import require_allowed
from recbole_hyper.data.histories_given import read_rows
from recbole_hyper.data.ids import text_array
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source, original_ids
from recbole_hyper.data.table import Codes, Table, encoded, read_table
from recbole_hyper.data.tables import Frame, interactions_of
from recbole_hyper.errors import ConfigError, DataError

Mask = npt.NDArray[np.bool_]
Intervals = Sequence[tuple[str, float, float, str]]

logger = logging.getLogger("recbole_hyper")


@dataclass
class Side:
    """Users or items: the code of every interaction, the token of every code, and those that a feature file names."""

    codes: npt.NDArray[np.int32]  # (n,) int32 of each interaction
    tokens: pa.Array  # distinct tokens; those that only the feature file names come last
    # codes in the feature file, in its order and once each; None without such a file
    named: npt.NDArray[np.int32] | None
    interval: Intervals | None  # of the number of interactions that keeps one; None keeps all

    @classmethod
    def of(cls, column: Codes, named: pa.Array | None, interval: str | None) -> Side:
        """Take a column of ids and the ids of a feature file."""
        tokens, codes = column.tokens, None
        if named is not None:
            both = pa.chunked_array([tokens, named]).dictionary_encode().unify_dictionaries()
            tokens, codes = both.chunk(0).dictionary, both.chunk(1).indices.to_numpy(zero_copy_only=False)
        return cls(column.codes, tokens, codes, None if interval is None else parsed_intervals(interval))

    def refused(self, counts: npt.NDArray[np.int64], named: Mask) -> Mask:
        """Return which codes go, of those that still have ``counts`` interactions or are still ``named``."""
        if self.interval is None:
            return np.zeros(len(counts), dtype=bool)
        # below this many interactions, one that the feature file names goes, whatever the other intervals say
        least = self.interval[0][1] if self.interval else -1
        return ((counts > 0) & ~within(counts, self.interval)) | (named & (counts < least))

    def renumbered(self, named: npt.NDArray[np.int32]) -> Side:
        """Return the side with codes in order of first appearance, those of ``named`` last, as RecBole numbers ids."""
        order = pd.unique(np.concatenate([self.codes, named]))
        numbers = np.zeros(len(self.tokens), dtype=np.int32)
        numbers[order] = np.arange(len(order))
        return Side(numbers[self.codes], self.tokens.take(pa.array(order)), None, None)


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
    table, sizes = read_table(
        source.inter_paths(),
        kinds,
        ids=(source.user_field, source.item_field),
        finite=source.time_field if source.timed else None,
        separator=source.field_separator,
        encoding=source.encoding,
    )
    for name in source.escaped_columns:
        table.tokens[name].tokens = original_ids(table.tokens[name].tokens)
    if not source.timed:
        table.numbers[source.time_field] = np.arange(len(table), dtype=np.float64)
    named = _named(source, "user", source.user_field), _named(source, "item", source.item_field)
    parts = part_numbers(sizes) if source.parts else None
    store = make_store(source, table, named, str(source.path("inter")), parts)
    return replace(store, columns=source.columns_of_source)


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
            frame = frame[value_mask(frame[name], allowed)]
    if frame.empty:
        raise DataError(f"{path}: nothing is left after val_interval={dict(source.val_interval)}")
    return pa.array(frame[field].to_numpy(dtype=object), pa.string())


def _filtered(
    source: Source, users: Side, items: Side, table: Table, where: str
) -> tuple[Side, Side, npt.NDArray[np.float64]]:
    """Return what RecBole's filters leave, numbered anew where they take anything away."""
    times, rows = table.numbers[source.time_field], None
    if source.rm_dup_inter is not None:
        rows = first_of_pairs(users, items, times, source.rm_dup_inter)
    columns = table.tokens | {name: pd.Series(values, copy=False) for name, values in table.numbers.items()}
    masks = [value_mask(columns[name], allowed) for name, allowed in source.val_interval.items() if name in columns]
    if source.filter_inter_by_user_or_item and (users.named is not None or items.named is not None):
        masks.append(known_rows(users, items))
    if masks:
        keep = np.logical_and.reduce(masks)
        rows = np.flatnonzero(keep) if rows is None else rows[keep[rows]]
    named = [np.empty(0, np.int32) if side.named is None else side.named for side in (users, items)]
    if users.interval is not None or items.interval is not None:
        rows, left = enough(users, items, rows)
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
    return text_array(pa.concat_arrays([pa.array([PAD], tokens.type), tokens]))


def check_given(config: Any) -> None:
    """Raise ConfigError for keys that ask for more of a frame than user, item and time."""
    source = Source.of(config)
    fields = [source.user_field, source.item_field, source.time_field]
    read = f"{', '.join(fields)} alone are read"
    if missing := sorted(set(source.val_interval) - set(fields)):
        raise ConfigError(f"val_interval names {missing[0]!r}, but of a frame {read}; drop rows from the frame instead")
    for name, allowed in source.val_interval.items():
        require_allowed(name, "float" if name == source.time_field else "token", allowed)
    if set(source.load_col) != {"inter"} or set(source.load_col["inter"]) - {*fields, "*"}:
        raise ConfigError(f"load_col={dict(source.load_col)!r}: of a frame {read}; leave load_col out")
    for key in ("alias_of_user_id", "alias_of_item_id"):
        if config[key]:
            raise ConfigError(f"{key} needs atomic files; users and items of a frame share no ids")


def given_store(config: Any, frame: Any) -> SequenceStore:
    """Return the sequences of a pandas or polars DataFrame or an Arrow table, filtered as the configuration says.

    The columns are those that USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name, else those found by their names.
    ConfigError: see :func:`check_given`; DataError for columns and values that are missing, and nothing left.
    """
    check_given(config)
    source = Source.of(config)
    try:
        names = set(Frame(frame).names)
        fields = {"user_id": source.user_field, "item_id": source.item_field, "timestamp": source.time_field}
        table, columns = interactions_of(frame, {field: column for field, column in fields.items() if column in names})
    except DataError as error:
        text, option, _ = str(error).partition("; name ")
        hint = "; the keys USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name columns" if option else ""
        raise DataError(f"interactions: {text}{hint}") from error
    for name in ("user_id", "item_id"):
        if (row := pc.index(table[name], PAD).as_py()) >= 0:
            raise DataError(
                f"interactions: the frame, row {row} (from 0): {PAD!r} is RecBole's name for padding, no id"
            )
    tokens = {source.user_field: encoded(table["user_id"]), source.item_field: encoded(table["item_id"])}
    numbers = {source.time_field: np.asarray(table["timestamp"].to_numpy(), dtype=np.float64)}
    del table
    store = make_store(source, Table(tokens, numbers), (None, None), "the frame")
    pa.default_memory_pool().release_unused()
    return replace(store, columns=columns)


def parsed_intervals(text: str) -> Intervals:
    """Return intervals such as "[5,inf)" as RecBole parses them."""
    # all that the method reads of a dataset is its logger
    return Dataset._parse_intervals_str(SimpleNamespace(logger=logger), text)


def within(values: npt.NDArray, intervals: Intervals) -> Mask:
    """Return which values lie in one of the intervals, all of them where there is none, as RecBole decides it."""
    inside = Dataset._within_intervals(None, values, intervals)
    return np.full(len(values), inside) if isinstance(inside, bool) else inside


def value_mask(values: Codes | pd.Series, allowed: Any) -> Mask:
    """Return the rows that ``val_interval`` keeps: numbers in an interval, or tokens of a list."""
    if isinstance(values, Codes):
        return value_mask(pd.Series(values.tokens.to_pylist(), dtype=object), allowed)[values.codes]
    if values.dtype == np.float64:
        return within(values.to_numpy(), parsed_intervals(allowed))
    return values.isin(list(allowed)).to_numpy()


def first_of_pairs(users: Side, items: Side, times: npt.NDArray[np.float64], keep: Any) -> npt.NDArray[np.int64]:
    """Return the rows in time order, ties in file order, with one row of each (user, item) pair: rm_dup_inter."""
    order = np.argsort(times, kind="stable")
    pairs = users.codes[order].astype(np.int64) * len(items.tokens) + items.codes[order]
    return order[~np.asarray(pd.Series(pairs).duplicated(keep=keep))]


def known_rows(users: Side, items: Side) -> Mask:
    """Return the interactions whose user and item the feature files name: filter_inter_by_user_or_item."""
    keep = np.ones(len(users.codes), dtype=bool)
    for side in (users, items):
        if side.named is not None:
            keep &= _flags(side)[side.codes]
    return keep


def enough(
    users: Side, items: Side, rows: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.int64] | None, list[Mask]]:
    """Drop users and items outside their intervals, both at once, until none is left to drop, of the (m,) ``rows``.

    Returns:
        the interactions that stay, None for all, and for users and items which codes are still named by a feature file.
    """
    sides = (users, items)
    named = [_flags(side) for side in sides]
    while True:
        codes = [side.codes if rows is None else side.codes[rows] for side in sides]
        counts = [np.bincount(code, minlength=len(side.tokens)) for code, side in zip(codes, sides, strict=True)]
        out = [side.refused(count, flags) for side, count, flags in zip(sides, counts, named, strict=True)]
        if not out[0].any() and not out[1].any():
            return rows, named
        named = [flags & ~gone for flags, gone in zip(named, out, strict=True)]
        stay = ~(out[0][codes[0]] | out[1][codes[1]])
        rows = np.flatnonzero(stay) if rows is None else rows[stay]


def _flags(side: Side) -> Mask:
    flags = np.zeros(len(side.tokens), dtype=bool)
    if side.named is not None:
        flags[side.named] = True
    return flags
