"""Metrics by segment against a loop over the cases; values of an item column; and what is refused."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.segments import check_segments, segment_table, segments_of_models, segments_text
from recbole_hyper.evaluation.statistics import case_values, intervals
from tests.raising import refused


@pytest.fixture
def cases() -> pd.DataFrame:
    """60 cases of 20 users on items i0 to i11."""
    generator = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "user_id": [f"u{number % 20}" for number in range(60)],
            "item_id": [f"i{number % 12}" for number in range(60)],
            "rank": generator.integers(1, 15, 60),
            "position": generator.integers(0, 120, 60),
            "item_count": generator.integers(0, 600, 60),
            "user_count": generator.integers(0, 2, 60),
        }
    )


def write_items(path: Path, head: str, values: list[str]) -> Path:
    path.write_text(f"item_id:token\t{head}\n" + "".join(f"i{n}\t{value}\n" for n, value in enumerate(values)))
    return path


# by segment: the column, and the smallest value of each label
EDGES = {
    "history_length": ("position", {"0": 0, "1 to 4": 1, "5 to 9": 5, "10 to 19": 10, "20 to 49": 20, "50 to 99": 50,
                                    "100 and more": 100}),
    "item_popularity": ("item_count", {"not trained on": 0, "1 to 4": 1, "5 to 19": 5, "20 to 99": 20,
                                       "100 to 499": 100, "500 and more": 500}),
    "user.new": ("user_count", {"new": 0, "known": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_every_case_is_in_one_segment(name: str, cases: pd.DataFrame) -> None:
    column, edges = EDGES[name]
    ranks: dict[str, list[int]] = {}
    users: dict[str, set[str]] = {}
    for case in cases.to_dict("records"):
        label = [label for label, first in edges.items() if case[column] >= first][-1]
        ranks.setdefault(label, []).append(case["rank"])
        users.setdefault(label, set()).add(case["user_id"])
    rows = segment_table(cases, [name], ["hit@5", "ndcg@10", "itemcoverage@10"])
    assert {row["segment"]: (row["cases"], row["users"]) for row in rows} == {
        label: (len(ranks[label]), len(users[label])) for label in ranks
    }
    for row in rows:
        own = ranks[row["segment"]]
        ndcg = sum(1 / math.log2(rank + 1) for rank in own if rank <= 10) / len(own)
        assert row["ndcg@10"] == pytest.approx(ndcg)
        assert row["hit@5"] == pytest.approx(sum(rank <= 5 for rank in own) / len(own))
        assert row["ndcg@10 low"] <= row["ndcg@10"] <= row["ndcg@10 high"]
        assert "itemcoverage@10" not in row  # not a mean over cases
    order = [row["segment"] for row in rows]
    assert name == "user.new" or order == sorted(order, key=list(edges).index)


def test_a_case_is_in_the_segment_of_each_value_of_its_item(cases: pd.DataFrame, tmp_path: Path) -> None:
    items = write_items(tmp_path / "x.item", "kinds:token_seq", ["a b", "b", ""] * 3)  # i9 to i11 are not in the file
    rows = {row["segment"]: row["cases"] for row in segment_table(cases, ["item.kinds"], ["hit@5"], items=items)}
    assert rows == {"a": 15, "b": 30, "none": 30}
    whole = write_items(tmp_path / "y.item", "kinds:token", ["a b", "b", ""] * 3)
    rows = {row["segment"]: row["cases"] for row in segment_table(cases, ["item.kinds"], ["hit@5"], items=whole)}
    assert rows == {"a b": 15, "b": 15, "none": 30}


def test_a_value_that_begins_with_a_quote_swallows_no_lines(cases: pd.DataFrame, tmp_path: Path) -> None:
    values = ['"Hello', "b", 'c "d"', '"', "NA", "b"] * 2
    items = write_items(tmp_path / "x.item", "title:token", values)
    rows = {row["segment"]: row["cases"] for row in segment_table(cases, ["item.title"], ["hit@5"], items=items)}
    assert rows == {'"Hello': 10, "b": 20, 'c "d"': 10, '"': 10, "NA": 10}


def test_rare_values_are_joined_where_there_are_many(cases: pd.DataFrame, tmp_path: Path) -> None:
    items = write_items(tmp_path / "x.item", "brand:token", [f"brand{n}" for n in range(12)])
    (row,) = segment_table(cases, ["item.brand"], ["hit@5"], items=items)
    assert (row["segment"], row["cases"]) == ("other", 60)


def test_a_table_for_readers(cases: pd.DataFrame, tmp_path: Path) -> None:
    rows = segment_table(cases, ["user.new"], ["hit@5", "hit@10"])
    shown = segments_text(rows)
    assert shown.columns == ["by", "segment", "cases", "hit@10", "hit@10, 95 %"]
    assert shown.rows[0]["hit@10, 95 %"] == f"{rows[0]['hit@10 low']:.4f} to {rows[0]['hit@10 high']:.4f}"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        cases.to_parquet(tmp_path / name / "cases_test.parquet")
    folders = {"one": [tmp_path / "a"], "two": [tmp_path / "a", tmp_path / "b"]}
    both = segments_of_models(folders, ["user.new"], "hit@10", items=tmp_path / "x.item")
    assert [(row["segment"], row["model"]) for row in both.rows] == [
        ("known", "one"), ("known", "two"), ("new", "one"), ("new", "two"),
    ]  # fmt: skip
    # the cases of both runs are pooled
    assert both.rows[1]["cases"] == 2 * both.rows[0]["cases"]
    assert both.rows[1]["hit@10"] == pytest.approx(both.rows[0]["hit@10"])


def test_what_is_refused(cases: pd.DataFrame, tmp_path: Path) -> None:
    items = write_items(tmp_path / "x.item", "kind:token", ["a"])
    with refused(ConfigError, "'age'", "history_length", "item_popularity", "user.new"):
        check_segments(["age"])
    with refused(ConfigError, "'item.'"):
        check_segments(["item."])
    with refused(ConfigError, "item.kind", "gone.item"):
        check_segments(["user.new", "item.kind"], tmp_path / "gone.item")
    with refused(ConfigError, "item.price", "x.item", "item.kind"):
        segment_table(cases, ["item.price"], ["hit@5"], items=items)


def test_intervals_of_few_users_are_too_narrow_and_the_note_says_so(cases: pd.DataFrame, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    covered = 0

    def ranks(n: int) -> np.ndarray:
        return np.where(generator.random(n) < 0.15, generator.geometric(0.3, n), 99)

    values = case_values("ndcg@10", ranks(1_000_000))
    assert values is not None
    for trial in range(500):
        low, high = intervals(ranks(30), np.arange(30), ["ndcg@10"], resamples=300, seed=trial)["ndcg@10"]
        covered += low <= values.mean() <= high
    assert 0.88 < covered / 500 < 0.94  # .91
    cases.to_parquet(tmp_path / "cases_test.parquet")
    few = segments_of_models({"A": [tmp_path]}, ["user.new"], "hit@5", items=tmp_path)
    assert "fewer than 100 users are too narrow" in few.note
    many = pd.concat([cases.assign(user_id=cases["user_id"] + str(copy)) for copy in range(20)])
    many.to_parquet(tmp_path / "cases_test.parquet")
    assert "too narrow" not in segments_of_models({"A": [tmp_path]}, ["user.new"], "hit@5", items=tmp_path).note
