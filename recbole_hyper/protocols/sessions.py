"""Held-out sessions, as session-based papers evaluate: every prefix of a session that never trains is a case."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import Option
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.types import Cases, Split
from recbole_hyper.values import InnerShare


class Sessions(Protocol):
    """``{SE: {test: 0.9, valid: 0.9}}``: each user of the data is a session, which trains or is held out as a whole.

    ``test`` is a point in time, and sessions that begin at or after it are the test, or the path of a file with the id
    of a test session in each line. Of the others, in the order of their last interactions, the first share ``valid``
    trains and the rest is validation. Every interaction of a held-out session but its first is a target, and the
    interactions before it are the history, also if the target is among them: see ``exclude_seen``.
    """

    name = "SE"
    title = "sessions"
    settings = {"test": Option(default=0.9), "valid": Option(kind=InnerShare, default=0.9)}
    expected = f"known settings are {', '.join(settings)}"

    def check_argument(self) -> None:
        test = self.own_settings("test")["test"]
        if not _is_file(test):
            self.point(test)
        if self.successive:
            raise ProtocolError("successive: every interaction of a held-out session is a case already; leave it out")

    def split(self, store: SequenceStore) -> Split:
        settings = self.own_settings("test")
        held_out, points = self._held_out(store, settings["test"])
        others = np.flatnonzero(~held_out & (store.lengths > 0))
        if not len(others) or not held_out.any():
            raise self.error(f"{len(others)} sessions train and {int(held_out.sum())} are tested; move the point")
        ends = store.times[store.offsets[others] + store.lengths[others] - 1]
        newest_last = others[np.argsort(ends, kind="stable")]
        valid = np.zeros(store.n_rows, dtype=bool)
        valid[newest_last[int(settings["valid"] * len(others)) :]] = True
        trains = ~held_out & ~valid
        return Split(
            store,
            np.where(trains, store.lengths, 0),
            _prefixes(store, valid),
            _prefixes(store, held_out),
            refit_lengths=np.where(held_out, 0, store.lengths) if self.refit else None,
            counts={
                **{f"{part} starts": date(point) for part, point in points.items()},
                "training sessions": int((trains & (store.lengths > 0)).sum()),
                "validation sessions": int(valid.sum()),
                "test sessions": int(held_out.sum()),
                "held-out sessions of one item, left out": int(((held_out | valid) & (store.lengths == 1)).sum()),
            },
        )

    def _held_out(self, store: SequenceStore, test: Any) -> tuple[npt.NDArray[np.bool_], dict[str, float]]:
        """Return which rows (U,) are tested, and the time that the test starts at, if it has one."""
        if _is_file(test):
            text = Path(test).read_text(encoding="utf-8-sig", errors="replace")
            listed = {line.strip() for line in text.splitlines()} - {""}
            tested = np.isin(store.user_tokens[store.users].astype(str), sorted(listed))
            if missing := len(listed) - int(tested.sum()):
                raise self.error(f"{missing} of {len(listed)} ids in {test} are no users of the data")
            return tested, {}
        point = self.point(test, store.times)
        first = np.full(store.n_rows, -np.inf)
        filled = store.lengths > 0
        first[filled] = store.times[store.offsets[:-1][filled]]
        return first >= point, {"test": point}


def _is_file(test: Any) -> bool:
    return isinstance(test, str) and Path(test).is_file()


def _prefixes(store: SequenceStore, rows: npt.NDArray[np.bool_]) -> Cases:
    """Return a case for every interaction of the chosen ``rows`` (U,) but their first."""
    places = rows[store.row_of] & (store.positions > 0)
    return Cases.build(store, store.row_of[places], store.positions[places])
