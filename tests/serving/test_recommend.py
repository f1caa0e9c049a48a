"""What recommend accepts as users and histories, what it returns, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_hyper import load, run
from tests.conftest import LEARN, SMALL, write_inter
from tests.raising import refused
from tests.reference import planted


def recommend(folder: Path, users: Any = None, histories: Any = None, **keys: Any) -> pd.DataFrame:
    """What a run recommends if unknown ids and empty histories are errors."""
    cold = "popular" if histories is None else "error"
    return load(folder).recommend(users, histories, **{"unknown": "error", "cold": cold, **keys})


def test_load_and_recommend(walk: Path, tmp_path: Path) -> None:
    run("HSASRecCE", "walk", config_dict={**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run")})
    data = load(tmp_path / "run")
    model = data.model
    assert not model.training
    follows = planted.successors()
    histories = {item: [item, follows[item], follows[follows[item]]] for item in follows}
    found = recommend(tmp_path / "run", histories=list(histories.values()), k=2)
    first = found[found["position"] == 1]["item_id"].tolist()
    right = [item == follows[history[-1]] for item, history in zip(first, histories.values(), strict=True)]
    assert np.mean(right) > 0.85
    for items, history in zip(found["item_id"].to_numpy().reshape(-1, 2), histories.values(), strict=True):
        assert not set(items) & set(history)
    store = data.store
    users = [str(store.user_tokens[user]) for user in store.users]
    known = recommend(tmp_path / "run", users, k=1)
    newest = [store.item_tokens[store.row(row)[-1]] for row in range(store.n_rows)]
    assert np.mean([a == follows[b] for a, b in zip(known["item_id"], newest, strict=True)]) > 0.8
    assert len(store.items) == len(planted.walk_rows())
    with refused(ValueError, "users", "data"):
        recommend(tmp_path / "run", ["nobody"])
    with refused(ValueError, "users", "histories"):
        recommend(tmp_path / "run")


@pytest.mark.parametrize("model", ["SASRecCE", "HGRU4Rec"])
def test_recommends_all_that_is_left_in_order_of_its_score(model: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1, "output_dir": str(tmp_path / "run")}
    run(model, "random", config_dict={**keys, "ranking_memory_budget": 2000})  # several batches
    store = load(tmp_path / "run").store
    users = [str(store.user_tokens[user]) for user in store.users[:7]]
    found = recommend(tmp_path / "run", users, k=49)
    for row, user in enumerate(users):
        own = found[found["user_id"] == user]
        seen = set(store.item_tokens[store.row(row)])
        assert set(own["item_id"]) | seen == set(store.item_tokens[1:])
        assert not set(own["item_id"]) & seen
        assert (np.diff(own["score"]) <= 0).all()
        assert own["position"].tolist() == list(range(1, len(own) + 1))
    history = [str(token) for token in store.item_tokens[store.row(0)]]
    same = recommend(tmp_path / "run", histories=[history], k=49)
    assert same["item_id"].tolist() == found[found["user_id"] == users[0]]["item_id"].tolist()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run whose ids are numbers: users 1 to 6, items 11 to 19, 1 and 0."""
    folder = tmp_path_factory.mktemp("small")
    items = [*range(11, 20), 1, 0]
    rows = [(user, items[(user + step) % 11], 1000 + step) for user in range(1, 7) for step in range(6)]
    write_inter(folder / "data", "small", rows)
    keys = {**SMALL, "data_path": str(folder / "data"), "epochs": 1, "output_dir": str(folder / "run")}
    run("SASRecCE", "small", config_dict=keys)
    return folder / "run"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"histories": ["11", "10"]}, r"histories\[0\]='11' is a single string; give a list of ids"),
        ({"histories": "11"}, "histories='11' is a single string; give a list of lists of item ids"),
        ({"histories": [b"11"]}, r"histories\[0\]=b'11' is a single string"),
        ({"histories": [11, 10]}, r"histories\[0\]=11 is not a list"),
        ({"histories": [[["11"]]]}, r"histories\[0\]: \['11'\] is not an id"),
        ({"histories": [[None]]}, "None is not an id"),
        ({"histories": [[float("nan")]]}, "nan is not an id"),
        ({"histories": [["11"], []]}, "1 histories have no item that the model knows"),
        ({"histories": [{"11", "10"}]}, r"histories\[0\] is a set, which has no order"),
        ({"users": "1"}, "users='1' is a single string"),
        ({"users": 1}, "users=1 is not a list"),
        ({"users": [True]}, "users: True is not an id"),
        ({"users": ["1"], "histories": [["11"]]}, "give users or histories"),
        ({"users": ["1"], "k": 2.5}, "k=2.5: a whole number of at least 1 is needed"),
        ({"users": ["1"], "k": True}, "k=True: a whole number"),
        ({"users": ["1"], "k": "3"}, "k='3': a whole number"),
        ({"users": ["1"], "k": None}, "k=None: a whole number"),
        ({"users": [], "k": 0}, "k=0: a whole number"),
        ({"users": ["1"], "exclude_seen": "False"}, "exclude_seen='False': True or False"),
    ],
)
def test_recommend_checks_its_arguments(keys: dict, message: str, small_run: Path) -> None:
    with pytest.raises(ValueError, match=message):
        recommend(small_run, **keys)


def test_recommend_never_lists_padding(small_run: Path) -> None:
    with refused(ValueError, "'[PAD]'"):
        recommend(small_run, histories=[["11", "[PAD]"]])
    with refused(ValueError, "'[PAD]'"):
        recommend(small_run, ["[PAD]"])
    with refused(ValueError, "k=12"):
        recommend(small_run, ["1"], k=12)


def test_recommend_takes_any_iterable_once(small_run: Path) -> None:
    rows = [["11", "1"], ["0", "14"]]
    wanted = recommend(small_run, histories=rows, k=3)
    assert len(wanted) == 6
    for same in (
        (iter(row) for row in rows),
        np.array(rows),
        np.array(rows).astype(int),
        [pd.Series([11, 1]), pd.Series(["0", "14"])],
        torch.tensor([[11, 1], [0, 14]]),
        tuple(map(tuple, rows)),
    ):
        pd.testing.assert_frame_equal(recommend(small_run, histories=same, k=np.int64(3)), wanted)
    known = recommend(small_run, ["3", "1"], k=3)
    assert known["user_id"].tolist() == ["3"] * 3 + ["1"] * 3
    for same in ((user for user in ["3", "1"]), np.array(["3", "1"]), pd.Series(["3", "1"]), {"3": 0, "1": 0}):
        pd.testing.assert_frame_equal(recommend(small_run, same, k=3), known)
    for numbers in ([3, 1], np.array([3, 1]), range(3, 0, -2)):
        found = recommend(small_run, numbers, k=3)
        assert found["user_id"].tolist() == [3] * 3 + [1] * 3
        assert found["item_id"].tolist() == known["item_id"].tolist()


def test_recommend_for_nobody_is_a_frame_without_rows(small_run: Path) -> None:
    for empty, full in (
        (recommend(small_run, []), recommend(small_run, ["1"])),
        (recommend(small_run, histories=iter([])), recommend(small_run, histories=[["11"]])),
    ):
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, full.dtypes)
