"""Columns of text to checked values, a column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.errors import PrepareError

Good = npt.NDArray[np.bool_]

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def _mask(values: pa.Array) -> Good:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)


def to_strings(values: pa.Array) -> tuple[pa.Array, Good]:
    """Return text without blanks around it, and which entries hold any; bytes that are no UTF-8 count as empty."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        values = values.cast(pa.string())
    if pa.types.is_binary(values.type):
        try:
            values = values.cast(pa.string())
        except pa.ArrowInvalid:
            values = pa.array([_decoded(value) for value in values.to_pylist()], pa.string())
    values = pc.utf8_trim_whitespace(values)
    return values, _mask(pc.greater(pc.binary_length(values), 0))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def to_numbers(values: pa.Array) -> tuple[npt.NDArray[np.float64], Good]:
    """Return float64 numbers and which entries are finite numbers."""
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        try:
            numbers = values.cast(pa.string()).cast(pa.float64())
        except pa.ArrowInvalid:
            text, _ = to_strings(values)
            readable = pc.match_substring_regex(text, _NUMBER)
            numbers = pc.if_else(readable, text, pa.scalar(None, pa.string())).cast(pa.float64())
    else:
        numbers = values.cast(pa.float64(), safe=False)
    result = numbers.to_numpy(zero_copy_only=False)
    return result, np.isfinite(result)


def to_seconds(values: pa.Array, time_format: str) -> tuple[npt.NDArray[np.float64], Good]:
    """Return Unix seconds and which entries are times.

    Args:
        values: numbers, text, or Arrow timestamps (of any unit; without a zone they are taken as UTC).
        time_format: ``unix`` (seconds), ``unix_ms`` (milliseconds), ``iso`` (2019-01-31, 2019-01-31 10:20:30,
            2019-01-31T10:20:30Z) or a pattern of strptime such as ``%m %d, %Y``. Ignored for timestamps.

    Raises:
        PrepareError: ``time_format`` is none of these.
    """
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        return _from_timestamps(values)
    if time_format in ("unix", "unix_ms"):
        seconds, good = to_numbers(values)
        return (seconds / 1000 if time_format == "unix_ms" else seconds), good
    text, _ = to_strings(values)
    if time_format == "iso":
        try:
            return _from_timestamps(pc.replace_substring_regex(text, "Z$", "").cast(pa.timestamp("us")))
        except pa.ArrowInvalid:
            # one unreadable entry spoils Arrow's cast of the whole column; pandas marks it alone
            parsed = pd.to_datetime(pd.Series(text.to_pylist()), format="ISO8601", errors="coerce", utc=True)
    elif "%" in time_format:
        parsed = pd.to_datetime(pd.Series(text.to_pylist()), format=time_format, errors="coerce", utc=True)
    else:
        raise PrepareError(
            f"time_format={time_format!r} is unknown; allowed: unix, unix_ms, iso, or a pattern such as '%m %d, %Y'"
        )
    return _from_timestamps(pa.array(parsed.dt.tz_convert(None)))


def _from_timestamps(values: pa.Array) -> tuple[npt.NDArray[np.float64], Good]:
    good = _mask(pc.is_valid(values))
    # microseconds fit float64 exactly until the year 2255
    micros = pc.fill_null(values.cast(pa.timestamp("us", tz=values.type.tz), safe=False).cast(pa.int64()), 0)
    return micros.to_numpy(zero_copy_only=False).astype(np.float64) / 1e6, good
