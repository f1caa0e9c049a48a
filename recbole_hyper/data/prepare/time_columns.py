"""Times from several columns: parts of a date, a date and a time of day, or a time and a step that orders its ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.formats import Layout, matching_names
from recbole_hyper.data.guess import OTHER
from recbole_hyper.data.ids import as_text
from recbole_hyper.data.parsers import Rows
from recbole_hyper.data.times import guessed_time_format, plausible, to_numbers, to_seconds
from recbole_hyper.errors import DataError

# names of columns that are parts of a date, as pandas assembles them
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_NEEDED = _PARTS[:3]
_CLOCK = r"^\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*$"


@dataclass
class TimeColumns:
    """The columns of a time: a ``first`` one and those that order its ties, or several that make one date."""

    columns: Sequence[str]
    dated: bool  # whether the columns are year, month, day, ...
    joined: bool = False  # whether a date and a time of day make one moment
    form: str | None = None  # the time format of joined text

    @property
    def ordering(self) -> bool:
        """Whether the first column is the time, and the others order equal times."""
        return not (self.dated or self.joined)

    @property
    def others(self) -> Sequence[str]:
        """The columns to read besides the column of times."""
        return self.columns[1:] if self.ordering else self.columns

    def layout(self, layout: Layout) -> Layout:
        """Return the layout in which the first column is the time, or none if several make it."""
        columns = {field: name for field, name in (layout.columns or {}).items() if field != "timestamp"}
        if self.ordering:
            columns["timestamp"] = self.columns[0]
        return replace(layout, columns=columns or None)

    def with_times(self, block: Rows, where: str) -> Rows:
        """Return the rows with the times that several columns make; DataError, with the line, for an invalid one."""
        if self.ordering:
            return block
        values, names = [block.columns[OTHER + name] for name in self.columns], " + ".join(self.columns)
        texts = [pc.fill_null(pc.utf8_trim_whitespace(as_text(value)), "") for value in values]
        if self.dated:
            parts = {_part(name): to_numbers(value)[0] for name, value in zip(self.columns, values, strict=True)}
            moments = pa.array(pd.to_datetime(pd.DataFrame(parts), errors="coerce"))
        else:  # a spreadsheet writes a date with an empty time of day
            day = pc.replace_substring_regex(texts[0], r"[ T]0?0:00(:00(\.0+)?)?$", "")
            moments = pc.binary_join_element_wise(day, texts[1], " ")
            if self.form is None and len(moments):
                self.form = guessed_time_format(moments.slice(0, 10_000), names) or "iso"
        seconds, good = to_seconds(moments, self.form or "iso")
        good &= plausible(seconds, pa.timestamp("s"))  # a year of two digits is of antiquity
        if not good.all():
            row = int(np.argmin(good))
            text = " ".join(text[row].as_py() for text in texts)
            raise DataError(f"{where}, line {block.lines[row]}: {text!r} in {names} is not a time from 1970 to today")
        return replace(block, columns=block.columns | {"timestamp": seconds})

    def order(self, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.intp]:
        """Return the rows (n,) sorted by the further ``columns``, the first of them before the others."""
        return np.lexsort([_key(name, columns[name]) for name in self.others][::-1])


def time_columns(layout: Layout, names: Sequence[str], sample: Callable[[str], pa.Array]) -> TimeColumns | None:
    """Return the columns of a time that ``layout`` writes as ``a+b``, or that are called year, month and day.

    ``names`` are the columns of the table, ``sample`` returns first values of one. None if one column is the time.
    """
    given = (layout.columns or {}).get("timestamp")
    if given is None:
        parts = {part: name for name in names if (part := _part(name))}
        if not set(_NEEDED) <= set(parts) or matching_names("timestamp", names):
            return None
        return TimeColumns([parts[part] for part in _PARTS if part in parts], dated=True)
    columns = [part.strip() for part in given.split("+")]
    if given in names or len(columns) < 2 or not all(columns):
        return None
    if set(_NEEDED) <= (parts_of := {_part(name) for name in columns}) and "" not in parts_of:
        return TimeColumns(columns, dated=True)
    if missing := [name for name in columns if name not in names]:
        raise DataError(f"--columns=timestamp={given}: {missing[0]!r} is not a column; they are {', '.join(names)}")
    clocks = sample(columns[1])
    share = pc.mean(pc.match_substring_regex(as_text(clocks), _CLOCK).cast(pa.float64())).as_py() or 0.0
    return TimeColumns(columns, dated=False, joined=len(columns) == 2 and share >= 0.5)


def _part(name: str) -> str:
    """Return the part of a date that a column is, or an empty text."""
    return name.lower() if name.lower() in _PARTS else ""


def _key(name: str, values: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers with the order of a column; DataError for values that are neither numbers nor times."""
    numbers, good = to_seconds(values, "steps")
    if not good.all() and not pa.types.is_temporal(values.type):
        numbers, good = to_seconds(values, guessed_time_format(values.slice(0, 10_000), name) or "iso")
    if not good.all():
        value = as_text(values)[int(np.argmin(good))].as_py()
        raise DataError(f"--columns=timestamp=...+{name}: {value!r} is neither a number nor a time")
    return numbers
