"""RecBole 1.2.1's time-based split: one point in time for the test, a share of each user's rest for validation."""

import numpy as np

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.ratio import checked_shares, cut
from recbole_hyper.registry import register
from recbole_hyper.types import Split


@register("protocols", "TS")
class TimeRatio(Protocol):
    """``{TS: [0.8, 0.1, 0.1]}``: the newest tenth of all targets is the test, whoever they belong to.

    Of what a user has before that point, the first 8 of 9 parts are training and the rest is validation. Validation
    targets of one user may so be older than training targets of another: ``GT`` keeps these apart in time too.
    """

    title = "time-based ratio"

    def check_argument(self) -> None:
        if checked_shares("TS", self.argument)[0] == 0:
            raise ProtocolError(f"split {{TS: {self.argument!r}}}: the first share, of training, must be above 0")

    def split(self, store: SequenceStore) -> Split:
        shares = np.asarray(self.argument, dtype=np.float64) / np.sum(self.argument)
        # RecBole splits (prefix, target) rows: the first interaction of a user is no target
        is_target = store.positions > 0
        if not is_target.any():
            raise ProtocolError(f"split {{TS: {self.argument!r}}}: no user has two interactions")
        boundary = np.percentile(store.times[is_target], 100 * (1 - shares[2]))
        before = np.bincount(store.row_of[is_target & (store.times <= boundary)], minlength=store.n_rows)
        trained = (before * (shares[0] / (1 - shares[2]))).astype(np.int64)
        train_lengths = np.where(store.lengths > 0, trained + 1, 0)
        valid_end = np.where(store.lengths > 0, before + 1, 0).astype(np.int64)
        counts = {"users": store.n_rows, "users without a training target": int((trained == 0).sum())}
        return cut("TS", self, store, train_lengths, valid_end, counts)
