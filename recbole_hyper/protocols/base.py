"""Base of the protocols. A protocol decides what trains, what is predicted, and the candidates of each target."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recbole_hyper import registry
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import OPEN, Option, Part
from recbole_hyper.protocols.boundaries import boundary, read_point
from recbole_hyper.protocols.candidates import draw_candidates, read_candidates
from recbole_hyper.protocols.parts import dealt, last_times, split_of_parts
from recbole_hyper.types import Cases, Int64, Split
from recbole_hyper.values import in_words


class ProtocolError(ValueError):
    """A split that is impossible or would leak; the message says why and what to change."""


class Protocol(Part):
    """One way to split a store; ``name`` is its short name in ``eval_args: {split: {NAME: argument}}``.

    ``successive`` makes every interaction of an evaluation part a case, with the history before it. ``refit`` trains
    the final model on train + validation. ``by_user`` splits the interactions of each user, otherwise those of all
    users together. Not every protocol has all three.
    """

    kind = "protocols"
    name: ClassVar[str] = ""
    title: str
    # whether the parts of a user follow one another in time
    timed: ClassVar[bool] = True
    # whether sizes counts interactions, so that a random order or one of all users is possible
    by_rows: ClassVar[bool] = False
    # settings of an argument that is a mapping (those without a default are required), and an example of it
    settings: ClassVar[Mapping[str, Option]] = {}
    expected: ClassVar[str] = ""

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        self.argument, self.successive, self.refit, self.by_user = argument, successive, refit, by_user

    def split(self, store: SequenceStore) -> Split:
        """Return the split of ``store``; ProtocolError if a part would be empty.

        By default :meth:`sizes` cuts the rows, and a case has everything before it as its history.
        """
        sizes = np.column_stack((np.zeros_like(store.lengths), self.sizes(store.lengths)))
        return split_of_parts(store, sizes, refit=self.refit, successive=True)

    def check_argument(self) -> None:
        """Raise ProtocolError for an argument or options that are wrong for any data; called before data are read."""
        if self.by_rows:
            self.sizes(np.zeros(1, dtype=np.int64))

    def cut(self, store: SequenceStore, train_lengths: Int64, valid_end: Int64, counts: dict[str, Any]) -> Split:
        """Return the split whose training and validation parts end at these positions (U,) of the rows.

        Every later interaction is a case, except the first of a user: RecBole splits (prefix, target) rows.
        """
        rows, positions = store.row_of, store.positions
        later = (positions >= train_lengths[rows]) & (positions > 0)
        is_test = positions >= valid_end[rows]
        valid, test = (Cases.build(store, rows[part], positions[part]) for part in (later & ~is_test, later & is_test))
        refit_lengths = valid_end if self.refit else None
        return Split(store, train_lengths, valid, test, refit_lengths=refit_lengths, counts=counts)

    def error(self, text: str) -> ProtocolError:
        """Return an error that names the split and its argument."""
        return ProtocolError(f"split {{{registry.name_of('protocols', type(self))}: {self.argument!r}}}: {text}")

    def own_settings(self, alone: str) -> dict[str, Any]:
        """Return :meth:`read_settings` of the split's argument; one that is no mapping is the value of ``alone``."""
        return self.read_settings(self.argument if isinstance(self.argument, dict) else {alone: self.argument})

    def read_settings(self, argument: Any) -> dict[str, Any]:
        """Return ``argument`` with the defaults of ``settings``; ProtocolError for unknown keys or wrong values."""
        required = {key for key, option in self.settings.items() if option.default is OPEN}
        if not isinstance(argument, dict) or not required <= argument.keys() <= self.settings.keys():
            raise self.error(self.expected)
        for key, value in argument.items():
            if not self.settings[key].allows(value):
                raise self.error(f"{key}={value!r}; {in_words(self.settings[key].kind)} is expected")
        return {key: argument.get(key, option.default) for key, option in self.settings.items()}

    def point(self, where: Any, times: npt.NDArray[np.float64] | None = None) -> float:
        """Return the time at which the part from ``where`` starts; without ``times`` only check ``where``."""
        try:
            return boundary(times, where) if times is not None else bool(read_point(where))
        except ValueError as error:
            raise self.error(str(error)) from error

    def sizes(self, totals: Int64) -> Int64:
        """Return the sizes (n, 3) of training, validation and test for ``totals`` (n,) interactions."""
        raise NotImplementedError(f"{self.title} counts no interactions")

    def split_at_random(self, store: SequenceStore, seed: int) -> Split:
        """Return the split of ``store`` in a random order, drawn by ``seed``, for splits that count interactions.

        A validation case has the user's training part as history, a test case also the validation part.
        """
        store, parts = dealt(store, self.sizes, seed, by_user=self.by_user)
        if self.refit and not parts[:, 2].any():
            raise ProtocolError("refit: True needs a validation part, which this split does not have")
        return split_of_parts(store, parts, refit=self.refit)


