"""Points in time for a split: a quantile of all times, a date, or a duration before the end."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.tables.times import UNITS, unit_of

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(minute|hour|day|week|month|year)s?\s*$")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


def read_point(where: Any) -> float | pd.Timestamp | pd.DateOffset | pd.Timedelta:
    """Return ``where`` as a quantile, date or duration (see :func:`boundary`); ValueError for anything else."""
    if isinstance(where, int | float) and not isinstance(where, bool):
        if not 0 < where < 1:
            raise ValueError(f"{where!r}: a quantile must be between 0 and 1")
        return float(where)
    try:
        if not (match := _DURATION.match(str(where))):
            date = pd.Timestamp(str(where))
            if date is pd.NaT:
                raise ValueError(where)
            return date
        amount, name = float(match[1]), match[2]
        if name not in ("month", "year"):
            return pd.Timedelta(amount * _SECONDS[name], unit="s")
    except ValueError as error:
        raise ValueError(
            f"{where!r} is not a quantile (0.95), a date ('2003-01-31') or a duration before the end ('4 months')"
        ) from error
    if amount != int(amount):
        raise ValueError(f"{where!r}: months and years must be whole numbers")
    return pd.DateOffset(months=int(amount) * (12 if name == "year" else 1))


def boundary(times: npt.NDArray[np.float64], where: Any) -> float:
    """Return the time at which the part from ``where`` starts; ValueError for a point outside the data.

    ``where`` is a quantile of all interactions between 0 and 1 (the nearest interaction counts), a date such as
    "2003-01-31", or a duration before the end such as "6 weeks" or "4 months" (calendar months and years). For dates
    and durations ``times`` are Unix seconds, milliseconds, microseconds or nanoseconds, by the size of the latest.
    """
    point = read_point(where)
    if isinstance(point, float):
        return float(np.quantile(times, point, method="nearest"))
    unit = UNITS[unit_of(times.max())]
    try:
        latest = pd.Timestamp(times.max() / unit, unit="s")
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where!r} needs Unix times, but they reach {times.max():g}: use a quantile") from error
    try:
        start_date = point if isinstance(point, pd.Timestamp) else latest - point
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where!r} before {latest} is outside every calendar") from error
    start = start_date.timestamp() * unit
    if not times.min() < start <= times.max():
        first = _shown(times.min() / unit) or f"{times.min():g}"
        raise ValueError(f"{where!r} is {start_date}, outside the data, which run from {first} to {latest}")
    return float(start)


def length_of(times: npt.NDArray[np.float64], duration: str) -> float:
    """Return a duration such as "30 minutes" in the unit of ``times``; ValueError for anything else."""
    span = read_point(duration)
    if not isinstance(span, pd.Timedelta):
        raise ValueError(f"{duration!r} is not a duration of minutes, hours, days or weeks")
    return span.total_seconds() * UNITS[unit_of(float(times.max(initial=0.0)))]


def latest_start(times: npt.NDArray[np.float64], start: float, end: float, limit: int) -> float:
    """Return the first time from ``start`` on that leaves at most ``limit`` interactions before ``end``."""
    inside = np.sort(times[(times >= start) & (times < end)])
    if len(inside) <= limit:
        return start
    # equal times stay together: the part starts after the last interaction that does not fit
    later = inside[inside > inside[-limit - 1]]
    return float(later[0]) if len(later) else end


def date(time: float) -> str:
    """Return a time as a date if it can be one, else as a number."""
    seconds = time / UNITS[unit_of(time)]
    return (_shown(seconds) if seconds > 1e8 else None) or f"{time:g}"


def _shown(seconds: float) -> str | None:
    """Return Unix seconds as a date, or None outside the calendar."""
    try:
        return str(pd.Timestamp(seconds, unit="s"))
    except (ValueError, OverflowError):
        return None
