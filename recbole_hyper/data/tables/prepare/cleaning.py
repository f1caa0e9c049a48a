"""The cleaning of interactions between reading and writing."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from recbole_hyper.data.tables.filters import COUNTS, DUPLICATES, FILTERS, filtered, repeated
from recbole_hyper.data.tables.interactions import Interactions
from recbole_hyper.errors import DataError

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)"


@dataclass(frozen=True)
class Cleaning:
    """The steps of cleaning, in this order (except for duplicates_after_filter)."""

    since: str | None = None  # earliest time, a date or Unix seconds; None keeps all
    until: str | None = None  # latest time; a day or month without a time of day is included completely
    threshold: float | None = None  # smallest rating; None keeps all
    session_gap: str | None = None  # cut users into sessions at longer pauses than this, such as 30min
    # ``keep`` all rows of a repeated (user, item) pair, or only the ``first`` or ``last``; ``exact`` drops rows that
    # also equal another in time and rating
    duplicates: str = "keep"
    filter: str = "none"  # ``none``, ``k_core`` (to a fixed point) or ``single_pass`` (items once, then users once)
    min_user: int = 0  # fewest interactions of a user
    min_item: int = 0  # fewest interactions of an item
    count: str = "interactions"  # what min_user and min_item count: ``interactions`` or ``distinct`` partners
    duplicates_after_filter: bool = False  # drop repeats after the filter, which then counts them

    def check(self) -> None:
        """Raise DataError for an invalid value, before anything is read."""
        for key, values in {"duplicates": DUPLICATES, "filter": ("none", *FILTERS), "count": COUNTS}.items():
            if getattr(self, key) not in values:
                raise DataError(f"{key}={getattr(self, key)!r} is unknown; allowed: {', '.join(values)}")
        if self.min_user < 0 or self.min_item < 0:
            raise DataError(f"min_user={self.min_user}, min_item={self.min_item} must be 0 or more")
        if self.filter == "none" and (self.min_user or self.min_item):
            raise DataError("min_user and min_item need --filter=k_core or --filter=single_pass")
        if self.session_gap is not None:
            gap_seconds(self.session_gap)
        for bound in {self.since, self.until} - {None}:
            seconds(str(bound))


def check_times(cleaning: Cleaning, clock: str) -> None:
    """Raise DataError for options of time that do not suit the times: ``dates``, ``steps`` or ``positions``."""
    for key in ("since", "until", "session_gap"):
        value = getattr(cleaning, key)
        if value is None or clock == "dates":
            continue
        if clock == "positions":
            raise DataError(f"--{key}={value} needs times, but the rows are in the order of the file; drop the option")
        if not re.fullmatch(_NUMBER, str(value).strip()):
            raise DataError(f"--{key}={value}: the times are steps, not dates; give a number of steps")


def apply(data: Interactions, cleaning: Cleaning, clock: str = "dates") -> tuple[Interactions, list[tuple[str, int]]]:
    """Sort and clean the interactions in place; also return the number of rows after each step.

    The times of ``data`` are ``dates``, ``steps`` or ``positions``, see :func:`check_times`.
    """
    steps = [("read", len(data))]

    def keep(rows: np.ndarray, label: str, advice: str = "") -> None:
        before = len(data)
        data.take(rows)
        steps.append((label, len(data)))
        if len(data) == 0:
            raise DataError(f"{label} removes all {before:,} interactions; {advice}")

    if cleaning.since is not None:
        first = float(cleaning.since) if clock == "steps" else seconds(cleaning.since)
        keep(data.times >= first, f"since {cleaning.since}", "choose an earlier --since")
    if cleaning.until is not None:
        last = float(cleaning.until) if clock == "steps" else seconds(cleaning.until, last=True)
        keep(data.times <= last, f"until {cleaning.until}", "choose a later --until")
    if cleaning.threshold is not None:
        if data.ratings is None:
            raise DataError(f"threshold={cleaning.threshold} needs ratings, but none were read; drop --threshold")
        keep(data.ratings >= cleaning.threshold, f"rating >= {cleaning.threshold:g}", "lower --threshold")
    data.sort()
    if cleaning.session_gap is not None:
        data.cut(gap_seconds(cleaning.session_gap))
        steps.append((f"in {len(data.user_tokens):,} sessions, cut at pauses over {cleaning.session_gap}", len(data)))
    for drops_repeats in (True, False) if not cleaning.duplicates_after_filter else (False, True):
        if drops_repeats and cleaning.duplicates == "exact":
            keep(~data.copies(), "without exact copies")
        elif drops_repeats and cleaning.duplicates != "keep":
            keep(~repeated(data.users, data.items, cleaning.duplicates), f"{cleaning.duplicates} of repeated pairs")
        elif not drops_repeats and cleaning.filter != "none":
            limits = {"min_user": cleaning.min_user, "min_item": cleaning.min_item}
            rows = filtered(data.users, data.items, method=cleaning.filter, count=cleaning.count, **limits)
            text = f"users >= {cleaning.min_user}, items >= {cleaning.min_item} {cleaning.count}"
            keep(rows, f"{cleaning.filter}, {text}")
    return data, steps


def gap_seconds(text: str) -> float:
    """Return the seconds of a duration such as 30min, 2h or 1800; DataError if it is invalid or not above 0."""
    try:
        plain = str(text).strip()
        if "," in plain:  # pandas passes over it
            raise ValueError(text)
        gap = float(plain) if re.fullmatch(_NUMBER, plain) else pd.Timedelta(plain).total_seconds()
    except ValueError as error:
        raise DataError(f"session_gap={text!r} is not a duration; write 30min, 1.5h, 1d or seconds") from error
    if not gap > 0:
        raise DataError(f"session_gap={text!r} must be above 0")
    return gap


def seconds(text: str, *, last: bool = False) -> float:
    """Return the Unix seconds of a date, a moment (UTC) or a number; ``last`` takes the end of a day or month."""
    text = str(text).strip()
    if re.fullmatch(_NUMBER, text) and not re.fullmatch(r"(19|20)\d\d((0[1-9]|1[0-2])([0-3]\d)?)?", text):
        return float(text)
    try:
        if not re.match(r"\d{4}[-/]", text):
            raise ValueError(text)
        if re.search(r":.*[+-]\d\d:?\d\d$", text):  # a zone, which a period passes over
            return pd.Timestamp(text).timestamp()
        period = pd.Period(text.removesuffix("Z"))
    except ValueError as error:
        raise DataError(
            f"time {text!r} must be a date (2019-01-31 or 2019-01-31 10:20:30) or a number of Unix seconds"
        ) from error
    edge = period.end_time if last and ":" not in text else period.start_time
    return edge.value // 1000 / 1e6  # float64 has microseconds, but not nanoseconds
