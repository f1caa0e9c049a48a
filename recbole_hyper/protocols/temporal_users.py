"""Temporal users split (SCE paper, section 4.1): users active after a point in time are held out altogether."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import Option
from recbole_hyper.protocols.base import Protocol, ProtocolError, known_items
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.registry import register
from recbole_hyper.types import Cases, Split


@register("protocols", "TU")
class TemporalUsers(Protocol):
    """``{TU: 0.95}`` or ``{TU: {point: 0.95, history: after, min_item_users: 5, min_user_items: 20}}``.

    In the paper's order: items of fewer than ``min_item_users`` distinct users are dropped, then users of fewer than
    ``min_user_items`` distinct items (one pass each, so that a few items fall below the bound again). Users without an
    interaction at or after the point are trained on, the others are held out. Of a held-out user, restricted to
    trained items, the last interaction is the test target, the one before it the validation target, and at least one
    more must be left as history. ``history: after`` takes only the part from the point on (the paper's code),
    ``history: full`` all of the user's interactions.
    """

    title = "temporal users"

    settings = {
        "point": Option(default=0.95),
        "history": Option("after or full", default="after"),
        "min_item_users": Option("int >= 0", default=5),
        "min_user_items": Option("int >= 0", default=20),
    }
    expected = f"known settings are {', '.join(settings)}"

    def _given(self) -> dict[str, Any]:
        return self.read_settings(self.argument if isinstance(self.argument, dict) else {"point": self.argument})

    def check_argument(self) -> None:
        self.point(self._given()["point"])
        if self.refit:
            raise ProtocolError("refit: True needs a split by time (GT); held-out users are not trained on")

    def split(self, store: SequenceStore) -> Split:
        settings = self._given()
        filtered = _filter(store, settings["min_item_users"], settings["min_user_items"])
        if not len(filtered.items):
            raise self.error("no interaction is left after min_item_users and min_user_items")
        point = self.point(settings["point"], filtered.times)
        after = filtered.times >= point
        held_out = np.zeros(store.n_rows, dtype=bool)
        held_out[filtered.row_of[after]] = True
        train_lengths = np.where(held_out, 0, filtered.lengths)
        if not train_lengths.any():
            raise self.error(f"every user is active from {date(point)} on, none is left")
        known = known_items(filtered, train_lengths)
        # train rows keep their place: the cases point into a separate store
        tested = filtered.select(known[filtered.items])
        starts = np.zeros(store.n_rows, dtype=np.int64)
        if settings["history"] == "after":
            starts = np.bincount(tested.row_of[tested.times < point], minlength=store.n_rows).astype(np.int64)
        # a full history may end before the point once unknown items are gone; such a user has nothing to test
        newest = np.full(store.n_rows, -np.inf)
        newest[tested.lengths > 0] = tested.times[tested.offsets[1:][tested.lengths > 0] - 1]
        complete = np.flatnonzero(held_out & (tested.lengths - starts >= 3) & (newest >= point))
        ends = tested.lengths[complete]
        return Split(
            filtered,
            train_lengths,
            Cases.build(tested, complete, ends - 2, starts[complete]),
            Cases.build(tested, complete, ends - 1, starts[complete]),
            catalogue=known,
            points={"test": point},
            counts={
                "interactions left by the filters": len(filtered.items),
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
