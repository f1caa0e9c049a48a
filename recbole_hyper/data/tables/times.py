"""From numbers, dates or text to Unix seconds; guesses the time format and checks that it is plausible."""

from __future__ import annotations

import datetime
import re
import time
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.tseries.api import guess_datetime_format

from recbole_hyper.data.tables.ids import Good, as_mask, to_strings
from recbole_hyper.errors import DataError

Seconds = npt.NDArray[np.float64]

# units of Unix times, and how many of them are a second
UNITS = {"unix": 1.0, "unix_ms": 1e3, "unix_us": 1e6, "unix_ns": 1e9}
_LATEST = 1e11  # larger numbers are of the next smaller unit: the year 5138 in seconds, but 1973 in milliseconds
# plausible interactions are between 1990 and a day from now
_EARLIEST = 631_152_000.0
_DAY = 86_400.0
# smaller numbers are steps or positions, not dates
_STEPS = 100_000
_NUMERIC = (*UNITS, "steps")  # time formats of numbers
# pandas cannot guess these
_PATTERNS = ("%a %b %d %H:%M:%S %z %Y", "%m/%d/%Y %I:%M %p", "%d/%m/%Y %I:%M %p")
_MONTH, _DAYS, _HOURS, _SIXTY = r"(0[1-9]|1[0-2])", r"(0[1-9]|[12][0-9]|3[01])", r"([01][0-9]|2[0-3])", r"[0-5][0-9]"
# dates and moments written as numbers
_COMPACT = {
    rf"^(19|20)[0-9]{{2}}{_MONTH}{_DAYS}{more}$": "%Y%m%d" + form
    for more, form in (("", ""), (rf"{_HOURS}{_SIXTY}", "%H%M"), (rf"{_HOURS}{_SIXTY}{_SIXTY}", "%H%M%S"))
}
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def to_numbers(values: pa.Array) -> tuple[Seconds, Good]:
    """Return float64 numbers, and which of them are finite."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        text = values.cast(pa.string()) if pa.types.is_binary(values.type) else values
        numbers = text.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        text, _ = to_strings(values)
        readable = pc.match_substring_regex(text, _NUMBER)
        numbers = pc.if_else(readable, text, pa.scalar(None, pa.string())).cast(pa.float64())
    result = numbers.to_numpy(zero_copy_only=False)
    return result, np.isfinite(result)


def unit_of(moment: float) -> str:
    """Return the unit of a Unix time by its size, a key of ``UNITS``."""
    return next((name for name, unit in UNITS.items() if moment <= _LATEST * unit), "unix_ns")


def unit_of_times(times: npt.NDArray[Any]) -> str | None:
    """Return the unit in which most of ``times`` are dates from 1990 to tomorrow; None for steps and other numbers."""
    sample = np.asarray(times[:: max(1, len(times) // 10_000)], dtype=np.float64)
    if not len(sample):
        return None
    middle = float(np.median(sample))
    unit = unit_of(abs(middle))
    return unit if _likely(middle / UNITS[unit]) else None


def to_seconds(values: pa.Array, time_format: str) -> tuple[Seconds, Good]:
    """Return the Unix seconds of numbers, text or Arrow timestamps (UTC without a zone), and which of them are valid.

    ``time_format`` is a key of ``UNITS``, ``steps`` (numbers that are no dates stay as they are), ``iso`` (2019-01-31,
    2019-01-31T10:20:30Z) or a pattern of strptime; else DataError.
    """
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        return _from_timestamps(values)
    if pa.types.is_boolean(values.type) or pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        raise DataError(f"times of type {values.type} are not moments; use dates, or Unix seconds or milliseconds")
    if time_format in _NUMERIC:
        numbers, good = to_numbers(values)
        return numbers / UNITS.get(time_format, 1.0), good
    if time_format != "iso" and "%" not in time_format:
        known = ", ".join((*_NUMERIC, "iso"))
        raise DataError(f"time_format={time_format!r} is unknown; allowed: {known}, or a pattern like '%m %d, %Y'")
    text, _ = to_strings(values)
    if time_format == "iso":
        try:
            return _from_timestamps(pc.replace_substring_regex(text, "( UTC|Z)$", "").cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            pass  # one invalid entry makes Arrow's cast fail; pandas marks only that entry
        text = pc.replace_substring_regex(text, " UTC$", "Z")
        text = pc.if_else(pc.match_substring_regex(text, "[0-9]"), text, None)  # "now" is a time for pandas
    elif not any(mark in time_format for mark in ".-:/ "):
        text = _without_point(text)
    form = "ISO8601" if time_format == "iso" else time_format
    try:
        parsed = pd.to_datetime(pd.Series(text.to_pylist(), dtype=object), format=form, errors="coerce", utc=True)
    except (ValueError, re.error) as error:  # a directive that strptime does not have, or one twice
        raise DataError(f"time_format={time_format!r}: {error}") from error
    return _from_timestamps(pa.array(parsed.dt.tz_convert(None)))


def _from_timestamps(values: pa.Array) -> tuple[Seconds, Good]:
    good = as_mask(pc.is_valid(values))
    if values.type.unit == "ns":  # float64 is exact to the microsecond until the year 2255
        values = values.cast(pa.timestamp("us", tz=values.type.tz), safe=False)
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers / {"s": 1.0, "ms": 1e3, "us": 1e6}[values.type.unit], good


def _without_point(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"^([0-9]+)\.0*$", r"\1")


def guessed_time_format(values: pa.Array, column: str = "times") -> str | None:
    """Return the time format that fits at least half of ``values``, None if there is none.

    Numbers are judged by their size: 20190131 and 20190131102030 are days and moments, numbers below 100,000 are steps.
    Text is ISO, or has a pattern that pandas guesses. DataError for other values that would be before 1990 or after
    tomorrow, for days and months in unknown order, and for booleans.
    """
    other = pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type)
    numbers, good = (np.zeros(0), np.zeros(0, bool)) if other else to_numbers(values)
    if len(good) and good.mean() >= 0.5:
        form: str | None = _format_of_numbers(values, numbers[good])
    else:
        _, good = to_seconds(values, "iso")
        form = "iso" if len(good) and good.mean() >= 0.5 else _pattern_of(values, column)
    if form in (None, "steps"):
        return form
    seconds, good = to_seconds(values, str(form))
    at = int(np.argsort(np.where(good, seconds, np.inf))[int(good.sum()) // 2])  # the median
    if not plausible(seconds[at], values.type):
        advice = "set the right one, such as %Y%m"
        if form in UNITS:
            advice += ", or --time_format=steps for numbers that are not dates; in a frame, convert them to datetimes"
        example, reading = to_strings(values)[0][at].as_py(), f"{day(seconds[at])} by --time_format={form}"
        raise DataError(f"the times in {column!r}, such as {example}, are unlikely dates: {reading}; {advice}")
    return form


def _format_of_numbers(values: pa.Array, numbers: Seconds) -> str:
    text = _without_point(to_strings(values)[0])
    for pattern, form in _COMPACT.items():
        if as_mask(pc.match_substring_regex(text, pattern)).mean() >= 0.5:
            return form
    middle = float(np.median(np.abs(numbers)))
    return "steps" if middle < _STEPS and not _likely(numbers).any() else unit_of(middle)


def _pattern_of(values: pa.Array, column: str) -> str | None:
    """Return the pattern of strptime that fits most of the text; DataError if the day could also be the month."""
    texts = to_strings(values)[0]
    filled = texts.filter(pc.greater(pc.binary_length(texts), 0)).to_pylist()
    if not filled:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns that a day is not a month
        examples = dict.fromkeys((filled[0], filled[len(filled) // 2], filled[-1]))
        guesses = [guess_datetime_format(text, dayfirst=first) for text in examples for first in (False, True)]
    fits = {}
    # pandas takes 18:20 20/02/2001 for the hour 18 of the day 20
    likely = [pattern for pattern in guesses if pattern and not re.search(r"%[HI]\W*%[^Mp]", pattern)]
    for pattern in dict.fromkeys((*likely, *_PATTERNS)):
        seconds, good = to_seconds(texts, pattern)
        fits[pattern] = (int(good.sum()), seconds, good)
    best = max(count for count, _, _ in fits.values())
    if 2 * best < len(texts):
        return None
    readings = {pattern: seconds for pattern, (count, seconds, _) in fits.items() if count == best}
    pattern, first = next(iter(readings.items()))
    good = fits[pattern][2]
    differ = {p: good & fits[p][2] & (seconds != first) for p, seconds in readings.items()}
    if others := [p for p, rows in differ.items() if rows.any()]:
        row = int(np.argmax(differ[others[0]]))
        days = ", or ".join(f"{day(readings[p][row])} by --time_format={p!r}" for p in (pattern, *others))
        raise DataError(f"the times in {column!r}, such as {texts[row].as_py()}, are {days}; set the right option")
    return pattern


def _likely(seconds: Any, earliest: float = _EARLIEST) -> Any:
    return (seconds >= earliest) & (seconds <= time.time() + _DAY)


def plausible(seconds: Any, kind: pa.DataType, form: str | None = None) -> Any:
    """Return which times are between 1990 and tomorrow, or of a column that already has dates, 1970 and tomorrow.

    Of steps, those that are no dates in any unit.
    """
    if form == "steps":
        return ~np.logical_or.reduce([_likely(seconds / unit) for unit in UNITS.values()])
    return _likely(seconds, 0.0 if pa.types.is_temporal(kind) else _EARLIEST)


def day(seconds: float) -> str:
    """Return the moment as text, such as 2019-01-31; the number itself if it is beyond the calendar."""
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"second {seconds:g}"
    return moment.strftime("%Y-%m-%d" if seconds % _DAY == 0 else "%Y-%m-%d %H:%M:%S")
