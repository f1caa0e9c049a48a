"""The raw formats as data (properties/formats.yaml), the options for a user's own file, and which column is what."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recbole_hyper.errors import DataError
from recbole_hyper.yaml_files import properties_folder, read_yaml

FIELDS = ("user_id", "item_id", "timestamp", "rating")
# names of columns, without case and signs, beside the field's own; the first line that any column fits counts
_KNOWN = {
    "user_id": (
        "user uid customerid customer reviewerid reviewer username visitorid memberid accountid playerid buyerid "
        "clientid shopperid personid",
        "sessionid session",
    ),
    "item_id": (
        "parentasin",
        "item iid asin productid movieid sku articleid songid trackid bookid gameid businessid videoid newsid goodsid "
        "isbn appid placeid venueid contentid aid",
    ),
    "timestamp": (
        "time date datetime unixreviewtime unixtime unixtimestamp ts createdat eventtime eventtimestamp orderedat "
        "orderdate purchasedate purchasedat transactiondate tdat clickedat watchedat viewedat",
    ),
    "rating": ("ratings stars overall score",),
}


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
                raise DataError(f"--columns: the column {column!r} is named for {other} and for {field}")


@dataclass(frozen=True)
class Format(Layout):
    """A way of writing interactions down."""

    about: str = ""  # one line for people
    kind: str = ""  # the parser of the file, see ``parsers.PARSERS``
    # patterns of the usual file names, without .gz; empty where the format says nothing about names
    files: Sequence[str] = ()
    names: Sequence[str] = ()  # the columns in order, where the format fixes them or the file names them
    types: Sequence[str] = ()  # those of the columns of an atomic file
    own: Sequence[str] = ()  # which fields of Layout the user may set
    refusing: str | None = None  # what refuses interactions that cannot be right, see ``pipeline.CHECKS``
    guessed: bool = False  # whether the time format is a guess

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
        allowed = {*self.own, "encoding"} if self.kind != "parquet" else set(self.own)
        if refused := sorted(set(given) - allowed):
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
        entry = replace(entry, columns={field: field for field in FIELDS if field in entry.names})
    fixed = {"separator": "\t", "time_format": "unix"}
    left = {key: value for key, value in fixed.items() if key not in entry.own and getattr(entry, key) is None}
    return replace(entry, **left)  # type: ignore[arg-type]


def find(name: str) -> Format:
    """Return the format called ``name``; raises DataError where there is none."""
    if name not in formats():
        raise DataError(f"format {name!r} is unknown; known: {', '.join(sorted(formats()))}")
    return formats()[name]


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def matching_names(field: str, names: Sequence[str], own: Collection[str] = ()) -> list[str]:
    """Return the columns that may be a field: of one of its ``own`` names, of the field's name, of a known name."""
    exact = [[name for name in names if name in own], [name for name in names if name == field]]
    words = [[_bare(field)], *(line.split() for line in _KNOWN[field])]
    return next(filter(None, [*exact, *([name for name in names if _bare(name) in known] for known in words)]), [])


def columns_of(
    names: Sequence[str],
    given: Mapping[str, str],
    where: str,
    fields: Collection[str],
    optional: Collection[str],
    own: Mapping[str, Collection[str]],
) -> dict[str, str]:
    """Return the column of each field: the one ``given``, else one of its ``own`` names, else one of a known name.

    A field that is ``optional`` may be missing, and a rating is only searched for where nothing is given. DataError,
    with ``where`` the columns ``names`` are, for one that is missing, or several that fit a field equally.
    """
    chosen: dict[str, str] = {}
    missing: list[str] = []
    for field in fields:
        # who names columns and no rating means none, but for one of the field's name
        searched = [n for n in names if n == field] if field == "rating" and given else list(names)
        matches = [given[field]] if field in given else matching_names(field, searched, own.get(field, ()))
        if len(matches) > 1:
            both = " and ".join(matches)
            raise DataError(
                f"{where}: the columns {both} could each be the {field}; name one by --columns={field}={matches[0]}"
            )
        if matches:
            chosen[field] = matches[0]
        elif field not in optional:
            missing.append(field)
    missing += [column for column in chosen.values() if not {column, column.partition(".")[0]} & set(names)]
    if missing:
        raise DataError(
            f"{where} has no column {', '.join(missing)}; its columns: {', '.join(names)}; name them by "
            "--columns=user_id=...,item_id=...,timestamp=...[,rating=...] (without a header: --no_header)"
        )
    for field, column in chosen.items():
        if list(names).count(column) > 1:
            raise DataError(f"{where}: the column {column!r} is there twice; rename one")
        if twice := [other for other in chosen if other != field and chosen[other] == column]:
            raise DataError(f"{where}: column {column!r} would be {field} and {twice[0]}; name another by --columns")
    return chosen
