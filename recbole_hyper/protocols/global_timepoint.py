"""Global timepoint split with successive evaluation (HSASRec paper, section 4.1)."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import Option
from recbole_hyper.protocols.base import Protocol, known_items
from recbole_hyper.protocols.boundaries import date, latest_start, length_of
from recbole_hyper.protocols.parts import count_by_row, distinct
from recbole_hyper.types import Cases, Split
from recbole_hyper.values import PositiveInt


class GlobalTimepoint(Protocol):
    """``{GT: {valid: 0.9, test: 0.95}}``: training before the first point, validation before the second, then test.

    Each point is a quantile of all times, a date, or a duration before the end (see :func:`boundary`). By default the
    case of a user in a part is the first interaction; with ``target: last`` it is the last one (Gusak et al. 2025,
    "Time to Split"); with ``successive: true`` every interaction is a case, with everything before it as history.
    With ``target: all`` every item of a user in a part is a case, once, and all have the history before the part
    (Ploshkin et al. 2025, "Yambda"). ``max_cases: 50000`` moves the start of a part until it has at most that many
    interactions, as the paper's code. ``gap: 30 minutes`` leaves out what happens so shortly before a part: it neither
    trains nor is history of that part, as a model in use would not have seen it yet.

    Interactions with items that the training part lacks are dropped, as targets and from histories. With
    ``unknown: miss`` such a target stays a case that no model can hit, as in the published tables of Time to Split,
    which rank every user. New users stay:
    their first interaction is history and not a case. With ``refit: True`` the final model trains on train +
    validation, and the test knows the items of both.
    """

    name = "GT"
    title = "global timepoint"

    settings = {
        "valid": Option(),
        "test": Option(),
        "max_cases": Option(kind=PositiveInt | None, default=None),
        "target": Option(kind=Literal["last", "all"] | None, default=None),
        "unknown": Option(kind=Literal["miss"] | None, default=None),
        "gap": Option(kind=str | None, default=None),
    }
    expected = "{valid: 0.9, test: 0.95} is expected (and max_cases, target, unknown, gap)"

    def check_argument(self) -> None:
        settings = self.read_settings(self.argument)
        if settings["target"] and self.successive:
            one = "has one case per user" if settings["target"] == "last" else "has one history per user"
            raise self.error(f"target: {settings['target']} {one}; drop successive: true")
        if settings["unknown"] and self.successive:
            raise self.error("unknown: miss keeps one target per user; drop successive: true")
        self.point(settings["valid"])
        self.point(settings["test"])
        self._gap(np.zeros(1), settings["gap"])

    def split(self, store: SequenceStore) -> Split:
        settings = self.read_settings(self.argument)
        first, second = (self.point(settings[part], store.times) for part in ("valid", "test"))
        if limit := settings["max_cases"]:
            second = latest_start(store.times, second, np.inf, limit)
            first = latest_start(store.times, first, second, limit)
        if first >= second:
            raise self.error(f"validation ({date(first)}) must start before test ({date(second)})")
        gap = self._gap(store.times, settings["gap"])
        train_lengths, refit_lengths = (count_by_row(store, store.times < point - gap) for point in (first, second))
        valid_known = known_items(store, train_lengths)
        test_known = known_items(store, refit_lengths) if self.refit else valid_known
        valid, lost_valid, others_valid = self._cases(store, valid_known, first, second - gap, gap)
        test, lost_test, others_test = self._cases(store, test_known, second, np.inf, gap)
        others = {"validation": others_valid, "test": others_test} if settings["target"] == "all" else {}
        for name, cases in (("validation", valid), ("test", test)):
            if not len(cases):
                raise self.error(f"the {name} part has no case; move the points apart")
        in_gap = sum(int(((store.times >= p - gap) & (store.times < p)).sum()) for p in (first, second)) if gap else 0
        new_users = np.setdiff1d(test.rows, np.flatnonzero(refit_lengths)).size
        return Split(
            store,
            train_lengths,
            valid,
            test,
            refit_lengths=refit_lengths if self.refit else None,
            catalogue=test_known,
            valid_catalogue=valid_known,
            points={"valid": first, "test": second},
            counts={
                "validation starts": date(first),
                "test starts": date(second),
                "validation interactions with unknown items, left out": lost_valid,
                "test interactions with unknown items, left out": lost_test,
                "validation users": int(np.unique(valid.rows).size),
                "test users": int(np.unique(test.rows).size),
                "test users without earlier interactions": int(new_users),
                **{f"{part} interactions without a history or repeated, left out": n for part, n in others.items()},
                **({"interactions in the gaps before validation and test, left out": in_gap} if gap else {}),
            },
        )

    def _gap(self, times: npt.NDArray[np.float64], duration: str | None) -> float:
        try:
            return 0.0 if duration is None else length_of(times, duration)
        except ValueError as error:
            raise self.error(f"gap={error}") from error

    def _cases(
        self, store: SequenceStore, known: np.ndarray, start: float, end: float, gap: float
    ) -> tuple[Cases, int, int]:
        """Return the cases of the interactions in [start, end), how many have an unknown item, and how many no case."""
        inside = (store.times >= start) & (store.times < end)
        kept, all_targets = known[store.items], self.argument.get("target") == "all"
        if self.argument.get("unknown"):
            kept[inside if all_targets else self._targets(store.row_of, inside)] = True
        lost, known_inside = int((inside & ~kept).sum()), int((inside & kept).sum())
        known_store = store.select(kept & ~((store.times >= start - gap) & (store.times < start)))
        in_period = (known_store.times >= start) & (known_store.times < end) & (known_store.positions > 0)
        if all_targets:
            before = count_by_row(known_store, known_store.times < start)
            chosen = np.flatnonzero(in_period & (before > 0)[known_store.row_of])
            rows, places = known_store.row_of[chosen], known_store.positions[chosen]
            cases = distinct(Cases(known_store, rows, before[rows], np.zeros_like(rows), places=places))[0]
        else:
            chosen = np.flatnonzero(in_period) if self.successive else self._targets(known_store.row_of, in_period)
            cases = Cases.build(known_store, known_store.row_of[chosen], known_store.positions[chosen])
        return cases, lost, known_inside - len(cases)

    def _targets(self, rows: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Return the index of the first interaction ``inside`` of each row, or of the last one (target: last)."""
        step = -1 if self.argument.get("target") else 1
        places = np.flatnonzero(inside)[::step]
        return places[np.unique(rows[places], return_index=True)[1]]
