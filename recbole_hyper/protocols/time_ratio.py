"""RecBole 1.2.1's time-based split: one point in time for the test, a share of each user's rest for validation."""

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import is_number
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.registry import register
from recbole_hyper.types import Cases, Split


@register("protocols", "TS")
class TimeRatio(Protocol):
    """``{TS: [0.8, 0.1, 0.1]}``: the newest tenth of all targets is the test, whoever they belong to.

    Of what a user has before that point, the first 8 of 9 parts are training and the rest is validation. Validation
    targets of one user may so be older than training targets of another: ``GT`` keeps these apart in time too.
    """

    title = "time-based ratio"

    def check_argument(self) -> None:
        ratios = self.argument
        if not (
            isinstance(ratios, list | tuple)
            and len(ratios) == 3
            and all(is_number(value) and value >= 0 for value in ratios)
            and ratios[0] > 0
        ):
            raise ProtocolError(f"split {{TS: {ratios!r}}}: three shares such as [0.8, 0.1, 0.1] are expected")

    def split(self, store: SequenceStore) -> Split:
        ratios = np.asarray(self.argument, dtype=np.float64) / np.sum(self.argument)
        rows, positions = store.row_of, store.positions
        # RecBole splits (prefix, target) rows: the first interaction of a user is no target
        is_target = positions > 0
        if not is_target.any():
            raise ProtocolError(f"split {{TS: {self.argument!r}}}: no user has two interactions")
        boundary = np.percentile(store.times[is_target], 100 * (1 - ratios[2]))
        before = np.bincount(rows[is_target & (store.times <= boundary)], minlength=store.n_rows).astype(np.int64)
        trained = (before * (ratios[0] / (1 - ratios[2]))).astype(np.int64)
        train_lengths = np.where(store.lengths > 0, trained + 1, 0)
        valid_end = np.where(store.lengths > 0, before + 1, 0)
        is_valid = is_target & (positions >= train_lengths[rows]) & (positions < valid_end[rows])
        is_test = is_target & (positions >= valid_end[rows])
        for name, share, chosen in (("validation", ratios[1], is_valid), ("test", ratios[2], is_test)):
            if share > 0 and not chosen.any():
                raise ProtocolError(
                    f"split {{TS: {self.argument!r}}}: the {name} part is empty; give it a larger share"
                )
        return Split(
            store,
            train_lengths,
            Cases.build(store, rows[is_valid], positions[is_valid]),
            Cases.build(store, rows[is_test], positions[is_test]),
            refit_lengths=valid_end if self.refit else None,
            counts={"users": store.n_rows, "users without a training target": int((trained == 0).sum())},
        )
