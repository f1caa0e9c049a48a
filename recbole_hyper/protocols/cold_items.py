"""Cold items: training lacks a seeded share of the catalogue, which the model then has to predict."""

import dataclasses
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import Option
from recbole_hyper.protocols.base import Protocol
from recbole_hyper.protocols.parts import count_by_row
from recbole_hyper.types import Cases, Int64, Split
from recbole_hyper.values import InnerShare, NonNegativeInt


class ColdItems(Protocol):
    """``{CI: {valid: 0.1, test: 0.2}}``: training lacks a tenth and a fifth of the items, drawn by a seed.

    A user's test target is the last interaction with a test item, the validation target the last one before it with a
    validation item. The history of a target is everything before it with the other items, so that models with and
    without features see the same history. The interactions before the first target train the model. Targets are ranked
    among all items, or with ``among: cold`` among the items of the same draw.

    ``seed: 2020`` draws the items. There is no refit.
    """

    name = "CI"
    title = "cold items"
    settings = {
        "valid": Option(kind=InnerShare),
        "test": Option(kind=InnerShare),
        "seed": Option(kind=NonNegativeInt, default=2020),
        "among": Option(kind=Literal["all", "cold"], default="all"),
    }
    expected = "{valid: 0.1, test: 0.2} is expected, two shares of the items (and seed, among)"

    def check_argument(self) -> None:
        settings = self.read_settings(self.argument)
        if settings["valid"] + settings["test"] >= 1:
            raise self.error("the two shares of the items must be less than 1 together")
        if self.refit or self.successive:
            raise self.error("this split has no refit and no successive targets: it has one target per user and part")

    def split(self, store: SequenceStore) -> Split:
        self.check_argument()
        settings = self.read_settings(self.argument)
        among = settings["among"]
        drawn = draw_items(store, {part: settings[part] for part in ("valid", "test")}, settings["seed"])
        warm = ~np.logical_or.reduce(list(drawn.values()))
        stop = store.lengths
        cases: dict[str, Cases] = {}
        alone: dict[str, int] = {}
        for part in ("test", "valid"):
            target = last_of(store, drawn[part], stop)
            cases[part] = self._cases(store, warm, target)
            alone[f"{part} users without an earlier item, left out"] = int((target >= 0).sum()) - len(cases[part])
            if not len(cases[part]):
                raise self.error(f"no user has a {part} item after other items; draw more items")
            if among == "cold":
                cases[part] = _among(cases[part], np.flatnonzero(drawn[part]))
            # earlier targets and the training part end before this target
            stop = np.where(target >= 0, target, stop)
        training = store.select(warm[store.items])
        before = np.arange(len(store.items)) < np.repeat(store.offsets[:-1] + stop, store.lengths)
        lengths = count_by_row(store, warm[store.items] & before)
        counts: dict[str, int | float | str] = {
            "items drawn for validation": int(drawn["valid"].sum()),
            "items drawn for the test": int(drawn["test"].sum()),
            "targets are ranked among": "the items of their draw" if among == "cold" else "all items",
            **alone,
        }
        return Split(training, lengths, cases["valid"], cases["test"], counts=counts)

    @staticmethod
    def _cases(store: SequenceStore, warm: npt.NDArray[np.bool_], target: Int64) -> Cases:
        """Return a case for each row with a ``target`` (U,) after a warm item, in a store without other drawn items."""
        rows = np.flatnonzero(target >= 0)
        keep = warm[store.items]
        keep[store.offsets[rows] + target[rows]] = True
        before: Int64 = np.cumsum(keep) - keep
        ends: Int64 = before[store.offsets[rows] + target[rows]] - before[store.offsets[rows]]
        return Cases.build(store.select(keep), rows[ends > 0], ends[ends > 0])


def draw_items(store: SequenceStore, shares: dict[str, float], seed: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Return a mask (n_items,) for each share; draws only items with interactions, none twice."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(store.counts()))
    drawn, first = {}, 0
    for part, share in shares.items():
        number = round(share * len(order))
        drawn[part] = np.zeros(store.n_items, dtype=bool)
        drawn[part][order[first : first + number]] = True
        first += number
    return drawn


def last_of(store: SequenceStore, items: npt.NDArray[np.bool_], stop: Int64) -> Int64:
    """Return the last position (U,) before ``stop`` (U,) with one of ``items`` in each row, or -1."""
    positions = store.positions
    eligible = items[store.items] & (positions < np.repeat(stop, store.lengths))
    last = np.full(store.n_rows, -1, dtype=np.int64)
    np.maximum.at(last, store.row_of[eligible], positions[eligible])
    return last


def _among(cases: Cases, items: Any) -> Cases:
    """Return ``cases`` with all ``items`` but the target as candidates."""
    place = np.searchsorted(items, cases.targets)
    columns = np.arange(len(items) - 1)
    others = items[columns + (columns >= place[:, None])]
    return dataclasses.replace(cases, candidates=others.astype(np.int32))
