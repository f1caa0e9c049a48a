"""Ids that are numbers, from any iterable, and questions about nobody."""

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.serving.recommender import Recommender
from tests.conftest import SMALL, write_inter


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    """Return a run whose ids are numbers: users 1 to 6, items 11 to 19, 1 and 0."""
    folder = tmp_path_factory.mktemp("small")
    items = [*range(11, 20), 1, 0]
    rows = [(user, items[(user + step) % 11], 1000 + step) for user in range(1, 7) for step in range(6)]
    write_inter(folder / "data", "small", rows)
    keys = {**SMALL, "data_path": str(folder / "data"), "epochs": 1, "output_dir": str(folder / "run")}
    run("SASRecCE", "small", config_dict=keys)
    return load(folder / "run")


def test_recommend_takes_any_iterable_once(numbers: Recommender) -> None:
    rows = [["11", "1"], ["0", "14"]]
    wanted = numbers.recommend(histories=rows, k=3)
    assert len(wanted) == 6
    for same in (
        np.array(rows).astype(int),
        [pd.Series([11, 1]), pd.Series(["0", "14"])],
        torch.tensor([[11, 1], [0, 14]]),
        tuple(map(tuple, rows)),
    ):
        pd.testing.assert_frame_equal(numbers.recommend(histories=same, k=np.int64(3)), wanted)
    known = numbers.recommend(["3", "1"], k=3)
    assert known["user_id"].tolist() == ["3"] * 3 + ["1"] * 3
    pd.testing.assert_frame_equal(numbers.recommend({"3": 0, "1": 0}, k=3), known)
    for users in ([3, 1], np.array([3, 1]), range(3, 0, -2)):
        found = numbers.recommend(users, k=3)
        assert found["user_id"].tolist() == [3] * 3 + [1] * 3
        assert found["item_id"].tolist() == known["item_id"].tolist()


def test_recommend_for_nobody_is_a_frame_without_rows(numbers: Recommender) -> None:
    for empty, full in (
        (numbers.recommend([]), numbers.recommend(["1"])),
        (numbers.recommend(histories=iter([])), numbers.recommend(histories=[["11"]])),
    ):
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, full.dtypes)
