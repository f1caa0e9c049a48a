"""Leave-one-out: the last interaction of a user is the test target, the one before it the validation target."""

from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.types import Int64, Split

PARTS = {"valid_and_test": 2, "valid_only": 1, "test_only": 1}


class LeaveOneOut(Protocol):
    """``{LS: valid_and_test | valid_only | test_only}``, with RecBole's treatment of short histories.

    With valid_and_test a user with 2 interactions only trains, a user with 3 has a test case and no validation case,
    and a user with 4 or more has both. The history of a test case contains the validation item. With ``refit: True``
    the final model trains on all but the test items.
    """

    name = "LS"
    title, by_rows = "leave-one-out", True

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        # always by user, whatever group_by is, as in RecBole
        super().__init__(argument, successive=successive, refit=refit)

    def check_argument(self) -> None:
        super().check_argument()
        if self.refit and self.argument != "valid_and_test":
            needs = "is tested on a test part" if self.argument == "valid_only" else "needs a validation part"
            raise ProtocolError(f"refit: True {needs}, which {{LS: {self.argument}}} does not have")

    def sizes(self, totals: Int64) -> Int64:
        if str(self.argument) not in PARTS:
            raise self.error(f"it must be {' or '.join(PARTS)}")
        held_out = np.minimum(PARTS[self.argument], np.maximum(totals - 1, 0))
        valid = held_out >= (1 if self.argument == "valid_only" else 2)
        return np.stack([totals - held_out, valid, held_out - valid], axis=1).astype(np.int64)

    def split(self, store: SequenceStore) -> Split:
        # RecBole splits (prefix, target) rows: one fewer than the user has interactions
        sizes, lengths = self.sizes(np.maximum(store.lengths - 1, 0)), store.lengths
        if self.argument == "valid_and_test" and sizes[:, 2].any() and not sizes[:, 1].any():
            raise self.error(
                "no user has the 4 interactions that a validation case needs; use test_only or longer histories"
            )
        counts = {
            "users": store.n_rows,
            "users with 1 interaction, in no part": int((lengths == 1).sum()),
            "users with 2 interactions, trained on only": int((lengths == 2).sum()),
            "users with 3 interactions, without a validation case": int((lengths == 3).sum()),
        }
        return self.cut(store, lengths - sizes[:, 1:].sum(axis=1), lengths - sizes[:, 2], counts)
