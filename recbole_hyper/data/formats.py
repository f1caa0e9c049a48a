"""The raw formats as data: properties/formats.yaml, and the options that describe a user's own file."""

from __future__ import annotations

import codecs
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recbole_hyper.errors import DataError
from recbole_hyper.yaml_files import properties_folder, read_yaml


@dataclass(frozen=True)
class Layout:
    """The user's options for a file; None takes the format's own value, or a guess from the file."""

    # field (user_id, item_id, timestamp, rating) to column name, or number from 1 without a header
    columns: Mapping[str, str] | None = None
    separator: str | None = None  # between values, such as a tab, or the ``::`` of MovieLens
    header: bool | None = None  # whether the first line names the columns
    time_format: str | None = None  # see ``times.to_seconds``
    quoting: str | None = None  # ``csv``: values may be in double quotes; ``none``: a quote is text
    encoding: str | None = None  # of text, as Python names it
    missing_ids: str | None = None  # of ids that are words for none, such as NA: ``drop`` or ``keep``

    def check(self) -> None:
        """Raise DataError for a value that is not allowed."""
        for key, allowed in (("quoting", ("none", "csv")), ("missing_ids", ("drop", "keep"))):
            if getattr(self, key) not in (None, *allowed):
                raise DataError(f"{key}={getattr(self, key)!r} is unknown; allowed: {', '.join(allowed)}")
        if self.encoding is not None:
            codec(self.encoding)
        fields: dict[str, str] = {}
        for field, column in (self.columns or {}).items():
            if (other := fields.setdefault(column, field)) != field:
                raise DataError(
                    f"--columns: the column {column!r} is named for {other} and for {field}; one can be right"
                )


@dataclass(frozen=True)
class Format(Layout):
    """A way of writing interactions down."""

    about: str = ""  # one line for people
    kind: str = ""  # the parser of the file, see ``tables.PARSERS``
    # patterns of the usual file names, without .gz; empty where the format says nothing about names
    files: Sequence[str] = ()
    names: Sequence[str] = ()  # the columns in order, where the format fixes them or the file names them
    types: Sequence[str] = ()  # those of the columns of an atomic file
    own: Sequence[str] = ()  # which fields of Layout the user may set
    refusing: str | None = None  # what refuses interactions that cannot be right, see ``pipeline.CHECKS``
    guessed: Sequence[str] = ()  # which fields of Layout were guessed from the file

    @property
    def quoted(self) -> bool:
        """Whether values may be in double quotes, and then contain separators and line ends."""
        return self.kind == "csv" and self.quoting != "none" and len(self.separator or "") == 1

    @property
    def exact(self) -> bool:
        """Whether an id is any text, and blanks around it are part of it."""
        return self.kind in ("frame", "atomic")

    @property
    def positions(self) -> bool:
        """Whether the times are positions in the user's sequence, since the format has none."""
        return self.kind == "sequences"

    def set(self, layout: Layout | None, name: str) -> Format:
        """Return the format ``name`` with the user's options; DataError for an option that it does not take."""
        layout = layout or Layout()
        layout.check()
        given = {key: value for key, value in asdict(layout).items() if value is not None}
        anywhere = {"encoding"} if self.kind != "parquet" else set()
        if refused := sorted(set(given) - set(self.own) - anywhere):
            options = ", --".join(refused)
            raise DataError(f"format {name!r} has its own layout and takes no --{options}; for others use --format=csv")
        return replace(self, **given)


def codec(encoding: str) -> str:
    """Return Python's name of an encoding of text; DataError where there is none."""
    try:
        "".encode(encoding)
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise DataError(f"encoding={encoding!r} is no text encoding that Python knows; try utf-8 or latin-1") from error


@functools.cache
def formats() -> Mapping[str, Format]:
    """Read properties/formats.yaml."""
    return {name: _format(value) for name, value in read_yaml(properties_folder() / "formats.yaml").items()}


def _format(value: Mapping[str, Any]) -> Format:
    entry = Format(**{**value, "names": value.get("names", "").split()})
    if entry.names:
        named = {field: field for field in ("user_id", "item_id", "timestamp", "rating") if field in entry.names}
        entry = replace(entry, columns=named)
    fixed = {"separator": "\t", "time_format": "unix"}
    left = {key: value for key, value in fixed.items() if key not in entry.own and getattr(entry, key) is None}
    return replace(entry, **left)  # type: ignore[arg-type]


def find(name: str) -> Format:
    """Return the format called ``name``; raises DataError where there is none."""
    if name not in formats():
        raise DataError(f"format {name!r} is unknown; known: {', '.join(sorted(formats()))}")
    return formats()[name]
