"""From atomic files or a frame to a :class:`SequenceStore`, column by column, with the same result as RecBole."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.atomic import nothing_in
from recbole_hyper.data.tables.filters import k_core, repeated
from recbole_hyper.data.tables.ids import PAD, text_array
from recbole_hyper.data.tables.interactions import Interactions, Rows, joined, of_frame, rows_of_file
from recbole_hyper.errors import ConfigError, DataError

logger = logging.getLogger("recbole_hyper")

_PADDING = "0"  # in lists of histories


def read_store(source: Source) -> SequenceStore:
    """Read, filter, number and sort the interactions, as RecBole's Dataset does with the same keys.

    Not for settings that :func:`filtered_by_recbole` names. DataError for a missing column, an invalid value, or if
    filtering leaves nothing or fewer than two items.
    """
    if source.has_histories:
        return read_rows(source)
    source.check_header()
    sizes: list[int] = []
    data = joined(_blocks(source, sizes))
    if not source.timed:
        data.times -= 1  # positions from 0
    store = make_store(source, data, str(source.path("inter")), part_numbers(sizes) if source.parts else None)
    log_reading(source, sum(sizes), store)
    return replace(store, columns=source.columns_of_source)


def log_reading(source: Source, count: int, store: SequenceStore) -> None:
    """Log the files with interactions, how many these are, and how many of them filters removed."""
    removed = count - len(store.items)
    removal = f"; filters removed {removed:,}" if removed else ""
    logger.info("read %s: %s interactions%s", ", ".join(map(str, source.inter_paths())), f"{count:,}", removal)


def _blocks(source: Source, sizes: list[int]) -> Iterator[Rows]:
    """Yield the rows of all files, and append each file's row count."""
    fields = {"user_id": source.user_field, "item_id": source.item_field, "timestamp": source.time_field}
    if not source.timed:
        del fields["timestamp"]
    for path in source.inter_paths():
        size = 0
        for block in rows_of_file(path, fields, source.field_separator, source.encoding):
            size += len(block.lines)
            yield block
        if not size:
            raise nothing_in(path)
        sizes.append(size)


def fewest(text: str | None) -> int | None:
    """Return n of an interval ``[n,inf)``, 0 for None; None for other intervals."""
    if text is None:
        return 0
    found = re.fullmatch(r"\s*\[\s*([0-9]+)\s*,\s*inf\s*[\])]\s*", text)
    return int(found[1]) if found else None


def filtered_by_recbole(source: Source) -> bool:
    """Return whether RecBole must filter: by values, feature files, or limits other than ``[n,inf)``."""
    limits = (source.user_inter_num_interval, source.item_inter_num_interval)
    by_values = bool(source.val_interval or set(source.load_col) - {"inter"})
    return by_values or any(fewest(limit) is None for limit in limits)


def require_items(count: int, where: object) -> None:
    """Raise DataError unless there are at least two items."""
    if count < 2:
        raise DataError(f"{where}: filtering leaves {count} item; ranking needs at least 2")


def part_numbers(sizes: list[int]) -> npt.NDArray[np.int8]:
    """Return 0 (training), 1 (validation) or 2 (test) for each interaction of two (no validation) or three files."""
    return np.repeat(np.array([0, 1, 2] if len(sizes) == 3 else [0, 2], dtype=np.int8), sizes)


def make_store(
    source: Source, data: Interactions, where: str, parts: npt.NDArray[np.int8] | None = None
) -> SequenceStore:
    """Filter, number and sort interactions as RecBole does.

    Error messages name ``where`` they come from. Interactions in ``parts``, see :func:`part_numbers`, are not filtered.
    """
    before = len(data)
    if source.rm_dup_inter is not None:  # first, and this puts the rows in time order, ties in file order
        data.take(np.argsort(data.times, kind="stable"))
        data.take(~repeated(data.users, data.items, source.rm_dup_inter))
    least = [fewest(text) or 0 for text in (source.user_inter_num_interval, source.item_inter_num_interval)]
    if any(least):
        data.take(k_core(data.users, data.items, min_user=least[0], min_item=least[1]))
    if not len(data):
        raise source.nothing_left(where)
    if len(data) < before or source.rm_dup_inter is not None:
        data.users, data.user_tokens = _renumbered(data.users, data.user_tokens)
        data.items, data.item_tokens = _renumbered(data.items, data.item_tokens)
    require_items(len(data.item_tokens), where)
    data.users += 1  # in place: 0 is padding
    data.items += 1
    tokens = (data.user_tokens, data.item_tokens)
    names = [text_array(pa.concat_arrays([pa.array([PAD], one.type), one])) for one in tokens]
    return SequenceStore.from_interactions(data.users, data.items, data.times, names[0], names[1], parts)


