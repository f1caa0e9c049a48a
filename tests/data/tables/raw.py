"""Raw files for the tests of the reader: published formats written small, and short ways to read them."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.interactions import Interactions
from recbole_hyper.data.tables.parsers import Frame
from recbole_hyper.data.tables.prepare.pipeline import Prepared, prepare
from recbole_hyper.data.tables.table import open_table

Row = tuple[str, str, float, int]


DAY = 86_400


# midnights, so that formats with dates alone hold them too; users and items as awkward as the sources have them
ROWS: list[Row] = [
    ("A1REVIEWER0001", "B00AAAAAAA", 5.0, 17_000 * DAY),
    ("A2REVIEWER0002", "B00BBBBBBB", 3.5, 16_999 * DAY),
    ("A1REVIEWER0001", "B00CCCCCCC", 4.0, 16_998 * DAY),
    ("A2REVIEWER0002", "B00AAAAAAA", 1.0, 16_999 * DAY),
    ("A3REVIEWER0003", "0001234567", 2.0, 16_000 * DAY),
    ("A1REVIEWER0001", "B00BBBBBBB", 4.5, 16_998 * DAY),
]


NAMES = ["o'neil", 'the "best"', "Zoë", "back\\slash", "NA", "null"]


AWKWARD: list[Row] = [(NAMES[n % 6], f"{n % 4}", 1.0 + n % 5, (15_000 + n * 7 % 5) * DAY) for n in range(24)]


def date(time: int, form: str = "%Y-%m-%d") -> str:
    return datetime.datetime.fromtimestamp(time, datetime.UTC).strftime(form)


def amazon_json(rows: list[Row]) -> str:
    lines = []
    for user, item, rating, time in rows:
        review = {"reviewerID": user, "asin": item, "helpful": [0, 1], "reviewText": 'said "no"\n{', "overall": rating}
        lines.append(json.dumps({**review, "style": {"Size:": " 5"}, "unixReviewTime": time}))
    return "\n".join(lines) + "\n"


def yelp(rows: list[Row]) -> str:
    forms = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d"]
    return "".join(
        json.dumps({"review_id": "r", "user_id": u, "business_id": i, "stars": r, "text": "é", "date": date(t, form)})
        + "\n"
        for (u, i, r, t), form in zip(rows, forms * len(rows), strict=False)
    )


def beer(u: str, i: str, r: float, t: int) -> dict[str, str]:
    text = "{'review/time': '1', 'beer/beerId': '2'}, it's \"so\" good"
    head = {"beer/name": "Zoë's", "beer/beerId": i, "beer/ABV": "", "review/overall": f"{r}", "review/time": f"{t}"}
    return {**head, "review/profileName": u, "review/text": text}


def beer_csv(rows: list[Row]) -> str:
    head = "brewery_id,brewery_name,review_time,review_overall,review_profilename,beer_beerid\n"
    quoted = ((u.replace('"', '""'), i, r, t) for u, i, r, t in rows)
    return head + "".join(f'1,"A, ""B""\nC",{t},{r},"{u}",{i}\n' for u, i, r, t in quoted)


def steam(rows: list[Row]) -> str:
    reviews = ({"username": u, "hours": 0.1, "product_id": i, "date": date(t)} for u, i, _, t in rows)
    return "".join(json.dumps(review) + "\n" for review in reviews)


CASES: dict[str, tuple[Callable[[list[Row]], str], list[Row], bool]] = {
    "movielens-tab": (lambda rows: "".join(f"{u}\t{i}\t{r:g}\t{t}\n" for u, i, r, t in rows), ROWS, True),
    "movielens-dat": (lambda rows: "".join(f"{u}::{i}::{r:g}::{t}\n" for u, i, r, t in rows), ROWS, True),
    "movielens-csv": (
        lambda rows: "userId,movieId,rating,timestamp\r\n" + "".join(f"{u},{i},{r},{t}\r\n" for u, i, r, t in rows),
        ROWS,
        True,
    ),
    "amazon-json": (amazon_json, ROWS, True),
    "amazon-ratings-2014": (lambda rows: "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows), ROWS, True),
    "amazon-ratings-2018": (lambda rows: "".join(f"{i},{u},{r},{t}\n" for u, i, r, t in rows), ROWS, True),
    "yelp": (yelp, AWKWARD, True),
    "gowalla": (
        lambda rows: "".join(f"{u}\t{date(t, '%Y-%m-%dT%H:%M:%SZ')}\t30.23\t-97.79\t{i}\n" for u, i, _, t in rows),
        ROWS,
        False,
    ),
    "behance": (lambda rows: "".join(f"{u} {i} {t}\n" for u, i, _, t in rows), ROWS, False),
    "beeradvocate": (lambda rows: "".join(json.dumps(beer(*row)) + "\n" for row in rows), AWKWARD, True),
    "beeradvocate-csv": (beer_csv, AWKWARD, True),
    "steam": (steam, AWKWARD, False),
}


def read_back(result: Prepared) -> list[tuple[str, ...]]:
    header, *lines = result.path.read_text().splitlines()
    fields = [field.split(":")[0] for field in header.split("\t")]
    assert fields == ["user_id", "item_id", "rating", "timestamp"] or fields == ["user_id", "item_id", "timestamp"]
    return [tuple(line.split("\t")) for line in lines]


def expected(rows: list[Row], rated: bool) -> list[tuple[str, ...]]:
    """Users in order of appearance, times in order within each, ties in the file's order."""
    users = list(dict.fromkeys(row[0] for row in rows))
    ordered = sorted(rows, key=lambda row: (users.index(row[0]), row[3]))
    return [(u, i, *([f"{r:g}"] if rated else []), str(t)) for u, i, r, t in ordered]


