"""Points in time for a split: a quantile of all times, a date, or a duration counted from the end."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.data.times import UNITS, unit_of

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(minute|hour|day|week|month|year)s?\s*$")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


def read_point(where: Any) -> float | pd.Timestamp | pd.DateOffset | pd.Timedelta:
    """Return the quantile, the date or the duration that ``where`` names (:func:`boundary`); ValueError for others."""
    if isinstance(where, int | float) and not isinstance(where, bool):
        if not 0 < where < 1:
            raise ValueError(f"{where!r}: a quantile lies between 0 and 1")
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
            f"{where!r} is no quantile (0.95), no date ('2003-01-31') and no duration from the end ('4 months')"
        ) from error
    if amount != int(amount):
        raise ValueError(f"{where!r}: months and years are whole numbers")
    return pd.DateOffset(months=int(amount) * (12 if name == "year" else 1))


def boundary(times: npt.NDArray[np.float64], where: Any) -> float:
    """Return the first time that belongs to the part that starts at ``where``; ValueError for a point outside the data.

    ``where`` is a number between 0 and 1 (quantile of all interactions, the nearest one), a date such as "2003-01-31",
    or a duration from the end such as "4 months" or "6 weeks" (calendar months and years). With dates or durations
    ``times`` are Unix seconds, milliseconds, microseconds or nanoseconds, recognised by the size of the latest.
    """
    given = read_point(where)
    if isinstance(given, float):
        return float(np.quantile(times, given, method="nearest"))
    unit = UNITS[unit_of(times.max())]
    try:
        latest = pd.Timestamp(times.max() / unit, unit="s")
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where!r} needs Unix times, but they reach {times.max():g}: give a quantile") from error
    try:
        point = given if isinstance(given, pd.Timestamp) else latest - given
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where!r} before {latest} is outside every calendar") from error
    start = point.timestamp() * unit
    if not times.min() < start <= times.max():
        first = _shown(times.min() / unit) or f"{times.min():g}"
        raise ValueError(f"{where!r} is {point}, outside the data, which reach from {first} to {latest}")
    return float(start)


def latest_start(times: npt.NDArray[np.float64], start: float, end: float, limit: int) -> float:
    """Return the first time from ``start`` on from which at most ``limit`` interactions are left before ``end``."""
    inside = np.sort(times[(times >= start) & (times < end)])
    if len(inside) <= limit:
        return start
    # equal times stay together: the part starts after the last one that does not fit
    later = inside[inside > inside[-limit - 1]]
    return float(later[0]) if len(later) else end


def date(time: float) -> str:
    """Return a time as a date where it can be one, else as a number."""
    seconds = time / UNITS[unit_of(time)]
    return (_shown(seconds) if seconds > 1e8 else None) or f"{time:g}"


def _shown(seconds: float) -> str | None:
    """Unix seconds as a date; None where no calendar reaches."""
    try:
        return str(pd.Timestamp(seconds, unit="s"))
    except (ValueError, OverflowError):
        return None