def _renumbered(codes: npt.NDArray[np.int32], tokens: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return codes in order of first appearance, as RecBole numbers ids, and the remaining tokens."""
    numbers, order = pd.factorize(codes)
    return numbers.astype(np.int32), tokens.take(pa.array(order))


def given_store(source: Source, frame: Any) -> SequenceStore:
    """Return the sequences of a pandas or polars DataFrame or an Arrow table, filtered as ``source`` says.

    USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name the columns; if they are missing, the columns are guessed from
    their names. Times are timestamps or dates (UTC without a zone), ISO text, or Unix times in any unit. ConfigError:
    see :func:`check_given`; DataError, with the row from 0, for missing values, and if filtering leaves nothing.
    """
    check_given(source)
    try:
        keys = {"user_id": source.user_field, "item_id": source.item_field, "timestamp": source.time_field}
        data, columns = of_frame(frame, keys)
    except DataError as error:
        raise DataError(f"interactions: {error}; USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name columns") from error
    if not len(data):
        raise DataError("interactions: the frame has no rows")
    return replace(make_store(source, data, "interactions: the frame"), columns=columns)


def check_given(source: Source) -> None:
    """Raise ConfigError for keys that need more than the users, items and times of a frame."""
    fields = [source.user_field, source.item_field, source.time_field]
    limits = (source.user_inter_num_interval, source.item_inter_num_interval)
    needs_files = {
        "val_interval": source.val_interval,
        "load_col": set(source.load_col) != {"inter"} or set(source.load_col["inter"]) - {*fields, "*"},
        "alias_of_user_id and alias_of_item_id": source.aliases,
        "intervals other than '[n,inf)'": None in map(fewest, limits),
    }
    if keys := ", ".join(key for key, needed in needs_files.items() if needed):
        read = f"of a frame only {', '.join(fields)} are read"
        raise ConfigError(f"{keys}: {read}; leave these keys out, and drop rows from the frame before")


def read_rows(source: Source) -> SequenceStore:
    """Read rows of user, history and target; ids are those of RecBole with ``alias_of_item_id: [item_id_list]``.

    A row of the second or third file is a case to evaluate. Rows of the training file that extend one another, like
    RecBole's prefixes of a sequence (or of its newest items), become one row, so that each item is learned once.
    """
    source.check_header()
    path = source.path("inter")
    if more := sorted(set(source.load_col) - {"inter"}):
        raise DataError(f"{path} has histories, which are read without features; remove {more} from load_col")
    names = {source.user_field: "token", source.list_field: "token_seq", source.item_field: "token"}
    frames = []
    for file in source.inter_paths():
        kinds = {name: names[name] for name in source.header(file) if name in names}
        frames.append(source.read(file, kinds, ids=(source.user_field, source.item_field)))
        if frames[-1].empty:
            raise nothing_in(file)
    everything = pd.concat(frames, ignore_index=True)
    lists, targets = everything[source.list_field], everything[source.item_field]
    padded = lists.map(lambda items: _PADDING in items)
    if padded.any() and not (targets == _PADDING).any():
        logger.warning(
            "%s: %d of %d lists contain %r, which is never a target: it is treated as padding and left out",
            path, int(padded.sum()), len(lists), _PADDING,
        )  # fmt: skip
        lists = lists.map(lambda items: items[items != _PADDING])
    users, user_tokens = pd.factorize(everything[source.user_field])
    items, item_tokens = pd.factorize(np.concatenate([targets.to_numpy(object), *lists]))
    require_items(len(item_tokens), path)
    user_ids, targets_of_rows = (users + 1).tolist(), (items[: len(lists)] + 1).tolist()
    histories = np.split(items[len(lists) :] + 1, np.cumsum(lists.map(len))[:-1])
    rows = [
        (user, [*history.tolist(), target])
        for user, history, target in zip(user_ids, histories, targets_of_rows, strict=True)
    ]
    places = part_numbers([len(frame) for frame in frames]).tolist()
    sequences = [(user, 0, row) for user, row in _merged(rows[: len(frames[0])])]
    sequences += [(user, place, row) for (user, row), place in zip(rows, places, strict=True) if place > 0]
    sequences.sort(key=lambda entry: entry[:2])
    lengths = np.array([len(row) for _, _, row in sequences], dtype=np.int64)
    owners = np.repeat(np.arange(len(sequences)), lengths)
    positions = ranges(np.zeros_like(lengths), lengths)  # in the row, as there are no times
    places_of = np.array([place for _, place, _ in sequences])[owners]
    # every item of a training row is a target, of others the last one; what comes before is known
    known = (places_of > 0) & (positions < lengths[owners] - 1)
    user_names, item_names = (text_array([PAD, *tokens]) for tokens in (user_tokens, item_tokens))
    all_items = [item for _, _, row in sequences for item in row]
    store = SequenceStore.from_interactions(
        owners, all_items, positions, user_names, item_names, np.where(known, -1, places_of)
    )
    return replace(store, users=np.array([user for user, _, _ in sequences], dtype=np.int64))


def _merged(rows: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Merge rows (user, and items with the target last) that extend another row of the same user into that row."""
    longest = max(len(row) for _, row in rows) - 1  # programs cut histories at this length
    merged: list[tuple[int, list[int]]] = []
    # the shortest row of each user first, whatever the order of the file
    for user, row in sorted(rows, key=lambda entry: (entry[0], len(entry[1]))):
        history = row[:-1]
        for owner, known in reversed(merged):
            if owner != user:
                merged.append((user, row))
                break
            if history and known[-len(history) :] == history and len(history) in (len(known), longest):
                known.append(row[-1])
                break
        else:
            merged.append((user, row))
    return merged