CSV_LAYOUT = Layout(columns={"user_id": "who", "item_id": "what", "timestamp": "when", "rating": "stars"})


T = 1_600_000_000


def prepared(
    text: str | bytes, tmp_path: Path, name: str = "raw.csv", **options: Any
) -> tuple[list[list[str]], list[str]]:
    """Return the rows that are written of a file, and what was said."""
    raw, said = tmp_path / name, []
    raw.write_bytes(text if isinstance(text, bytes) else text.encode())
    result: Prepared = prepare("mine", source=raw, output=tmp_path / "out", overwrite=True, say=said.append, **options)
    return [line.split("\t") for line in result.path.read_text().splitlines()[1:]], said


def lines_of(source: Path, tmp_path: Path, **options: Any) -> list[str]:
    options = {"output": tmp_path / "out", "overwrite": True, **options}
    return prepare("mine", source=source, **options).path.read_text().splitlines()[1:]


def write_part(path: Path, user: Any, item: Any, time: Any, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"user": user, "item": item, "time": time} | more), path)


def lines(result: Prepared) -> list[str]:
    return result.path.read_text().splitlines()[1:]


def interactions_of(frame: Any, columns: dict[str, str] | None = None) -> pa.Table:
    """Return the interactions of a frame, as runs and histories read them."""
    found = open_table(Frame(frame), Layout(columns=columns)).read_all()
    return pa.table({name: found[name] for name in ("user_id", "item_id", "timestamp")})


def interactions(rows: list[tuple[int, int, float, float]]) -> Interactions:
    users, items, ratings, times = (np.asarray(column) for column in zip(*rows, strict=True))
    tokens = pa.array([f"t{n}" for n in range(10)])
    return Interactions(
        users.astype(np.int32), items.astype(np.int32), times.astype(float), ratings.astype(np.float32), tokens, tokens
    )


# user, item, rating, time
CODED = [
    (1, 0, 5.0, 30.0),
    (0, 1, 2.0, 10.0),
    (1, 0, 4.0, 10.0),
    (0, 2, 3.0, 10.0),
    (1, 2, 1.0, 20.0),
    (2, 2, 5.0, 0.0),
]
