"""Which column is the user, the item, the time, the rating: by what a caller says, by its own name, by known names."""

import re
from collections.abc import Collection, Mapping, Sequence

from recbole_hyper.errors import DataError

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


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def matching_names(field: str, names: Sequence[str], own: Collection[str] = ()) -> list[str]:
    """Return the columns that may be a field: of one of its ``own`` names, of the field's name, of a known name."""
    alike = [[name for name in names if _bare(name) in words.split()] for words in _KNOWN[field]]
    alike.insert(0, [name for name in names if _bare(name) == _bare(field)])
    exact = [[name for name in names if name in own], [name for name in names if name == field]]
    return next(filter(None, [*exact, *alike]), [])


def is_name(text: str, field: str, own: Collection[str] = ()) -> bool:
    """Return whether ``text``, alone on the first line of a file of ids, names the column of a field."""
    return bool(matching_names(field, [text.rpartition(":")[0] if text.endswith(":token") else text], own))


def columns_of(
    names: Sequence[str],
    given: Mapping[str, str] | None,
    where: str,
    fields: Collection[str] = FIELDS,
    optional: Collection[str] = ("rating",),
    own: Mapping[str, Collection[str]] | None = None,
) -> dict[str, str]:
    """Return the column of each field: the one ``given``, else one of its ``own`` names, else one of a known name.

    ``where`` holds the columns ``names``; a field that is ``optional`` may be missing, and a rating is only searched
    for where nothing is given. DataError where a column is missing, or several fit a field equally.
    """
    chosen, missing = {field: column for field, column in (given or {}).items() if field in fields}, []
    for field in fields:
        if field in chosen:
            continue
        # who names columns and no rating means none, but for one of the field's name
        searched = [n for n in names if n == field] if field == "rating" and given else list(names)
        found = matching_names(field, searched, (own or {}).get(field, ()))
        if len(found) > 1:
            both = " and ".join(found)
            raise DataError(
                f"{where}: the columns {both} could each be the {field}; name one by --columns={field}={found[0]}"
            )
        if found:
            chosen[field] = found[0]
        elif field not in optional:
            missing.append(field)
    missing += [column for column in chosen.values() if column.partition(".")[0] not in names and column not in names]
    if missing:
        hint = (
            "name them by --columns=user_id=...,item_id=...,timestamp=...[,rating=...] (without a header: --no_header)"
        )
        raise DataError(f"{where} has no column {', '.join(missing)}; its columns: {', '.join(names)}; {hint}")
    for field, column in chosen.items():
        if list(names).count(column) > 1:
            raise DataError(f"{where}: the column {column!r} is there twice; rename one")
        if twice := [other for other in chosen if other != field and chosen[other] == column]:
            raise DataError(
                f"{where}: the column {column!r} would be {field} and {twice[0]}; name another by --columns"
            )
    return {field: chosen[field] for field in fields if field in chosen}
