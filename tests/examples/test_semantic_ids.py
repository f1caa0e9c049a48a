"""Semantic ids that a generative model wrote, as scores of items: items of one code tie, against the target."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from examples.semantic_ids import codes_of, item_scores, share_with_others
from recbole_hyper.config import Config
from recbole_hyper.experiment.scores import rank_scores
from recbole_hyper.runs.build import read_data


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Items i0 and i1 have a code, i2 and i3 another, each further item its own."""
    file = tmp_path / "index.json"
    tokens = {f"i{item}": [f"<a_{item // 2 if item < 4 else item}>", "<b_0>"] for item in range(50)}
    file.write_text(json.dumps(tokens))
    return file


def test_a_target_ranks_behind_the_items_of_its_code(random_data: Path, index: Path, tmp_path: Path) -> None:
    codes = codes_of(index)
    assert share_with_others(codes) == 4 / 50
    config = Config("Pop", "random", config_dict={"data_path": str(random_data), "topk": [1, 2], "exclude_seen": False,
                                                  "valid_metric": "Hit@1"})  # fmt: skip
    split = read_data(config)[1]
    store = split.store
    targets = store.item_tokens[split.test.targets]
    users = store.user_tokens[store.users[split.test.rows]]
    # each user gets the code of the own target, twice
    by_item: dict[str, Any] = codes.set_index("item_id")["code"].to_dict()
    rows = [(user, by_item[target], score) for user, target in zip(users, targets, strict=True) for score in (1.0, 0.5)]
    frame = item_scores(codes, pd.DataFrame(rows, columns=["user_id", "code", "score"]))
    assert set(frame["score"]) == {1.0}
    frame.to_parquet(tmp_path / "scores.parquet")
    result = rank_scores("TIGER", tmp_path / "scores.parquet", config, tmp_path / "out")
    shared = sum(int(target[1:]) < 4 for target in targets)
    assert 0 < shared < len(targets)
    assert result["test"]["hit@1"] == pytest.approx(1 - shared / len(targets), abs=1e-4)
    assert result["test"]["hit@2"] == 1


def test_a_code_of_no_item_is_named(index: Path) -> None:
    generated = pd.DataFrame({"user_id": ["u"], "code": ["<a_99><b_9>"], "score": [1.0]})
    with pytest.raises(ValueError, match="<a_99><b_9>"):
        item_scores(codes_of(index), generated)
