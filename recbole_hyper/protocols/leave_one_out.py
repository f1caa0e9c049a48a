"""Leave-one-out: the last interaction of a user is the test target, the one before it the validation target."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.registry import register
from recbole_hyper.types import Cases, Int64, Split

PARTS = {"valid_and_test": 2, "valid_only": 1, "test_only": 1}


@register("protocols", "LS")
class LeaveOneOut(Protocol):
    """``{LS: valid_and_test | valid_only | test_only}``, with RecBole's treatment of short histories.

    With valid_and_test a user with 2 interactions is in training only, a user with 3 has a test case and no validation
    case, and a user with 4 or more has both. The history of a test case holds the validation item. With ``refit: True``
    the final model is trained on all but the test items.
    """

    title, by_rows = "leave-one-out", True

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        # by user whatever group_by says, as in RecBole
        super().__init__(argument, successive=successive, refit=refit)

    def check_argument(self) -> None:
        super().check_argument()
        if self.refit and self.argument == "valid_only":
            raise ProtocolError("refit: True is tested on a test part, which {LS: valid_only} does not have")
        if self.refit and self.argument == "test_only":
            raise ProtocolError("refit: True needs a validation part, which {LS: test_only} does not have")

    def sizes(self, totals: Int64) -> Int64:
        if str(self.argument) not in PARTS:
            raise ProtocolError(f"split {{LS: {self.argument!r}}}: allowed are {', '.join(PARTS)}")
        held_out = np.minimum(PARTS[self.argument], np.maximum(totals - 1, 0))
        valid = held_out >= (1 if self.argument == "valid_only" else 2)
        return np.stack([totals - held_out, valid, held_out - valid], axis=1).astype(np.int64)

    def split(self, store: SequenceStore) -> Split:
        # RecBole splits (prefix, target) rows, of which a user has one less than interactions
        held_out = self.sizes(np.maximum(store.lengths - 1, 0))[:, 1:].sum(axis=1)
        lengths = store.lengths
        train_lengths = lengths - held_out
        last = np.flatnonzero(held_out >= 1)
        before = np.flatnonzero(held_out >= 2)
        valid, test = Cases.build(store, [], []), Cases.build(store, last, lengths[last] - 1)
        if self.argument == "valid_only":
            valid, test = test, valid
        elif self.argument == "valid_and_test":
            valid = Cases.build(store, before, lengths[before] - 2)
            if len(last) and not len(before):
                raise ProtocolError(
                    "split {LS: valid_and_test}: no user has the 4 interactions that a validation case needs; "
                    "use test_only, or a dataset with longer histories"
                )
        return Split(
            store,
            train_lengths,
            valid,
            test,
            refit_lengths=lengths - (held_out >= 1) if self.refit else None,
            counts={
                "users": store.n_rows,
                "users with 1 interaction, in no part": int((lengths == 1).sum()),
                "users with 2 interactions, trained on only": int((lengths == 2).sum()),
                "users with 3 interactions, without a validation case": int((lengths == 3).sum()),
            },
        )
