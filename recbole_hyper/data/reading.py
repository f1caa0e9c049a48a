"""From atomic files or a frame to a :class:`SequenceStore`, column by column, with the same result as RecBole."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.atomic import Column, nothing_in
from recbole_hyper.data.tables.filters import intervals, k_core, within
from recbole_hyper.data.tables.ids import PAD, as_text, text_array
from recbole_hyper.data.tables.interactions import Interactions, Rows, joined, of_frame, rows_of_file
from recbole_hyper.errors import ConfigError, DataError

logger = logging.getLogger("recbole_hyper")

Mask = npt.NDArray[np.bool_]
_PADDING = "0"  # in lists of histories


def read_store(source: Source) -> SequenceStore:
    """Read, filter, number and sort the interactions, as RecBole's Dataset does with the same keys.

    DataError for a missing column, an invalid value, or if filtering leaves nothing or fewer than two items.
    """
    if source.has_histories:
        return read_rows(source)
    source.check_header()
    sizes: list[int] = []
    masks: list[Mask] = []
    data = joined(_blocks(source, sizes, masks))
    if not source.timed:
        data.times -= 1  # positions from 0
    parts = part_numbers(sizes) if source.parts else None
    keep = np.concatenate(masks) if masks else None
    store = make_store(source, data, str(source.path("inter")), keep, parts)
    removed = sum(sizes) - len(store.items)
    removal = f"; filters removed {removed:,}" if removed else ""
    logger.info("read %s: %s interactions%s", ", ".join(map(str, source.inter_paths())), f"{sum(sizes):,}", removal)
    return replace(store, columns=source.columns_of_source)


def _blocks(source: Source, sizes: list[int], masks: list[Mask]) -> Iterator[Rows]:
    """Yield the rows of all files; append each file's row count, and for each block what ``val_interval`` keeps."""
    filtering = source.filtering("inter")
    if sequences := [name for name, kind in filtering.items() if kind.endswith("_seq")]:
        raise DataError(f"val_interval: {sequences[0]!r} has sequences, which have no interval; leave it out")
    fields = {"user_id": source.user_field, "item_id": source.item_field, "timestamp": source.time_field}
    if not source.timed:
        del fields["timestamp"]
    for path in source.inter_paths():
        size = 0
        for block in rows_of_file(path, fields, [*filtering], source.field_separator, source.encoding):
            size += len(block.lines)
            if filtering:
                masks.append(_kept_values(source, path, block, filtering))
            yield block
        if not size:
            raise nothing_in(path)
        sizes.append(size)


def _kept_values(source: Source, path: Path, block: Rows, kinds: Mapping[str, str]) -> Mask:
    """Return the mask of the rows that ``val_interval`` keeps: numbers in an interval, or tokens in a list."""
    keep = np.ones(len(block.lines), dtype=bool)
    for name, kind in kinds.items():
        allowed = source.val_interval[name]
        column = Column(path, name, as_text(block.other(name)), block.lines)
        if kind == "float":
            keep &= within(column.numbers(), allowed)
        else:
            keep &= column.values.to_pandas().isin(list(allowed)).to_numpy()
    return keep


def fewest(text: str | None) -> int | None:
    """Return the smallest whole number in an interval without upper limit, 0 for None; None for other intervals."""
    if text is None:
        return 0
    bounds = intervals(text)
    if len(bounds) != 1 or not math.isinf(bounds[0][2]) or bounds[0][1] == math.inf:
        return None
    opening, least = bounds[0][:2]
    if least < 0:
        return 0
    return math.floor(least) + 1 if opening == "(" else math.ceil(least)


def filtered_by_recbole(source: Source) -> bool:
    """Return whether RecBole must filter: if there are feature files, or upper limits on interactions."""
    limits = (source.user_inter_num_interval, source.item_inter_num_interval)
    return bool(set(source.load_col) - {"inter"}) or any(fewest(limit) is None for limit in limits)


def require_items(count: int, where: object) -> None:
    """Raise DataError unless there are at least two items."""
    if count < 2:
        raise DataError(f"{where}: filtering leaves {count} item; ranking needs at least 2")


def part_numbers(sizes: list[int]) -> npt.NDArray[np.int8]:
    """Return 0 (training), 1 (validation) or 2 (test) for each interaction of two (no validation) or three files."""
    return np.repeat(np.array([0, 1, 2] if len(sizes) == 3 else [0, 2], dtype=np.int8), sizes)


