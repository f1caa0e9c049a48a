"""Last basket out: all items of a user's last order are test targets, those of the order before it validation."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.leave_one_out import PARTS
from recbole_hyper.protocols.parts import distinct, split_of_parts
from recbole_hyper.types import Int64, Split


class LastBasket(Protocol):
    """``{LB: valid_and_test | valid_only | test_only}``: a basket is the interactions of a user with equal times.

    The last basket of a user is the test, the one before it the validation. Each item of a basket is a case, once, and
    all of them have the history before the basket, so no target follows an item of the same order. With
    valid_and_test a user with 2 baskets has no validation case, and a user with 1 basket only trains.
    ``examples/convert/times.py`` gives the items of an order one time. With ``refit: True`` the final model trains on
    all but the test baskets.
    """

    name = "LB"
    title = "last basket out"

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        # always by user, whatever group_by is, as leave-one-out
        super().__init__(argument, successive=successive, refit=refit)

    def check_argument(self) -> None:
        if str(self.argument) not in PARTS:
            raise self.error(f"it must be {' or '.join(PARTS)}")
        if self.successive:
            raise self.error("all items of a basket have the history before it; drop successive: true")
        if self.refit and self.argument != "valid_and_test":
            needs = "is tested on a test part" if self.argument == "valid_only" else "needs a validation part"
            raise ProtocolError(f"refit: True {needs}, which {{LB: {self.argument}}} does not have")

    def split(self, store: SequenceStore) -> Split:
        self.check_argument()
        last, before, counts = basket_sizes(store)
        held_out = np.where(counts >= 2, last, 0)
        if self.argument == "valid_only":
            valid, test = held_out, np.zeros_like(held_out)
        else:
            valid, test = np.where((counts >= 3) & (self.argument == "valid_and_test"), before, 0), held_out
        train = store.lengths - valid - test
        parts = np.stack([np.zeros_like(train), train, valid, test], axis=1)
        split = split_of_parts(store, parts, refit=self.refit)
        (valid_cases, repeats), (test_cases, more) = distinct(split.valid), distinct(split.test)
        notes: dict[str, Any] = {
            "users": store.n_rows,
            "users with 1 basket, trained on only": int((counts == 1).sum()),
            "users with 2 baskets, without a validation case": int((counts == 2).sum()),
            "mean items of a basket": round(len(store.items) / max(1, int(counts.sum())), 2),
            "targets that repeat an item of their basket, left out": repeats + more,
        }
        if self.argument == "valid_and_test" and len(test_cases) and not len(valid_cases):
            raise self.error("no user has the 3 baskets that a validation case needs; use test_only")
        return Split(store, split.train_lengths, valid_cases, test_cases, split.refit_lengths, counts=notes)


def basket_sizes(store: SequenceStore) -> tuple[Int64, Int64, Int64]:
    """Return for each row (U,) the sizes of its last basket and of the one before it (0 if none), and its baskets."""
    begins = store.positions == 0
    begins[1:] |= store.times[1:] != store.times[:-1]
    sizes = np.diff(np.append(np.flatnonzero(begins), len(store.items)))
    counts = np.bincount(store.row_of[begins], minlength=store.n_rows).astype(np.int64)
    ends = np.cumsum(counts)
    padded = np.concatenate([[0, 0], sizes]).astype(np.int64)
    return np.where(counts >= 1, padded[ends + 1], 0), np.where(counts >= 2, padded[ends], 0), counts
