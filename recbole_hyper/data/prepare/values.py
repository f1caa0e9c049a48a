"""Columns as they come to checked values: ids to text, numbers to float64, times to Unix seconds."""

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.errors import PrepareError

Good = npt.NDArray[np.bool_]

# times that are numbers: how many of them make a second
UNITS = {"unix": 1.0, "unix_ms": 1e3, "unix_us": 1e6, "unix_ns": 1e9}
_LATEST = 1e11  # the year 5138 in seconds, March 1973 in the next smaller unit, of which larger numbers are
# dates, and moments, that are written as numbers
_COMPACT = {
    r"^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])" + more: "%Y%m%d" + time
    for more, time in (("$", ""), (r"([01][0-9]|2[0-3])([0-5][0-9]){2}$", "%H%M%S"))
}
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def as_mask(values: pa.Array) -> Good:
    """Return Arrow's truth values as a numpy array; null is False."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)


def as_text(values: pa.Array) -> pa.Array:
    """Return values as strings: numbers in decimals, whole ones without a point; bytes that are no UTF-8 become null.

    PrepareError for lists and the like.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return as_text(values.dictionary).take(values.indices)
    if isinstance(kind, pa.BaseExtensionType):  # UUIDs
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        whole = pc.cast(pc.floor(values), pa.int64(), safe=False)
        exact = pc.fill_null(pc.equal(whole.cast(pa.float64(), safe=False), values), False)
        return pc.if_else(exact, whole.cast(pa.string()), values.cast(pa.string()))
    try:
        return values.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise PrepareError(f"a column of {kind} is neither text nor numbers; ids are one of both") from error
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def to_strings(values: pa.Array) -> tuple[pa.Array, Good]:
    """Return text without blanks around it, and which entries hold any."""
    values = pc.utf8_trim_whitespace(as_text(values))
    return values, as_mask(pc.greater(pc.binary_length(values), 0))


def to_numbers(values: pa.Array) -> tuple[npt.NDArray[np.float64], Good]:
    """Return float64 numbers and which entries are finite numbers."""
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


def unit_of(time: float) -> str:
    """Return the unit of a Unix time by its size: a name in ``UNITS``."""
    return next((name for name, unit in UNITS.items() if time <= _LATEST * unit), "unix_ns")


def to_seconds(values: pa.Array, time_format: str) -> tuple[npt.NDArray[np.float64], Good]:
    """Return the Unix seconds of numbers, text or Arrow timestamps (without a zone UTC), and which entries are times.

    ``time_format``, which timestamps need not, is ``unix`` (seconds), ``unix_ms``, ``unix_us`` or ``unix_ns``, ``iso``
    (2019-01-31, 2019-01-31 10:20:30, 2019-01-31T10:20:30Z) or a pattern of strptime (``%m %d, %Y``); else PrepareError.
    """
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        return _from_timestamps(values)
    if time_format in UNITS:
        numbers, good = to_numbers(values)
        return (numbers if time_format == "unix" else numbers / UNITS[time_format]), good
    if time_format != "iso" and "%" not in time_format:
        known = ", ".join(UNITS)
        raise PrepareError(
            f"time_format={time_format!r} is unknown; allowed: {known}, iso, or a pattern such as '%m %d, %Y'"
        )
    text, _ = to_strings(values)
    if time_format == "iso":
        try:
            return _from_timestamps(pc.replace_substring_regex(text, "( UTC|Z)$", "").cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            pass  # one unreadable entry spoils Arrow's cast of the whole column; pandas marks it alone
        text = pc.replace_substring_regex(text, " UTC$", "Z")
    form = "ISO8601" if time_format == "iso" else time_format
    parsed = pd.to_datetime(pd.Series(text.to_pylist(), dtype=object), format=form, errors="coerce", utc=True)
    return _from_timestamps(pa.array(parsed.dt.tz_convert(None)))


def _from_timestamps(values: pa.Array) -> tuple[npt.NDArray[np.float64], Good]:
    good = as_mask(pc.is_valid(values))
    # microseconds fit float64 exactly until the year 2255
    micros = pc.fill_null(values.cast(pa.timestamp("us", tz=values.type.tz), safe=False).cast(pa.int64()), 0)
    return micros.to_numpy(zero_copy_only=False).astype(np.float64) / 1e6, good


def guessed_time_format(values: pa.Array) -> str | None:
    """Return the time format that reads at least half of ``values``: of numbers by their size; None where none does.

    20190131 and 20190131102030 are days and moments: as Unix time they would be of August 1970, and beyond 2500.
    """
    seconds, good = to_numbers(values) if not pa.types.is_temporal(values.type) else (np.zeros(0), np.zeros(0, bool))
    if len(good) and good.mean() >= 0.5:
        text = to_strings(values)[0]
        for written, form in _COMPACT.items():
            if as_mask(pc.match_substring_regex(text, written)).mean() >= 0.5:
                return form
        return unit_of(float(np.median(np.abs(seconds[good]))))
    _, good = to_seconds(values, "iso")
    return "iso" if len(good) and good.mean() >= 0.5 else None
