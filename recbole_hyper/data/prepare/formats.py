"""The raw formats by name: how to read each, and how its files are usually called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.interactions import Interactions, RawChunk
from recbole_hyper.data.prepare.malformed import Malformed
from recbole_hyper.data.prepare.readers.atomic import read_atomic
from recbole_hyper.data.prepare.readers.delimited import Header, read_delimited
from recbole_hyper.data.prepare.readers.generic import FIELDS, read_csv, read_parquet
from recbole_hyper.data.prepare.readers.json_lines import read_json_lines
from recbole_hyper.data.prepare.readers.literals import read_literals
from recbole_hyper.data.prepare.readers.records import read_records
from recbole_hyper.data.prepare.readers.sequences import read_sequences

Reader = Callable[[BinaryIO, Malformed], Iterator[RawChunk]]


@dataclass(frozen=True)
class Format:
    """A published way of writing interactions down.

    Attributes:
        about: one line for people.
        read: the reader, called with a stream and the counter of malformed lines.
        files: patterns of the usual file names, without .gz; empty where the format says nothing about names.
        options: which of Layout's fields the reader takes.
        lines: the files are lines of text.
        positions: the times are positions in the user's sequence, since the format has none.
        check: refuses interactions that cannot be right for this format.
    """

    about: str
    read: Callable[..., Iterator[RawChunk]]
    files: Sequence[str] = ()
    options: frozenset[str] = frozenset()
    lines: bool = True
    positions: bool = False
    check: Callable[[Interactions], None] = lambda data: None


@dataclass(frozen=True)
class Layout:
    """What the user says about a generic file; None leaves the format's own.

    Attributes:
        columns: field (user_id, item_id, timestamp, rating) to column name, or number from 1 without a header.
        separator: between values.
        header: whether the first line names the columns.
        time_format: unix, unix_ms, iso or a pattern of strptime.
    """

    columns: Mapping[str, str] | None = None
    separator: str | None = None
    header: bool | None = None
    time_format: str | None = None


def _delimited(names: str, separator: str, time_format: str = "unix") -> Callable[..., Iterator[RawChunk]]:
    """A reader of lines without a header; of the columns ``names`` those called like one of the fields are read."""
    columns = names.split()
    header = Header(columns, {name: name for name in columns if name in FIELDS})
    return partial(read_delimited, header=header, separator=separator, time_format=time_format)


def _named(user_id: str, item_id: str, timestamp: str, rating: str | None = None) -> dict[str, str]:
    """The source's name of each field."""
    return dict(zip(FIELDS, (user_id, item_id, timestamp, *([rating] if rating else [])), strict=False))


_BEER = _named("review/profileName", "beer/beerId", "review/time", "review/overall")


def _amazon_columns(data: Interactions) -> None:
    """Refuse ratings read with users and items exchanged: item codes (ASIN) have ten characters, user codes more."""
    items, users = (
        float(pc.mean(pc.cast(pc.equal(pc.utf8_length(tokens), 10), pa.float64())).as_py())
        for tokens in (data.item_tokens, data.user_tokens)
    )
    if users > items:
        raise PrepareError(
            f"the users' column holds Amazon item codes ({users:.0%} have ten characters, items {items:.0%}): files of "
            "2014 are user,item,rating,time (--format=amazon-ratings-2014), those of 2018 item,user,rating,time "
            "(--format=amazon-ratings-2018)"
        )


def _one_line_per_user(data: Interactions) -> None:
    """Refuse sequences of which a user has two: their positions would be mixed."""
    order = np.lexsort((data.times, data.users))
    users, times = data.users[order], data.times[order]
    twice = np.flatnonzero((users[1:] == users[:-1]) & (times[1:] == times[:-1]))
    if len(twice):
        name = data.user_tokens[int(users[twice[0]])].as_py()
        raise PrepareError(f"user {name!r} has more than one line; join the lines of a user in time order")


_GENERIC = frozenset({"columns", "time_format"})

