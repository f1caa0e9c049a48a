"""SplitLight's files against a loop over the interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper.config import Config
from recbole_hyper.experiment.splitlight import write_splitlight
from recbole_hyper.training.build import read_data


@pytest.mark.parametrize(
    "eval_args",
    [
        {"split": {"LS": "valid_and_test"}},
        {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True},
    ],
)
def test_the_files_of_a_split(eval_args: dict[str, Any], random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "eval_args": eval_args}
    split = read_data(Config("Pop", "random", config_dict=keys))[1]
    folder = write_splitlight(split, tmp_path / "random", "split")
    store = split.store
    assert len(pd.read_parquet(tmp_path / "random" / "preprocessed.parquet")) == len(store.items)

    def interactions(row: int, start: int, end: int) -> list[tuple[str, str, float]]:
        user, at = str(store.user_tokens[store.users[row]]), range(store.offsets[row] + start, store.offsets[row] + end)
        return [(user, str(store.item_tokens[store.items[i]]), float(store.times[i])) for i in at]

    expected: dict[str, list[tuple[str, str, float]]] = {"train": []}
    for row, length in enumerate(split.train_lengths):
        expected["train"] += interactions(row, 0, length)
    for name, cases in (("validation", split.valid), ("test", split.test)):
        first: dict[int, int] = {}
        for row, end in zip(cases.rows.tolist(), cases.ends.tolist(), strict=True):
            first[row] = min(end, first.get(row, end))
        expected[f"{name}_input"] = [one for row, end in first.items() for one in interactions(row, 0, end)]
        expected[f"{name}_target"] = [
            one
            for row, place in zip(cases.rows.tolist(), cases.target_positions.tolist(), strict=True)
            for one in interactions(row, place, place + 1)
        ]
    assert len(expected["test_target"]) > 10
    for name, rows in expected.items():
        frame = pd.read_parquet(folder / f"{name}.parquet")
        assert list(frame) == ["user_id", "item_id", "timestamp"]
        assert sorted(frame.itertuples(index=False, name=None)) == sorted(rows), name
