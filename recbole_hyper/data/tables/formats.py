"""The raw formats (properties/formats.yaml), the options for other files, and which column is which field."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from recbole_hyper.errors import DataError
from recbole_hyper.yaml_files import packaged_yaml, properties_folder

FIELDS = ("user_id", "item_id", "timestamp", "rating")
# names of each field's column, in lower case without signs; the first line with a match counts
_KNOWN = {
    "user_id": (
        "user uid customerid customer reviewerid reviewer username visitorid memberid accountid playerid buyerid "
        "clientid shopperid personid idcustomer",
        "sessionid session",
        "email customeremail useremail emailaddress",
    ),
    "item_id": (
        "parentasin",
        "item iid asin productid movieid sku articleid songid trackid bookid gameid businessid videoid newsid goodsid "
        "isbn appid placeid venueid contentid aid lineitemsku stockcode productcode itemcode",
        "items itemids itemidlist",
    ),
    "timestamp": (
        "time date datetime unixreviewtime unixtime unixtimestamp ts createdat eventtime eventtimestamp orderedat "
        "orderdate purchasedate purchasedat boughtat transactiondate tdat clickedat watchedat viewedat playedat "
        "listenedat readat ratedat invoicedate eventdate dateadded transactiondt times timestamps",
        "ordernumber",
    ),
    "rating": ("ratings stars overall score",),
}
# the options of each kind of format, where not all
_OPTIONS = {
    "json": ("columns", "time_format", "encoding"),
    "parquet": ("columns", "time_format"),
    "sequences": ("separator", "encoding"),
    "atomic": ("columns", "separator", "encoding"),
}


@dataclass(frozen=True)
class Layout:
    """The user's options for a file; None takes the format's value, or a guess."""

    # field (user_id, item_id, timestamp, rating) to column name, or number from 1 without a header
    columns: Mapping[str, str] | None = None
    separator: str | None = None  # between values, such as a tab, or the ``::`` of MovieLens
    header: bool | None = None  # whether the first line names the columns
    time_format: str | None = None  # see ``times.to_seconds``
    quoting: str | None = None  # ``csv``: values may be in double quotes; ``none``: a quote is text
    encoding: str | None = None  # Python's name of the text encoding
    missing_ids: str | None = None  # rows whose id is a word such as NA: ``drop`` or ``keep``

    def check(self) -> None:
        """Raise DataError for a value that is not allowed."""
        for key, allowed in (("quoting", ("none", "csv")), ("missing_ids", ("drop", "keep"))):
            if getattr(self, key) not in (None, *allowed):
                raise DataError(f"{key}={getattr(self, key)!r} is unknown; allowed: {', '.join(allowed)}")
        for key in ("encoding", "separator"):
            if getattr(self, key) == "":
                raise DataError(f"--{key}= is empty; leave it out for a guess")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError as error:
            raise DataError(f"encoding={self.encoding!r} is unknown to Python; try utf-8 or latin-1") from error


@dataclass(frozen=True)
class Format(Layout):
    """A raw format."""

    about: str = ""  # one line for people
    kind: str = ""  # a key of ``parsers.PARSERS``
    files: Sequence[str] = ()  # patterns of usual file names, without .gz
    names: Sequence[str] = ()  # the columns in order, read from the file
    types: Sequence[str] = ()  # the types of the columns of an atomic file
    whole_ids: Sequence[str] = ()  # the fields whose ids, such as 7.0, are the whole numbers of a column with gaps
    guessed: bool = False  # whether the time format is a guess

    @property
    def quoted(self) -> bool:
        """Whether values may be in double quotes and then contain separators and line ends."""
        return self.kind == "csv" and self.quoting != "none" and len((self.separator or "").encode()) == 1

    @property
    def exact(self) -> bool:
        """Whether an id may be any text, including surrounding blanks."""
        return self.kind in ("frame", "atomic")

    @property
    def published(self) -> bool:
        """Whether this is the format of known files, by their names and columns."""
        return bool(self.columns and self.files)

    def set(self, layout: Layout | None, name: str) -> Format:
        """Return the format ``name`` with the user's options; DataError for an option that its kind does not have."""
        layout = layout or Layout()
        layout.check()
        options = {key: value for key, value in asdict(layout).items() if value is not None}
        if refused := ", --".join(sorted(set(options) - set(_OPTIONS.get(self.kind, options)))):
            raise DataError(f"format {name!r} has no --{refused}; for others use --format=csv")
        return replace(self, **options)


@functools.cache
def formats() -> Mapping[str, Format]:
    """Read properties/formats.yaml."""
    return {name: Format(**value) for name, value in packaged_yaml(properties_folder() / "formats.yaml").items()}


def find(name: str) -> Format:
    """Return the format ``name``; DataError if it is unknown."""
    if name not in formats():
        raise DataError(f"format {name!r} is unknown; known: {', '.join(sorted(formats()))}")
    return formats()[name]


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def matching_names(field: str, names: Sequence[str], own: Collection[str] = ()) -> list[str]:
    """Return the columns that may be a field: by its ``own`` names, else by the field's name, else by known names."""
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
    """Return the column of each field: the ``given`` one, else by its ``own`` names, else by known names.

    An ``optional`` field may be missing. DataError, which names ``where`` the columns ``names`` are, for a missing
    column, or several that match a field equally.
    """
    chosen: dict[str, str] = {}
    missing: list[str] = []
    for field in fields:
        # if the user names columns but no rating, only a column called rating is one
        searched = [n for n in names if n == field] if field == "rating" and given else list(names)
        matches = [given[field]] if field in given else matching_names(field, searched, own.get(field, ()))
        if len(matches) > 1:
            both = " and ".join(matches)
            raise DataError(f"{where}: {both} may both be {field}; name one by --columns={field}={matches[0]}")
        if matches:
            chosen[field] = matches[0]
        elif field not in optional:
            missing.append(field)
    missing += [column for column in chosen.values() if not {column, column.partition(".")[0]} & set(names)]
    if missing:
        option = ",".join(f"{field}={chosen.get(field, '...')}" for field in fields if field != "rating")
        option = f"'{option}'" if any(" " in name for name in names) else option
        timeless = ""
        if not {*missing} <= {*names, "user_id", "item_id"}:
            timeless = "; a table without times: --order=file; times in several columns: examples/convert/times.py"
        raise DataError(
            f"{where} has no column {', '.join(missing)}; its columns: {', '.join(names)}; name them by "
            f"--columns={option}{timeless} (without a header: --no_header)"
        )
    for field, column in chosen.items():
        if list(names).count(column) > 1:
            raise DataError(f"{where} has two columns {column!r}; rename one")
        if others := [other for other in chosen if other != field and chosen[other] == column]:
            raise DataError(f"{where}: column {column!r} would be {field} and {others[0]}; name another by --columns")
    return chosen