def make_split(store: SequenceStore, config: Any) -> Split:
    """Split ``store`` by ``eval_args``, check the split for leaks, and draw the candidates.

    ConfigError for an unknown split; ProtocolError for an empty part, a leak, or wrong candidates.
    """
    arguments = config["eval_args"]
    if not isinstance(arguments["split"], dict) or len(arguments["split"]) != 1:
        raise ProtocolError(f"eval_args split={arguments['split']!r} must be one entry, such as {{LS: valid_and_test}}")
    protocol = registry.checked_protocol(arguments, refit=bool(config["refit"]))
    at_random = arguments["order"] == "RO"
    timed = protocol.timed and not at_random
    split = protocol.split_at_random(store, config["candidate_seed"]) if at_random else protocol.split(store)
    if not len(split.test) and not len(split.valid):
        raise ProtocolError(
            f"{protocol.title}: {store.n_rows} users with {len(store.items)} interactions leave no validation and no "
            "test case; loosen the filters or move the boundaries"
        )
    if not (split.train_lengths >= 2).any():
        raise ProtocolError(f"{protocol.title}: no user has 2 training interactions, so there is nothing to learn from")
    check(split, timed=timed)
    # read after the split, as the data may decide the title
    split.counts["protocol"] = f"{protocol.title}, in random order" if at_random else protocol.title
    for part, cases in (("validation", split.valid), ("test", split.test)):
        if len(cases):
            split.counts[f"{part} targets that are not in the training part"] = cold_targets(cases, split)
            if timed and (ties := tied_targets(cases)):
                split.counts[f"{part} targets at the time of their history's last interaction"] = ties
    seed = config["candidate_seed"]
    drawn = {part: _with_candidates(part, mode, split, store, seed) for part, mode in arguments["mode"].items()}
    split = dataclasses.replace(split, **drawn)
    return sampled(split, int(config["eval_cases"]), seed) if config["eval_cases"] else split


def sampled(split: Split, n_cases: int, seed: int, parts: Sequence[str] = ("valid", "test")) -> Split:
    """Return ``split`` with at most ``n_cases`` cases in each of the ``parts``, drawn by ``seed``, in order."""
    fewer = {}
    for number, part in enumerate(("valid", "test")):
        cases = getattr(split, part)
        if part in parts and len(cases) > n_cases:
            draw = np.random.default_rng((seed, number))
            fewer[part] = cases[np.sort(draw.choice(len(cases), n_cases, replace=False))]
            split.counts[f"{part} cases drawn of {len(cases)}"] = n_cases
    return dataclasses.replace(split, **fewer)


def check(split: Split, *, timed: bool = True) -> None:
    """Raise ProtocolError for an empty history, a target in its history or in the training part, or a wrong order.

    In the right order no validation target of a user comes after a test target, and parts that start at points in time
    contain nothing from the other side. If parts are ``timed``, no target is older than its user's training part.
    """
    for name, cases in (("validation:", split.valid), ("test:", split.test)):
        _refuse(cases.ends <= cases.starts, name, "cases have an empty history")
        _refuse(cases.target_positions < cases.ends, name, "targets are part of their history")
        if cases.store is split.store:
            _refuse(
                cases.target_positions < split.train_lengths[cases.rows], name, "targets are part of the training data"
            )
        if timed:
            early = cases.times < last_times(split.store, split.train_lengths)[cases.rows]
            _refuse(early, name, "targets are older than their user's training data")
    if len(split.valid) and len(split.test) and split.valid.store is split.test.store:
        first_test = np.full(split.store.n_rows, np.iinfo(np.int64).max)
        np.minimum.at(first_test, split.test.rows, split.test.target_positions)
        late = split.valid.target_positions >= first_test[split.valid.rows]
        _refuse(late, "", "validation targets are not earlier than a test target of their user")
    if split.points:
        _check_points(split)


