"""The raw formats as data: properties/formats.yaml, and what a user may say of a file of one's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.yaml_files import properties_folder, read_yaml


@dataclass(frozen=True)
class Layout:
    """What is said of a file; None leaves the format's own, or what the file itself tells."""

    # field (user_id, item_id, timestamp, rating) to column name, or number from 1 without a header
    columns: Mapping[str, str] | None = None
    separator: str | None = None  # between values: one character, or the ``::`` of MovieLens
    header: bool | None = None  # whether the first line names the columns
    time_format: str | None = None  # see ``values.to_seconds``


@dataclass(frozen=True)
class Format(Layout):
    """A way of writing interactions down."""

    about: str = ""  # one line for people
    kind: str = ""  # the parser of the file, see ``interactions.PARSERS``
    # patterns of the usual file names, without .gz; empty where the format says nothing about names
    files: Sequence[str] = ()
    names: Sequence[str] = ()  # the columns in order, where the format fixes them
    own: Sequence[str] = ()  # which fields of Layout the user may set
    check: str | None = None  # what refuses interactions that cannot be right, see ``interactions.CHECKS``

    @property
    def positions(self) -> bool:
        """Whether the times are positions in the user's sequence, since the format has none."""
        return self.kind == "sequences"

    def set(self, layout: Layout | None, name: str) -> Format:
        """Return the format ``name`` with what the user says; raises PrepareError where it fixes that itself."""
        given = {key: value for key, value in asdict(layout or Layout()).items() if value is not None}
        if refused := sorted(set(given) - set(self.own)):
            options = ", --".join(refused)
            raise PrepareError(
                f"format {name!r} has its own layout and takes no --{options}; for others use --format=csv"
            )
        return replace(self, **given)


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
    """Return the format called ``name``; raises PrepareError where there is none."""
    if name not in formats():
        raise PrepareError(f"format {name!r} is unknown; known: {', '.join(sorted(formats()))}")
    return formats()[name]
