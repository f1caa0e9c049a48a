"""Times in several columns: parts of a date, a date and a time of day, or a time and steps that order its ties."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.formats import matching_names
from recbole_hyper.data.ids import as_text
from recbole_hyper.errors import DataError

_PARTS = ("year", "month", "day", "hour", "minute", "second")
_CLOCK = r"^\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*$"


def time_columns(given: str | None, names: Sequence[str]) -> list[str]:
    """Return the columns of a time that is ``given`` as ``a+b``, else those called year, month and day, [] for one.

    ``names`` are the columns of the table; DataError if one is missing.
    """
    if given is None:
        parts = {name.lower(): name for name in names if name.lower() in _PARTS}
        dated = _is_date(parts) and not matching_names("timestamp", names)
        return [parts[part] for part in _PARTS if part in parts] if dated else []
    columns = [part.strip() for part in given.split("+")]
    if given in names or len(columns) < 2 or not all(columns):
        return []
    if missing := [name for name in columns if name not in names]:
        raise DataError(f"--columns=timestamp={given}: {missing[0]!r} is not a column; they are {', '.join(names)}")
    return columns


def make_one(columns: Sequence[str], sample: pa.Array) -> bool:
    """Return whether the columns make one time, and do not order its ties; ``sample`` is of the second one."""
    share = pc.mean(pc.match_substring_regex(as_text(sample), _CLOCK).cast(pa.float64())).as_py() or 0.0
    return _is_date([name.lower() for name in columns]) or (len(columns) == 2 and share >= 0.5)


def joined(columns: Sequence[str], values: Sequence[pa.Array]) -> pa.Array:
    """Return the text of the times that columns make: ISO from the parts of a date, else their texts in one."""
    texts = [pc.fill_null(pc.utf8_trim_whitespace(as_text(value)), "") for value in values]
    parts = {name.lower(): text for name, text in zip(columns, texts, strict=True)}
    if not _is_date(parts):  # a spreadsheet writes a date with an empty time of day
        day = pc.replace_substring_regex(texts[0], r"[ T]0?0:00(:00(\.0+)?)?$", "")
        return pc.binary_join_element_wise(day, *texts[1:], " ")
    for name, text in parts.items():
        whole = pc.replace_substring_regex(text, r"\.0*$", "")
        parts[name] = pc.replace_substring_regex(whole, r"^([0-9])(\.[0-9]+)?$", r"0\1\2")
    found = [parts.get(part, pa.scalar("00")) for part in _PARTS]
    day, clock = (pc.binary_join_element_wise(*some, sign) for some, sign in ((found[:3], "-"), (found[3:], ":")))
    return pc.binary_join_element_wise(day, clock, " ")


def _is_date(names: Iterable[str]) -> bool:
    return {*_PARTS[:3]} <= {*names} <= {*_PARTS}
