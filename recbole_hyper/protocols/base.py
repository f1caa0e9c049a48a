"""A protocol decides what is trained on, what is predicted, and among which candidates each target is ranked."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recbole_hyper import registry
from recbole_hyper.config.checks import checked_protocol
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.options import OPEN, Option, in_words
from recbole_hyper.protocols.boundaries import boundary, read_point
from recbole_hyper.protocols.candidates import draw_candidates, read_candidates
from recbole_hyper.protocols.parts import dealt, last_times, split_of_parts
from recbole_hyper.types import Cases, Int64, Split


class ProtocolError(ValueError):
    """The split cannot be made, or it would leak; the message says why and what to change."""


class Protocol(registry.Part):
    """One way to split a store, registered under RecBole's short name in ``eval_args: {split: {NAME: argument}}``.

    Options, where a protocol has them: ``successive`` makes every interaction of an evaluation part a case, with the
    history up to it; ``refit`` trains the final model on train + validation; ``by_user`` splits the interactions of
    each user, False those of all users together.
    """

    title: str
    # whether the parts of a user follow one another in time
    timed: ClassVar[bool] = True
    # whether it counts interactions, so that a random order, or one of all users, is possible
    by_rows: ClassVar[bool] = False
    # of an argument that is a mapping: its settings, required without a default, and how it looks
    settings: ClassVar[Mapping[str, Option]] = {}
    expected: ClassVar[str] = ""

    def __init__(self, argument: Any, *, successive: bool = False, refit: bool = False, by_user: bool = True) -> None:
        self.argument, self.successive, self.refit, self.by_user = argument, successive, refit, by_user

    def split(self, store: SequenceStore) -> Split:
        """Return the split of ``store``; ProtocolError if a part would be empty.

        By default :meth:`sizes` cuts the rows, and the history of a case is everything before it.
        """
        sizes = np.column_stack((np.zeros_like(store.lengths), self.sizes(store.lengths)))
        return split_of_parts(store, sizes, refit=self.refit, successive=True)

    def check_argument(self) -> None:
        """Raise ProtocolError for an argument or options that are wrong for all data; called before data are read."""
        if self.by_rows:
            self.sizes(np.zeros(1, dtype=np.int64))

    def cut(self, store: SequenceStore, train_lengths: Int64, valid_end: Int64, counts: dict[str, Any]) -> Split:
        """Return the split whose training and validation parts end at these positions of each row, (U,) each.

        Every later interaction is a case, but not the first one of a user: RecBole splits (prefix, target) rows.
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

    def read_settings(self, given: Any) -> dict[str, Any]:
        """Return ``given`` with the defaults of ``settings``; ProtocolError for other keys, or values out of range."""
        required = {key for key, option in self.settings.items() if option.default is OPEN}
        if not isinstance(given, dict) or not required <= given.keys() <= self.settings.keys():
            raise self.error(self.expected)
        for key, value in given.items():
            if not self.settings[key].allows(value):
                raise self.error(f"{key}={value!r}; {in_words(self.settings[key].values)} is expected")
        return {key: given.get(key, option.default) for key, option in self.settings.items()}

    def point(self, where: Any, times: npt.NDArray[np.float64] | None = None) -> float:
        """Return the start of the part that starts at ``where`` in ``times`` (:func:`boundary`); without, check it."""
        try:
            return boundary(times, where) if times is not None else bool(read_point(where))
        except ValueError as error:
            raise self.error(str(error)) from error

    def sizes(self, totals: Int64) -> Int64:
        """Return the (n, 3) sizes of training, validation and test of ``totals`` interactions, if they are counted."""
        raise NotImplementedError(f"{self.title} counts no interactions")

    def split_at_random(self, store: SequenceStore, seed: int) -> Split:
        """Return the split of ``store`` in a random order, drawn by ``seed``; for splits that count interactions.

        The history of a validation case is the user's training part, that of a test case training and validation.
        """
        store, parts = dealt(store, self.sizes, seed, by_user=self.by_user)
        if self.refit and not parts[:, 2].any():
            raise ProtocolError("refit: True needs a validation part, which this split does not have")
        return split_of_parts(store, parts, refit=self.refit)


def make_split(store: SequenceStore, config: Any) -> Split:
    """Split ``store`` as ``eval_args`` says, draw the candidates, and check the split for leaks.

    UnknownPartError for an unknown split; ProtocolError for an empty part, a leak, or wrong candidates.
    """
    arguments = config["eval_args"]
    if not isinstance(arguments["split"], dict) or len(arguments["split"]) != 1:
        raise ProtocolError(
            f"eval_args split must be one entry such as {{LS: valid_and_test}}; got {arguments['split']!r}"
        )
    protocol = checked_protocol(arguments, refit=bool(config["refit"]))
    title, timed = protocol.title, protocol.timed
    if arguments["order"] == "TO":
        split = protocol.split(store)
    elif arguments["order"] == "RO" and protocol.by_rows:
        split = protocol.split_at_random(store, config["candidate_seed"])
        title, timed = f"{title}, in random order", False
    else:
        raise ProtocolError(f"eval_args order={arguments['order']!r}: {title} is made by time, set order: TO")
    if not len(split.test) and not len(split.valid):
        raise ProtocolError(
            f"{protocol.title}: no validation and no test case is left from {store.n_rows} users with "
            f"{len(store.items)} interactions; loosen the filters or move the boundaries"
        )
    if not (split.train_lengths >= 2).any():
        raise ProtocolError(f"{protocol.title}: no user has 2 training interactions, so there is nothing to learn from")
    check(split, timed=timed)
    split.counts["protocol"] = title
    for part, cases in (("validation", split.valid), ("test", split.test)):
        if len(cases):
            split.counts[f"{part} targets that are not in the training part"] = cold_targets(cases, split)
    seed = config["candidate_seed"]
    drawn = {part: _with_candidates(part, mode, split, store, seed) for part, mode in arguments["mode"].items()}
    split = dataclasses.replace(split, **drawn)
    return sampled(split, int(config["eval_cases"]), seed) if config["eval_cases"] else split


