"""The parts of a split as the files that SplitLight (arXiv 2602.19339) audits for leaks, cold items and drift."""

from pathlib import Path

import numpy as np
import pandas as pd

from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.types import Cases, Int64, Split


def write_splitlight(split: Split, folder: Path, name: str) -> Path:
    """Write preprocessed.parquet to ``folder`` and the parts of the split to ``folder/name``; return the latter.

    The columns are user_id, item_id and timestamp, in the order of the store. An input has the history of each user's
    first case, a target has the targets of all cases of the users.
    """
    store, target = split.store, folder / name
    target.mkdir(parents=True, exist_ok=True)
    _frame(store, np.arange(len(store.items))).to_parquet(folder / "preprocessed.parquet", index=False)
    parts = {"train": store.prefix_index(split.train_lengths)}
    for part, cases in (("validation", split.valid), ("test", split.test)):
        parts[f"{part}_input"] = _histories(cases)
        parts[f"{part}_target"] = store.offsets[cases.rows] + cases.target_positions
    for part, positions in parts.items():
        _frame(store, positions).to_parquet(target / f"{part}.parquet", index=False)
    return target


def _histories(cases: Cases) -> Int64:
    """Return the positions of the history of each user's first case."""
    order = np.lexsort((cases.ends, cases.rows))
    first = order[np.unique(cases.rows[order], return_index=True)[1]]
    starts, ends = cases.starts[first], cases.ends[first]
    return ranges(cases.store.offsets[cases.rows[first]] + starts, ends - starts)


def _frame(store: SequenceStore, positions: Int64) -> pd.DataFrame:
    row = np.searchsorted(store.offsets, positions, side="right") - 1
    return pd.DataFrame(
        {
            "user_id": store.user_tokens[store.users[row]],
            "item_id": store.item_tokens[store.items[positions]],
            "timestamp": store.times[positions],
        }
    )
