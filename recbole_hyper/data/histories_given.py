"""Files that were split before and hold a history and its target in each row: RecBole's ``item_id_list``."""

import logging
from collections.abc import Iterable

import numpy as np
import pandas as pd

from recbole_hyper.data.atomic import nothing_in
from recbole_hyper.data.ids import PAD, text_array
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.errors import DataError

logger = logging.getLogger("recbole_hyper")

_PADDING = "0"
_Row = tuple[int, list[int]]  # user, and items with the target last


def read_rows(source: Source) -> SequenceStore:
    """Read rows of user, history and target; ids are numbered as by RecBole with ``alias_of_item_id: [item_id_list]``.

    A row of the second or third file is a row of the store, which asks for its last item. Rows of the training file
    that go on from one another, as those that RecBole makes of a sequence do, are one row, in which each item after
    the first is learned once; so are those of a history that was cut to its newest items.
    """
    source.check_header()
    if more := sorted(set(source.load_col) - {"inter"}):
        raise DataError(f"{source.path('inter')} holds histories, of which no features are read; load_col has {more}")
    names = {source.user_field: "token", source.list_field: "token_seq", source.item_field: "token"}
    frames = []
    for path in source.inter_paths():
        kinds = {name: names[name] for name in source.header_of(path) if name in names}
        frames.append(source.read(path, kinds, ids=(source.user_field, source.item_field)))
        if frames[-1].empty:
            raise nothing_in(path)
    everything = pd.concat(frames, ignore_index=True)
    lists = _without_padding(everything[source.list_field], everything[source.item_field], source)
    users, user_tokens = pd.factorize(everything[source.user_field])
    items, item_tokens = pd.factorize(np.concatenate([everything[source.item_field].to_numpy(object), *lists]))
    if len(item_tokens) < 2:
        raise DataError(f"{source.path('inter')}: {len(item_tokens)} item is there; ranking needs at least 2")
    histories = np.split(items[len(lists) :] + 1, np.cumsum(lists.map(len))[:-1])
    targets = (items[: len(lists)] + 1).tolist()
    rows = [
        (user, [*history.tolist(), target])
        for user, history, target in zip((users + 1).tolist(), histories, targets, strict=True)
    ]
    first = len(frames[0])
    sequences = [(user, 1, row) for user, row in _joined(rows[:first])]
    places = np.repeat([2, 3] if len(frames) == 3 else [3], [len(frame) for frame in frames[1:]]).tolist()
    sequences += [(user, place, row) for (user, row), place in zip(rows[first:], places, strict=True)]
    return _store(sequences, user_tokens, item_tokens)


def _without_padding(lists: pd.Series, targets: pd.Series, source: Source) -> pd.Series:
    """Return the lists without ``0`` where it never is a target: so programs fill lists up to one length."""
    held = lists.map(lambda items: _PADDING in items)
    if not held.any() or (targets == _PADDING).any():
        return lists
    logger.warning(
        "%s: %d of %d lists hold %r, which is no item of a row: it is taken for padding and left out",
        source.path("inter"), int(held.sum()), len(lists), _PADDING,
    )  # fmt: skip
    return lists.map(lambda items: items[items != _PADDING])


def _joined(rows: list[_Row]) -> list[_Row]:
    """Return the rows without those that another one goes on from."""
    cut = max(len(row) for _, row in rows) - 1
    found: list[_Row] = []
    # the shortest of each user first, whatever the order of the file
    for user, row in sorted(rows, key=lambda entry: (entry[0], len(entry[1]))):
        history = row[:-1]
        for owner, begun in reversed(found):
            if owner != user:
                found.append((user, row))
                break
            if history and begun[-len(history) :] == history and len(history) in (len(begun), cut):
                begun.append(row[-1])
                break
        else:
            found.append((user, row))
    return found


def _store(
    sequences: list[tuple[int, int, list[int]]], user_tokens: Iterable[str], item_tokens: Iterable[str]
) -> SequenceStore:
    """Return the store of (user, part, items), by user and part."""
    sequences.sort(key=lambda entry: entry[:2])
    lengths = np.array([len(row) for _, _, row in sequences], dtype=np.int64)
    parts = np.zeros((len(sequences), 4), dtype=np.int64)
    for number, (_, part, row) in enumerate(sequences):
        parts[number, part] = len(row) if part == 1 else 1
        parts[number, 0] = 0 if part == 1 else len(row) - 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return SequenceStore(
        offsets=offsets,
        items=np.array([item for _, _, row in sequences for item in row], dtype=np.int32),
        # no times: the place in the row
        times=(np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).astype(np.float64),
        users=np.array([user for user, _, _ in sequences], dtype=np.int64),
        user_tokens=text_array([PAD, *user_tokens]),
        item_tokens=text_array([PAD, *item_tokens]),
        parts=parts,
    )
