"""A catalogue: exclusions by user, and ids that are not items of the model."""

import pandas as pd
import pytest

from recbole_hyper.data.tables.engine import TooSlowError
from recbole_hyper.serving.page.routes import find
from recbole_hyper.serving.recommender import Recommender
from tests.raising import refused


def test_exclusions_of_each_user(model: Recommender) -> None:
    """A mapping excluded nothing."""
    every = model.recommend(users=["u1", "u2", "u3"], k=3)
    first = every[every["position"] == 1].set_index("user_id")["item_id"]
    left = model.recommend(users=["u1", "u2", "u3"], k=3, exclude={"u3": [first["u3"]], "u1": [], "other": ["i1"]})
    again = left[left["position"] == 1].set_index("user_id")["item_id"]
    assert first["u3"] not in left[left["user_id"] == "u3"]["item_id"].tolist()
    assert again["u2"] == first["u2"]
    for rules in ({}, {"boost": {"i2": 3e38}}, {"at_most": {"interactions": 12}}):
        by_number = model.recommend(histories=[["i1"], ["i1"]], k=11, exclude={1: ["i2", "i3"]}, rules=rules)
        assert len(by_number[by_number["user_id"] == 0]) == 11
        assert len(by_number[by_number["user_id"] == 1]) == 9


def test_all_conditions_of_a_plan_share_its_time(model: Recommender) -> None:
    with refused(TooSlowError, "no time was left"):
        model.catalogue.plan(3, rules={"at_least": {f"interactions > {n}": 1 for n in range(300)}}, seconds=0.05)


def test_unknown_ids_of_lists_are_counted(model: Recommender, caplog: pytest.LogCaptureFixture) -> None:
    """A file of categories excluded nothing, without a warning."""
    model.recommend(users=["u1"], k=3, exclude=["i1", "i2", "gone"])
    assert "exclude: 1 of 3 ids are not items of this model (first: 'gone'); they are skipped" in caplog.text
    for name in ("exclude", "items"):
        with refused(ValueError, f"{name}: 2 of 3 ids", "'shoes'"):
            model.recommend(users=["u1"], k=3, **{name: ["i1", "shoes", "hats"]})
    with refused(ValueError, "exclude", "items"):
        model.recommend(users=["u1"], k=3, exclude={"u1": ["shoes", "hats"], "u2": ["i1", "coats"]})
    with refused(ValueError, "exclude", "recommend"):
        model.recommend(users=["u1"], k=3, items=["i1", "i2"], exclude=["i2", "i1"])


def test_a_catalogue_replaces_the_one_before(model: Recommender) -> None:
    ids = model.item_ids
    model.use_catalogue({"item_id": ids, "stock": [1] * len(ids)})
    brands = pd.Categorical(["Acme", "acme", *[""] * (len(ids) - 2)])
    model.use_catalogue(pd.DataFrame({"item_id": ids, "brand": brands}))
    assert list(model.catalogue.columns) == ["interactions", "brand"]
    assert [found["item"] for found in find(model, "acme", 9)] == [found["item"] for found in find(model, "ACME", 9)]
    assert len(find(model, "acme", 9)) == 2
    assert len(model.recommend(histories=[ids[:1]], k=5, rules={"at_most": {"brand": 1}})) == 5
