"""Formats: the user's options, and which column is which field."""

from typing import Any

import pytest

from recbole_hyper.data.tables.formats import FIELDS, Layout, columns_of, find, matching_names
from recbole_hyper.errors import DataError
from tests.raising import refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quoting": "double"}, "quoting='double' is unknown; allowed: none, csv"),
        ({"missing_ids": "ignore"}, "missing_ids='ignore' is unknown; allowed: drop, keep"),
        ({"encoding": "utf8-sign"}, "encoding='utf8-sign' is unknown"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with refused(DataError, message):
        Layout(**options).check()


def test_options_replace_those_of_a_published_format_if_its_kind_has_them() -> None:
    assert find("movielens-dat").set(Layout(separator=","), "movielens-dat").separator == ","
    with refused(DataError, "'jsonl'", "--header", "--separator"):
        find("jsonl").set(Layout(separator=",", header=True), "jsonl")
    with refused(DataError, "--encoding"):
        find("parquet").set(Layout(encoding="latin-1"), "parquet")


@pytest.mark.parametrize(
    ("names", "own", "expected"),
    [
        (["who", "user_id", "User"], ["who"], ["who"]),
        (["who", "user_id", "User"], [], ["user_id"]),
        (["Customer-ID", "session"], [], ["Customer-ID"]),
        (["session", "item"], [], ["session"]),
        (["uid", "member id", "USER"], [], ["uid", "member id", "USER"]),
        (["a", "b"], [], []),
    ],
)
def test_the_best_names_of_a_field_come_first(names: list[str], own: list[str], expected: list[str]) -> None:
    assert matching_names("user_id", names, own) == expected


def columns(names: list[str], given: dict[str, str] | None = None, optional: tuple[str, ...] = ("rating",)) -> Any:
    return columns_of(names, given or {}, "raw.csv", FIELDS, optional, {})


def test_with_named_columns_only_a_column_called_rating_is_a_rating() -> None:
    assert "rating" not in columns(["user", "item", "time", "score"], {"user_id": "user"})
    assert columns(["user", "item", "time", "rating"], {"user_id": "user"})["rating"] == "rating"


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (["user", "item"], {}, "raw.csv has no column timestamp; its columns: user, item"),
        (["user", "item", "time"], {"user_id": "who"}, "has no column who"),
        (["user", "item", "time", "date"], {}, "--columns=timestamp=time"),
        (["user", "item", "time"], {"item_id": "user"}, "column 'user' would be user_id and item_id"),
        (["user", "item", "item", "time"], {"item_id": "item"}, "has two columns 'item'"),
    ],
)
def test_columns_that_cannot_be_right_are_refused(names: list[str], given: dict[str, str], message: str) -> None:
    with refused(DataError, message):
        columns(names, given)
