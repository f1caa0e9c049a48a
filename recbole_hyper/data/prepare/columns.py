"""What a table's names and values say about it: which column is the user, the item, the time, the rating."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from recbole_hyper.data.prepare.errors import PrepareError

FIELDS = ("user_id", "item_id", "timestamp", "rating")
# names of columns, without case and signs, beside the field's own
_KNOWN = {
    "user_id": "user uid customerid customer reviewerid reviewer username visitorid memberid accountid playerid",
    "item_id": "item iid asin productid movieid sku articleid songid trackid bookid gameid businessid",
    "timestamp": "time date datetime unixreviewtime unixtime unixtimestamp ts createdat eventtime",
    "rating": "ratings stars overall score",
}


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def columns_of(
    names: Sequence[str], given: Mapping[str, str] | None, where: str, fields: Sequence[str] = FIELDS
) -> dict[str, str]:
    """Return the column of each field: the one ``given``, else one of the field's name, else one of a known name.

    Of the ``fields`` wanted a rating may be missing, and is only searched for where nothing is given; ``where`` holds
    the columns ``names``. PrepareError where a column is missing, or several fit a field equally.
    """
    chosen, missing = dict(given or {}), []
    for field in fields:
        known = {_bare(field), *_KNOWN[field].split()}
        tests = [[field], [n for n in names if _bare(n) == _bare(field)], [n for n in names if _bare(n) in known]]
        if field == "rating" and given:  # who names columns and no rating means none, but for one of the field's name
            tests = [[field]]
        fitting = next((found for found in tests if set(found) & set(names)), [])
        if field in chosen or (not fitting and field == "rating"):
            continue
        if len(fitting) > 1:
            both = " and ".join(fitting)
            raise PrepareError(
                f"{where}: the columns {both} could each be the {field}; name one by --columns={field}={fitting[0]}"
            )
        if fitting:
            chosen[field] = fitting[0]
        else:
            missing.append(field)
    missing += [column for column in chosen.values() if column not in names]
    if missing:
        hint = "name them by --columns=user_id=...,item_id=...,timestamp=...[,rating=...]"
        raise PrepareError(f"{where} has no column {', '.join(missing)}; its columns: {', '.join(names)}; {hint}")
    return {field: chosen[field] for field in fields if field in chosen}