def sampled(split: Split, n_cases: int, seed: int) -> Split:
    """Return ``split`` with at most ``n_cases`` validation and test cases, drawn by ``seed``; they keep their order."""
    parts = {}
    for number, part in enumerate(("valid", "test")):
        cases = getattr(split, part)
        if len(cases) > n_cases:
            draw = np.random.default_rng((seed, number))
            cases = cases[np.sort(draw.choice(len(cases), n_cases, replace=False))]
            split.counts[f"{part} cases drawn of {len(getattr(split, part))}"] = n_cases
        parts[part] = cases
    return dataclasses.replace(split, **parts)


def check(split: Split, *, timed: bool = True) -> None:
    """Raise ProtocolError if a history is empty or holds its target, a target is trained on, or order is violated.

    Order: of parts that are ``timed``, no target is older than its user's training part; no validation target comes
    after a test target of its user; parts that start at points in time have nothing from the other side.
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
    """Raise ProtocolError, with their number, where something is ``wrong``."""
    if wrong.any():
        raise ProtocolError(f"{name} {int(wrong.sum())} {what}".lstrip())


def _check_points(split: Split) -> None:
    aside = "interactions are on the wrong side of a point in time"
    test = split.points["test"]
    # rows are in time order, so the last training interaction decides
    trained = last_times(split.store, split.train_lengths) >= min(split.points.values())
    _refuse(trained, "", f"users' training {aside}")
    _refuse(split.test.times < test, "", f"test {aside}")
    if "valid" in split.points:
        times = split.valid.times
        _refuse((times < split.points["valid"]) | (times >= test), "", f"validation {aside}")
    if split.refit_lengths is not None:
        _refuse(last_times(split.store, split.refit_lengths) >= test, "", f"users' refit {aside}")


def cold_targets(cases: Cases, split: Split) -> int:
    """Return how many targets are items without a training interaction."""
    return int((~known_items(split.store, split.train_lengths)[cases.targets]).sum())


def repeated_targets(cases: Cases) -> int:
    """Return how many targets occur in their own history; with ``exclude_seen`` none of them can be hit."""
    store, order = cases.store, np.argsort(cases.rows, kind="stable")
    rows, targets, total = cases.rows[order], cases.targets, 0
    for part in store.stretches():
        of_part = order[np.searchsorted(rows, part.start) : np.searchsorted(rows, part.stop)]
        if not len(of_part):
            continue
        first, end = store.offsets[part.start], store.offsets[part.stop]
        size = int(end - first)
        owners = np.repeat(np.arange(part.stop - part.start), store.lengths[part])
        pairs, numbers = np.unique(owners * store.n_items + store.items[first:end], return_inverse=True)
        # (number of row and item, place in the stretch) as one number: the first from the history's start decides
        known = np.append(np.sort(numbers * size + np.arange(size)), np.iinfo(np.int64).max)
        of_cases = (cases.rows[of_part] - part.start) * store.n_items + targets[of_part]
        begin = np.searchsorted(pairs, of_cases) * size + store.offsets[cases.rows[of_part]] - first
        place = known[np.searchsorted(known, begin + cases.starts[of_part])]
        total += int((place < begin + cases.ends[of_part]).sum())
    return total


def known_items(store: SequenceStore, lengths: Int64) -> np.ndarray:
    """Return the (n_items,) mask of items that occur in the first ``lengths[row]`` interactions of a row."""
    return store.counts(lengths) > 0


def _with_candidates(part: str, mode: str, split: Split, store: SequenceStore, seed: int) -> Cases:
    """Return the cases of ``part`` with the candidates of ``mode``; none is an item of the user in ``store``."""
    cases = split.valid if part == "valid" else split.test
    if mode == "full" or not len(cases):
        return cases
    if Path(mode).is_file():
        return dataclasses.replace(cases, candidates=read_candidates(Path(mode), cases))
    weights = np.ones(store.n_items)
    if mode[:3] == "pop":
        weights = split.store.counts(split.train_lengths).astype(np.float64)
    catalogue = split.candidates(part)
    if cases.candidates is not None:  # the protocol ranks among these
        catalogue = np.zeros(store.n_items, dtype=bool)
        catalogue[cases.candidates] = catalogue[cases.targets] = True
    if catalogue is not None:
        weights[~catalogue] = 0.0
    drawn = draw_candidates(store, int(mode[3:]), seed, weights)
    return dataclasses.replace(cases, candidates=drawn[cases.rows])
