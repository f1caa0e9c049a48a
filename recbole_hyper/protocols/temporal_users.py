"""Temporal users split (SCE paper, section 4.1): users who are active after a point in time do not train."""

from typing import Literal

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import Option
from recbole_hyper.protocols.base import Protocol, ProtocolError, known_items
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.protocols.parts import count_by_row, last_times
from recbole_hyper.types import Cases, Split
from recbole_hyper.values import NonNegativeInt


class TemporalUsers(Protocol):
    """``{TU: 0.95}`` or ``{TU: {point: 0.95, history: after, min_item_users: 5, min_user_items: 20}}``.

    In the paper's order: first items with fewer than ``min_item_users`` distinct users are dropped, then users with
    fewer than ``min_user_items`` distinct items, in one pass each, so a few items can fall below the limit again. Users
    without an interaction at or after the point train, the others are held out. Of a held-out user's interactions with
    trained items, the last is the test target and the one before it the validation target; at least one more must
    remain as history. ``history: after`` uses only interactions from the point on (the paper's code), ``history: full``
    all of them.
    """

    name = "TU"
    title = "temporal users"

    settings = {
        "point": Option(default=0.95),
        "history": Option(kind=Literal["after", "full"], default="after"),
        "min_item_users": Option(kind=NonNegativeInt, default=5),
        "min_user_items": Option(kind=NonNegativeInt, default=20),
    }
    expected = f"known settings are {', '.join(settings)}"

    def check_argument(self) -> None:
        self.point(self.own_settings("point")["point"])
        if self.refit:
            raise ProtocolError("refit: True needs a split by time (GT); held-out users never train")

    def split(self, store: SequenceStore) -> Split:
        settings = self.own_settings("point")
        filtered = _filter(store, settings["min_item_users"], settings["min_user_items"])
        if not len(filtered.items):
            raise self.error("min_item_users and min_user_items leave no interaction")
        point = self.point(settings["point"], filtered.times)
        after = filtered.times >= point
        held_out = np.zeros(store.n_rows, dtype=bool)
        held_out[filtered.row_of[after]] = True
        train_lengths = np.where(held_out, 0, filtered.lengths)
        if not train_lengths.any():
            raise self.error(f"every user is active from {date(point)} on, so none can train; move the point")
        known = known_items(filtered, train_lengths)
        # a separate store for the cases, so that training rows keep theirs
        tested = filtered.select(known[filtered.items])
        starts = np.zeros(store.n_rows, dtype=np.int64)
        if settings["history"] == "after":
            starts = count_by_row(tested, tested.times < point)
        # without unknown items a full history can end before the point; then the user has no test case
        is_late = last_times(tested, tested.lengths) >= point
        complete = np.flatnonzero(held_out & (tested.lengths - starts >= 3) & is_late)
        ends = tested.lengths[complete]
        return Split(
            filtered,
            train_lengths,
            Cases.build(tested, complete, ends - 2, starts[complete]),
            Cases.build(tested, complete, ends - 1, starts[complete]),
            catalogue=known,
            points={"test": point},
            counts={
                f"of {len(store.items):,} interactions, left by min_item_users={settings['min_item_users']} and "
                f"min_user_items={settings['min_user_items']}": len(filtered.items),
                "test starts": date(point),
                "training users": int((train_lengths > 0).sum()),
                "held-out users": int(held_out.sum()),
                "held-out users without 3 usable interactions, left out": int(held_out.sum() - len(complete)),
            },
        )


def _filter(store: SequenceStore, min_item_users: int, min_user_items: int) -> SequenceStore:
    """Drop rare items, then short users, once each, counting distinct users and distinct items."""
    item_users = np.asarray((store.matrix() > 0).sum(axis=0)).ravel()
    filtered = store.select(item_users[store.items] >= min_item_users)
    user_items = np.asarray((filtered.matrix() > 0).sum(axis=1)).ravel()
    return filtered.select((user_items >= min_user_items)[filtered.row_of])
