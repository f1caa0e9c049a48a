"""Lists under rules against loops over a sorted catalogue, ties included; bad rules are one error."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper import load
from recbole_hyper.cli import main
from recbole_hyper.data.tables.where import parse_where
from recbole_hyper.serving import rules as module
from recbole_hyper.serving.catalogue import Catalogue
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Rules, select
from tests.raising import refused
from tests.reference.rules import best_list


def shop_of(generator: np.random.Generator, n: int) -> Catalogue:
    """Return n items with few different values, some missing, and whole-numbered vectors, so that there are ties."""
    vectors = generator.integers(-1, 2, (n + 1, 3)).astype(np.float32)
    tokens = np.array(["", *(f"i{item}" for item in range(1, n + 1))])
    category = [None if value == 3 else f"c{value}" for value in generator.integers(0, 4, n)]
    columns = {
        "item_id": pa.array(tokens[1:]),
        "category": pa.array(category, pa.string()),
        "brand": pa.array(generator.integers(0, 6, n)),
        "price": pa.array(generator.integers(0, 10, n).astype(float)),
    }
    counts = generator.integers(0, 3, n + 1)
    return Catalogue(tokens, counts, vectors=lambda: vectors).with_columns(pa.table(columns), "item_id")


RULES: list[dict[str, Any]] = [
    {},
    {"where": "price < 5 and category != 'c0'"},
    {"at_most": {"category": 2}},
    {"at_most": {"category": 1, "brand": 2}},
    {"at_least": {"interactions = 0": 2}},
    {"at_least": {"interactions = 0": 3, "price > 5": 1}, "at_most": {"category": 2}, "where": "brand < 5"},
    {"boost": {"i3": 2.0, "i5": -3.5}},
    {"diversity": 0.4, "diversity_by": "category"},
    {"diversity": 0.5},
    {"diversity": 0.7, "at_most": {"brand": 1}, "boost": {"i2": 1}, "at_least": {"price >= 3": 4}},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(6, 60), k=st.integers(4, 6), pool=st.sampled_from([6, 100]))
def test_lists_are_those_of_a_loop(rules: dict[str, Any], seed: int, n: int, k: int, pool: int) -> None:
    generator = np.random.default_rng(seed)
    catalogue = shop_of(generator, n)
    before, module.POOL = module.POOL, pool
    try:
        if "where" in rules and not parse_where(rules["where"]).mask(catalogue.columns).any():
            return
        plan = catalogue.plan(k, rules=rules)
        scores = generator.integers(-4, 5, (4, n + 1)).astype(np.float32)
        lists = [generator.integers(1, n + 1, count).tolist() for count in (0, 3, 3 * n, 1)]
        wanted = [
            best_list(catalogue, row, k, own, Rules.of(rules), pool) for row, own in zip(scores, lists, strict=True)
        ]
        items, values = select(scores, plan, np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(np.int64))
    finally:
        module.POOL = before
    for row, (expected, worth) in enumerate(wanted):
        rest = k - len(expected)
        assert items[row].tolist() == expected + [0] * rest
        assert values[row].tolist() == worth + [-np.inf] * rest


def test_a_limit_that_the_first_candidates_exhaust_searches_all_items() -> None:
    n = 1000
    columns = pa.table({"item_id": [f"i{item}" for item in range(1, n + 1)], "kind": ["a"] * 990 + ["b"] * 10})
    tokens = np.array(["", *columns["item_id"].to_pylist()])
    catalogue = Catalogue(tokens, np.zeros(n + 1)).with_columns(columns, "item_id")
    scores = -np.arange(n + 1, dtype=np.float32)[None]
    items, _ = select(scores, catalogue.plan(6, rules={"at_most": {"kind": 3}}), np.zeros(2, int), np.zeros(0, int))
    assert items.tolist() == [[1, 2, 3, 991, 992, 993]]


def test_the_command_and_the_call_are_one(folder: Path, tmp_path: Path) -> None:
    table = pd.DataFrame({"item_id": [f"i{item}" for item in range(12)], "price": range(12), "kind": list("abcd") * 3})
    table.to_csv(tmp_path / "catalogue.csv", index=False)
    (tmp_path / "boost.csv").write_text("item_id,boost\ni7,3\ni2,-1\n")
    (tmp_path / "never.csv").write_text("user_id,item_id\nu1,i9\nu2,i5\nu2,i7\n")
    words = [
        f"--catalogue={tmp_path / 'catalogue.csv'}", "--where=price > 1", "--at_most={kind: 1}", "--k=3",
        "--at_least={price >= 6: 2}", f"--boost={tmp_path / 'boost.csv'}", f"--exclude={tmp_path / 'never.csv'}",
        "--users=u1,u2", "--exclude_seen=False", f"--output={tmp_path / 'out.parquet'}",
    ]  # fmt: skip
    assert main(["recommend", str(folder), *words]) == 0
    model = load(folder)
    model.use_catalogue(table)
    rules = {"where": "price > 1", "at_most": {"kind": 1}, "at_least": {"price >= 6": 2}, "boost": {"i7": 3, "i2": -1}}
    expected = model.recommend(
        users=["u1", "u2"], k=3, exclude_seen=False, rules=rules, exclude={"u1": ["i9"], "u2": ["i5", "i7"]}
    )
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), expected, check_dtype=False)
    kinds = table.set_index("item_id")["kind"]
    assert expected.groupby("user_id")["item_id"].agg(lambda items: kinds[items].nunique()).tolist() == [3, 3]
    assert expected[expected["user_id"] == "u1"]["item_id"].iloc[0] == "i7"
    assert "i7" not in expected[expected["user_id"] == "u2"]["item_id"].tolist()


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"were": "a = 1"}, "did you mean where"),
        ({"where": "cost < 3"}, "'cost'"),
        ({"where": "interactions <"}, "'interactions <'"),
        ({"where": "interactions > 1000"}, "no item"),
        ({"at_most": {"colour": 2}}, "'colour'"),
        ({"at_most": {"interactions": 0}}, "at_most="),
        ({"at_least": {"interactions = 0": 9}}, "a list of 3"),
        ({"boost": {"i1": float("nan")}}, "boost="),
        ({"boost": {"gone": 1.0}}, "1 of 1 ids"),
        ({"diversity": 1.5}, "diversity=1.5"),
        ({"diversity_by": "interactions"}, "without diversity"),
    ],
)
def test_bad_rules_are_one_error(rules: dict[str, Any], named: str, model: Recommender) -> None:
    with refused(ValueError, named):
        model.recommend(users=["u1"], k=3, rules=rules)


def test_one_long_name_does_not_widen_the_others() -> None:
    excluded = {f"u{number}": np.array([1]) for number in range(3000)} | {"x" * 20_000: np.array([2])}
    scores = np.zeros((4, 4), dtype=np.float32)
    names = np.array(["u7", "nobody", "x" * 20_000, 5], dtype=object)
    lists, _ = module.select(scores, module.Plan(k=3, excluded=excluded), None, None, names)
    assert lists.tolist() == [[2, 3, 0], [1, 2, 3], [1, 3, 0], [1, 2, 3]]
