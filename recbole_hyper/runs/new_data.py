"""Yesterday's model on today's interactions: each new one is asked for, given all that came before it."""

import logging
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from recbole_hyper.data.ids import Ids, text_array
from recbole_hyper.data.inputs import Histories, column_names, read_histories, read_history_file
from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.data.times import in_unit, unit_of_times
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.scorers import learns_users
from recbole_hyper.types import Cases, Split

logger = logging.getLogger("recbole_hyper")


def new_cases(
    config: Any, split: Split, source: str | Path | pd.DataFrame, since: str | float | None = None
) -> tuple[Cases, dict[str, Any]]:
    """Return a case for each interaction of ``source`` after ``since``, with everything earlier, and what was counted.

    ``source`` is a file or a frame with users, items and times, ``since`` a number as in the data, or a date; None is
    the newest time of the run's data. Of equal times those of the run come first, then the source's in the order of
    their rows. An interaction of the run's data (user, item and time) is not new. Left out, and counted, are
    interactions with items that the model does not know, those without any earlier interaction, and those of new users
    where the model learns users. ConfigError for a table without these columns, or without a new interaction.
    """
    store, unit = split.store, unit_of_times(split.store.times)
    own = column_names(config, store)
    try:
        reader: Any = read_history_file if isinstance(source, str | Path) else read_histories
        read = reader(Path(source) if isinstance(source, str) else source, own, unit=unit)
        start = float(store.times.max()) if since is None else float(in_unit(pa.array([since]), unit)[0])
        times = read.times
    except ValueError as error:
        raise ConfigError(f"--data: {error}") from error
    if times is None:
        raise ConfigError(f"--data: a column of times ({config['TIME_FIELD']}) is needed: what is new follows from it")
    is_late = np.greater if since is None else np.greater_equal
    merged, new = _merged(store, read, times)
    unknown = (Ids(store.item_tokens).find(read.tokens)[read.codes] == 0) & is_late(times, start)
    trained = float(store.times[store.prefix_index(split.train_lengths)].max(initial=-np.inf))
    if start < trained:
        logger.warning("since is before the newest interaction that was trained on: these cases are no test")
    positions = np.flatnonzero(new & is_late(merged.times, start))
    rows = np.searchsorted(merged.offsets, positions, side="right") - 1
    ends = positions - merged.offsets[rows]
    is_new_user = merged.users[rows] >= len(store.user_tokens)
    refused = is_new_user if learns_users(config.model_class) else np.zeros(len(positions), dtype=bool)
    usable = (ends > 0) & ~refused
    counts: dict[str, Any] = {
        "protocol": "new data",
        "new interactions with items that the model does not know, not ranked": int(unknown.sum()),
        "new interactions without an earlier one, not ranked": int(((ends == 0) & ~refused).sum()),
        "new interactions of users that the model did not learn, not ranked": int(refused.sum()),
        "test cases": int(usable.sum()),
        "cases of new users": int(is_new_user[usable].sum()),
        "since": start,
    }
    cases = Cases.build(merged, rows[usable], ends[usable])
    if not len(cases):
        newest = pd.Timestamp(start, unit="s") if start > 1e6 else start
        raise ConfigError(f"--data: no interaction after {newest} can be ranked: {counts}; another --since=DATE?")
    return cases, {**counts, "until": float(cases.times.max())}


def _merged(store: SequenceStore, read: Histories, times: npt.NDArray[np.float64]) -> tuple[SequenceStore, Any]:
    """Return a store of the users of ``read`` with all they did, and which of its interactions are new."""
    users = Ids(store.user_tokens).find(read.names)
    added = users == 0
    tokens = text_array(chain(store.user_tokens.tolist(), map(str, read.names[added].tolist())))
    users[added] = len(store.user_tokens) + np.arange(int(added.sum()))
    items = Ids(store.item_tokens).find(read.tokens)[read.codes]
    owner = np.repeat(np.arange(len(users)), np.diff(read.offsets))
    known = items > 0
    row_of_user = np.full(len(store.user_tokens), -1)
    row_of_user[store.users] = np.arange(store.n_rows)
    owners = np.flatnonzero(~added)
    owners = owners[row_of_user[users[owners]] >= 0]  # a user of the data may have lost all to a filter
    old_rows = row_of_user[users[owners]]
    lengths = store.lengths[old_rows]
    index = ranges(store.offsets[old_rows], lengths)
    old = pd.DataFrame({"row": np.repeat(owners, lengths), "item": store.items[index], "time": store.times[index]})
    new = pd.DataFrame({"row": owner[known], "item": items[known], "time": times[known]})
    new = new[~pd.MultiIndex.from_frame(new).isin(pd.MultiIndex.from_frame(old))]
    table = pd.concat([old.assign(new=False), new.assign(new=True)], ignore_index=True)
    table = table.sort_values(["row", "time"], kind="stable")
    merged = SequenceStore(
        offsets=np.concatenate([[0], np.cumsum(np.bincount(table["row"], minlength=len(users)))]),
        items=table["item"].to_numpy(dtype=np.int32),
        times=table["time"].to_numpy(dtype=np.float64),
        users=users.astype(np.int64),
        user_tokens=tokens,
        item_tokens=store.item_tokens,
    )
    return merged, table["new"].to_numpy()