def _refuse(wrong: np.ndarray, name: str, what: str) -> None:
    """Raise ProtocolError with the number of ``wrong`` entries, if any."""
    if wrong.any():
        raise ProtocolError(f"{name} {int(wrong.sum())} {what}".lstrip())


def _check_points(split: Split) -> None:
    misplaced = "interactions are on the wrong side of a point in time"
    test = split.points["test"]
    # rows are in time order, so the last training interaction decides
    trained = last_times(split.store, split.train_lengths) >= min(split.points.values())
    _refuse(trained, "", f"users' training {misplaced}")
    _refuse(split.test.times < test, "", f"test {misplaced}")
    if "valid" in split.points:
        times = split.valid.times
        _refuse((times < split.points["valid"]) | (times >= test), "", f"validation {misplaced}")
    if split.refit_lengths is not None:
        _refuse(last_times(split.store, split.refit_lengths) >= test, "", f"users' refit {misplaced}")


def cold_targets(cases: Cases, split: Split) -> int:
    """Return how many targets have no training interaction."""
    return int((~known_items(split.store, split.train_lengths)[cases.targets]).sum())


def tied_targets(cases: Cases) -> int:
    """Return how many targets have the time of the last interaction of their history, such as items of one order."""
    before = cases.store.times[cases.store.offsets[cases.rows] + cases.ends - 1]
    return int((cases.times == before).sum())


def repeated_targets(cases: Cases) -> npt.NDArray[np.bool_]:
    """Return which targets (n,) occur in their history; with ``exclude_seen`` no model can hit them."""
    store, order = cases.store, np.argsort(cases.rows, kind="stable")
    rows, repeated = cases.rows[order], np.zeros(len(cases), dtype=bool)
    for part in store.stretches():
        inside = order[np.searchsorted(rows, part.start) : np.searchsorted(rows, part.stop)]
        if not len(inside):
            continue
        first, end = store.offsets[part.start], store.offsets[part.stop]
        size = int(end - first)
        owners = np.repeat(np.arange(part.stop - part.start), store.lengths[part])
        pairs, numbers = np.unique(owners * store.n_items + store.items[first:end], return_inverse=True)
        # one number for (pair of row and item, position): the next one from the start of a history decides
        keys = np.append(np.sort(numbers * size + np.arange(size)), np.iinfo(np.int64).max)
        targets = (cases.rows[inside] - part.start) * store.n_items + cases.targets[inside]
        origin = np.searchsorted(pairs, targets) * size + store.offsets[cases.rows[inside]] - first
        next_key = keys[np.searchsorted(keys, origin + cases.starts[inside])]
        repeated[inside] = next_key < origin + cases.ends[inside]
    return repeated


def known_items(store: SequenceStore, lengths: Int64) -> np.ndarray:
    """Return the mask (n_items,) of items that occur in the first ``lengths[row]`` interactions of any row."""
    return store.counts(lengths) > 0


def _with_candidates(part: str, mode: str, split: Split, store: SequenceStore, seed: int) -> Cases:
    """Return the cases of ``part`` with the candidates of ``mode``; no candidate is an item of the user."""
    cases = split.valid if part == "valid" else split.test
    if mode == "full" or not len(cases):
        return cases
    if Path(mode).is_file():
        return dataclasses.replace(cases, candidates=read_candidates(Path(mode), cases))
    weights = np.ones(store.n_items)
    if mode[:3] == "pop":
        weights = split.store.counts(split.train_lengths).astype(np.float64)
    catalogue = split.candidates(part)
    if cases.candidates is not None:  # from the protocol
        catalogue = np.zeros(store.n_items, dtype=bool)
        catalogue[cases.candidates] = catalogue[cases.targets] = True
    if catalogue is not None:
        weights[~catalogue] = 0.0
    drawn = draw_candidates(store, int(mode[3:]), seed, weights)
    return dataclasses.replace(cases, candidates=drawn[cases.rows])
