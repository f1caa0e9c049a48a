"""Scores of other libraries: against a loop over the cases, and against the model that wrote them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.experiment import compare
from recbole_hyper.experiment.scores import missing_text, rank_scores, read_scores
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.load import load
from tests.commands.test_compare import run_here
from tests.raising import refused


@pytest.fixture
def keys(random_data: Path) -> dict[str, Any]:
    return {"data_path": str(random_data), "use_gpu": False, "topk": [1, 5], "valid_metric": "NDCG@5"}


def slow_ranks(frame: pd.DataFrame, config: Config, exclude_seen: bool = True) -> list[int]:
    """The rank of each target by a loop: a listed target ranks behind all that are at least as good."""
    split = read_data(config)[1]
    store, ranks = split.store, []
    for row, end, target in zip(split.test.rows, split.test.ends, split.test.targets, strict=True):
        user, goal = store.user_tokens[store.users[row]], store.item_tokens[target]
        start = store.offsets[row]
        seen = set(store.item_tokens[store.items[start : start + end]]) if exclude_seen else set()
        own = frame[(frame.user_id == user) & ~frame.item_id.isin(seen) & frame.item_id.isin(store.item_tokens[1:])]
        scores = dict(zip(own.item_id, own.score, strict=True))
        ranks.append(sum(score >= scores[goal] for score in scores.values()) if goal in scores else 10**9)
    return ranks


def test_lists_rank_as_in_a_loop(keys: dict[str, Any], tmp_path: Path) -> None:
    config = Config("Pop", "random", config_dict=keys)
    store = read_data(config)[1].store
    generator = np.random.default_rng(0)
    rows = [
        {"user_id": user, "item_id": item, "score": float(generator.integers(0, 6))}
        for user in store.user_tokens[2:]  # one user has no list
        for item in generator.choice(store.item_tokens[1:], 8, replace=False)
    ]
    rows += [{"user_id": "nobody", "item_id": store.item_tokens[1], "score": 1.0}]
    rows += [{"user_id": store.user_tokens[2], "item_id": "nothing", "score": 99.0}]
    frame = pd.DataFrame(rows)
    for suffix in ("csv", "parquet"):
        file = tmp_path / f"lists.{suffix}"
        frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file)
        result = rank_scores("Other", file, config, tmp_path / suffix)
        ranks = pd.read_parquet(tmp_path / suffix / "cases_test.parquet")["rank"]
        expected = slow_ranks(frame, config)
        assert [rank if rank <= 5 else 10**9 for rank in ranks] == [rank if rank <= 5 else 10**9 for rank in expected]
        assert result["test"]["hit@5"] == pytest.approx(np.mean([rank <= 5 for rank in expected]), abs=1e-6)
        assert result["missing"]["test users without a list"] == 1
        assert "1 test users without a list" in missing_text(result)


def test_a_model_and_its_own_scores_have_the_same_figures(keys, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    run("EASER", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    model = load(tmp_path / "run")
    # recommend(users=...) reads the last item too, which is the target of the test
    split = read_data(Config("EASER", "random", config_dict=keys))[1]
    store = split.store
    histories = [store.item_tokens[store.items[store.offsets[r] : store.offsets[r] + e]].tolist()
                 for r, e in zip(split.test.rows, split.test.ends, strict=True)]  # fmt: skip
    lists = model.recommend(histories=histories, k=5)
    names = store.user_tokens[store.users[split.test.rows]]
    number = lists.columns[0]
    lists = lists.assign(user_id=[names[int(i)] for i in lists[number]])[["user_id", "item_id", "score"]]
    lists.to_csv(tmp_path / "easer.csv", index=False)
    asked = ["compare", "--models=EASER,Pop", "--dataset=random", f"--output_dir={tmp_path / 'table'}"]
    asked += [f"--{key}={value}" for key, value in keys.items()] + [
        "--max_concurrent=1",
        f"--scores=Theirs={tmp_path / 'easer.csv'}",
    ]
    assert main(asked) == 0
    table = pd.read_csv(tmp_path / "table" / "compare.csv").set_index("model")
    for metric in ("ndcg@1", "ndcg@5", "hit@5", "mrr@5", "itemcoverage@5"):
        assert table.loc["Theirs", metric] == pytest.approx(table.loc["EASER", metric], abs=1e-6), metric
    assert table.loc["Theirs", "note"].startswith("scores of easer.csv")
    assert np.isnan(table.loc["Theirs", "train_seconds"])
    assert "scores of easer.csv" in capsys.readouterr().out
    assert not (tmp_path / "table" / "Pop.yaml").exists(), "a visible file may be a user's"
    assert main([*asked[:1], "--models=Pop", *asked[2:-1], f"--scores=EASER={tmp_path / 'easer.csv'}"]) == 1
    assert "has a run of this name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"user_id": ["a"], "item_id": ["b"]}, "has no column 'score'"),
        ({"user_id": ["a"], "item_id": ["b"], "score": ["x"]}, "the score in row 1 is not a finite number"),
    ],
)
def test_bad_scores(frame: dict, message: str, tmp_path: Path) -> None:
    pd.DataFrame(frame).to_csv(tmp_path / "bad.csv", index=False)
    with refused(DataError, message):
        read_scores(tmp_path / "bad.csv")


def test_ids_and_ranks(tmp_path: Path) -> None:
    pd.DataFrame({"user_id": [1.0, 2.0], "item_id": [7, 8], "rank": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    frame = read_scores(tmp_path / "a.parquet")
    assert frame["user_id"].tolist() == ["1", "2"]
    assert frame["score"].tolist() == [-1, -2]


def test_one_list_cannot_rank_several_cases(keys: dict[str, Any], tmp_path: Path) -> None:
    successive = {**keys, "eval_args": {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True}}
    (tmp_path / "a.csv").write_text("user_id,item_id,score\nu1,i1,1\n")
    with refused(ConfigError, "several", "cases"):
        rank_scores("X", tmp_path / "a.csv", Config("Pop", "random", config_dict=successive), tmp_path / "out")
    (tmp_path / "a.csv").write_text("user_id,item_id,score\nstranger,i1,1\n")
    with refused(DataError, "a.csv: no row has both a user and an item of random"):
        rank_scores("X", tmp_path / "a.csv", Config("Pop", "random", config_dict=keys), tmp_path / "out")


@pytest.mark.parametrize("text", ["X", "X=", " =a.csv", "Pop=a.csv", "X=nothing.csv"])
def test_a_file_is_named_and_exists(text: str, keys: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id,score\nu1,i1,1\n")
    text = text.replace("a.csv", str(tmp_path / "a.csv"))
    assert main(["compare", "--models=Pop", "--dataset=random", f"--scores={text}"]) == 1
    assert "--scores" in capsys.readouterr().err