def make_store(
    source: Source, data: Interactions, where: str, keep: Mask | None = None, parts: npt.NDArray[np.int8] | None = None
) -> SequenceStore:
    """Filter, number and sort interactions as RecBole does.

    Error messages name ``where`` they come from. ``keep`` is the mask of ``val_interval`` (None: all). Interactions in
    ``parts``, see :func:`part_numbers`, are not filtered.
    """
    rows = None if keep is None else np.flatnonzero(keep)
    if source.rm_dup_inter is not None:  # first, and this puts the rows in time order, ties in file order
        order = np.argsort(data.times, kind="stable")
        pairs = data.users[order].astype(np.int64) * len(data.item_tokens) + data.items[order]
        order = order[~np.asarray(pd.Series(pairs).duplicated(keep=source.rm_dup_inter))]  # type: ignore[arg-type]
        rows = order if keep is None else order[keep[order]]
    least = [fewest(text) or 0 for text in (source.user_inter_num_interval, source.item_inter_num_interval)]
    if any(least) and (rows is None or len(rows)):
        users, items = (codes if rows is None else codes[rows] for codes in (data.users, data.items))
        mask = k_core(users, items, min_user=least[0], min_item=least[1])
        if not mask.all():
            rows = np.flatnonzero(mask) if rows is None else rows[mask]
    if rows is not None:
        if not len(rows):
            raise source.nothing_left(where)
        data.users, data.user_tokens = _renumbered(data.users[rows], data.user_tokens)
        data.items, data.item_tokens = _renumbered(data.items[rows], data.item_tokens)
        data.times = data.times[rows]
    require_items(len(data.item_tokens), where)
    data.users += 1  # in place: 0 is padding
    data.items += 1
    tokens = (data.user_tokens, data.item_tokens)
    names = [text_array(pa.concat_arrays([pa.array([PAD], one.type), one])) for one in tokens]
    return SequenceStore.from_interactions(data.users, data.items, data.times, names[0], names[1], parts)


def _renumbered(codes: npt.NDArray[np.int32], tokens: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return codes in order of first appearance, as RecBole numbers ids, and the remaining tokens."""
    order = pd.unique(codes)
    numbers = np.zeros(len(tokens), dtype=np.int32)
    numbers[order] = np.arange(len(order))
    return numbers[codes], tokens.take(pa.array(order))


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
    read = f"only {', '.join(fields)} of a frame are read"
    if source.val_interval:
        raise ConfigError(f"val_interval={dict(source.val_interval)!r} needs files; drop rows from the frame instead")
    if set(source.load_col) != {"inter"} or set(source.load_col["inter"]) - {*fields, "*"}:
        raise ConfigError(f"load_col={dict(source.load_col)!r}: {read}; leave load_col out")
    if source.aliases:
        keys = "alias_of_user_id and alias_of_item_id"
        raise ConfigError(f"{keys} need atomic files: users and items of a frame do not share ids; leave them out")
    if filtered_by_recbole(source):
        raise ConfigError(
            "user_inter_num_interval and item_inter_num_interval of a frame must be '[n,inf)' or left out"
        )


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
    if len(item_tokens) < 2:
        raise DataError(f"{path} has {len(item_tokens)} item; ranking needs at least 2")
    user_ids, targets_of_rows = (users + 1).tolist(), (items[: len(lists)] + 1).tolist()
    histories = np.split(items[len(lists) :] + 1, np.cumsum(lists.map(len))[:-1])
    rows = [
        (user, [*history.tolist(), target])
        for user, history, target in zip(user_ids, histories, targets_of_rows, strict=True)
    ]
    places = (part_numbers([len(frame) for frame in frames]) + 1).tolist()
    sequences = [(user, 1, row) for user, row in _merged(rows[: len(frames[0])])]
    sequences += [(user, place, row) for (user, row), place in zip(rows, places, strict=True) if place > 1]
    sequences.sort(key=lambda entry: entry[:2])
    lengths = np.array([len(row) for _, _, row in sequences], dtype=np.int64)
    columns = np.array([place for _, place, _ in sequences])
    n_targets = np.where(columns == 1, lengths, 1)  # every item of a training row, the last item of others
    parts = np.zeros((len(sequences), 4), dtype=np.int64)
    parts[:, 0], parts[np.arange(len(sequences)), columns] = lengths - n_targets, n_targets
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return SequenceStore(
        offsets=offsets,
        items=np.array([item for _, _, row in sequences for item in row], dtype=np.int32),
        # positions in the row, as there are no times
        times=(np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).astype(np.float64),
        users=np.array([user for user, _, _ in sequences], dtype=np.int64),
        user_tokens=text_array([PAD, *user_tokens]),
        item_tokens=text_array([PAD, *item_tokens]),
        parts=parts,
    )


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