FORMATS: dict[str, Format] = {
    "movielens-tab": Format(
        "MovieLens-100K u.data: user, item, rating, time, with tabs between",
        _delimited("user_id item_id rating timestamp", "\t"),
        ("u.data",),
    ),
    "movielens-dat": Format(
        "MovieLens-1M and 10M ratings.dat: user::item::rating::time",
        _delimited("user_id item_id rating timestamp", "::"),
        ("ratings.dat",),
    ),
    "movielens-csv": Format(
        "MovieLens-20M and later ratings.csv: header userId,movieId,rating,timestamp",
        partial(read_csv, columns=_named("userId", "movieId", "timestamp", "rating")),
        ("ratings.csv",),
    ),
    "amazon-json": Format(
        "Amazon reviews of 2014 and 2018: reviews_X.json.gz, reviews_X_5.json.gz, X.json.gz, X_5.json.gz",
        partial(
            read_json_lines,
            keys=_named("reviewerID", "asin", "unixReviewTime", "overall"),
            numbers=("overall", "unixReviewTime"),
        ),
        ("reviews_*.json",),
    ),
    "amazon-ratings-2014": Format(
        "Amazon ratings of 2014, ratings_X.csv: user,item,rating,time without a header",
        _delimited("user_id item_id rating timestamp", ","),
        ("ratings_*.csv",),
        check=_amazon_columns,
    ),
    "amazon-ratings-2018": Format(
        "Amazon ratings of 2018, X.csv: item,user,rating,time without a header",
        _delimited("item_id user_id rating timestamp", ","),
        check=_amazon_columns,
    ),
    "yelp": Format(
        "Yelp Open Dataset, yelp_academic_dataset_review.json, also inside yelp_dataset.tar",
        partial(
            read_json_lines,
            keys=_named("user_id", "business_id", "date", "stars"),
            numbers=("stars",),
            time_format="iso",
        ),
        ("yelp_academic_dataset_review.json", "review.json"),
    ),
    "gowalla": Format(
        "SNAP loc-gowalla_totalCheckins.txt: user, time, latitude, longitude, place, with tabs between",
        _delimited("user_id timestamp latitude longitude item_id", "\t", "iso"),
        ("loc-gowalla_totalcheckins.txt", "gowalla_totalcheckins.txt"),
    ),
    "behance": Format(
        "Behance_appreciate_1M: user, item, time, with blanks between",
        _delimited("user_id item_id timestamp", " "),
        ("behance_appreciate_1m",),
    ),
    "beeradvocate": Format(
        "McAuley lab beeradvocate.json.gz: a Python dictionary a line",
        partial(read_literals, keys=_BEER),
        ("beeradvocate.json",),
    ),
    "beeradvocate-txt": Format(
        "SNAP Beeradvocate.txt: key: value lines, a blank line between reviews",
        partial(read_records, keys=_BEER),
        ("beeradvocate.txt",),
    ),
    "beeradvocate-csv": Format(
        "beer_reviews.csv: header with review_profilename, beer_beerid, review_time, review_overall",
        partial(read_csv, columns=_named("review_profilename", "beer_beerid", "review_time", "review_overall")),
        ("beer_reviews.csv",),
    ),
    "steam": Format(
        "McAuley lab steam_reviews.json.gz: a Python dictionary a line, users by name, times to the day",
        partial(read_literals, keys=_named("username", "product_id", "date"), time_format="iso"),
        ("steam_reviews.json", "steam_new.json"),
    ),
    "csv": Format(
        "any csv file, with --columns, --separator, --no_header, --time_format",
        read_csv,
        ("*.csv", "*.tsv"),
        _GENERIC | {"separator", "header"},
    ),
    "parquet": Format(
        "any parquet file, with --columns, --time_format", read_parquet, ("*.parquet",), _GENERIC, lines=False
    ),
    "sequences": Format(
        "user item item ... a line, in time order; times become positions",
        read_sequences,
        options=frozenset({"separator"}),
        positions=True,
        check=_one_line_per_user,
    ),
    "atomic": Format(
        "RecBole atomic file: header user_id:token item_id:token timestamp:float",
        read_atomic,
        ("*.inter",),
        frozenset({"columns", "separator"}),
    ),
}


def reader(name: str, layout: Layout) -> Reader:
    """Return the reader of format ``name`` bound to what the user says about the file.

    Raises:
        PrepareError: the format is unknown, or fixes what the user wants to set.
    """
    if name not in FORMATS:
        raise PrepareError(f"format {name!r} is unknown; known: {', '.join(sorted(FORMATS))}")
    chosen = FORMATS[name]
    given = {key: value for key, value in vars(layout).items() if value is not None}
    refused = sorted(set(given) - chosen.options)
    if refused:
        raise PrepareError(
            f"format {name!r} has its own layout and takes no --{', --'.join(refused)}; "
            "use --format=csv for a file with other columns"
        )
    return partial(chosen.read, **given)
