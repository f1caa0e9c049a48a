"""A finished run ranked again gives what a run with these settings would have given."""

import json
from pathlib import Path

import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.evaluate import evaluate
from tests.conftest import SMALL


def settings(path: Path, out: Path, **keys: object) -> dict:
    return {**SMALL, "data_path": str(path), "epochs": 1, "output_dir": str(out), **keys}


def test_the_same_settings_give_the_same_metrics(random_data: Path, tmp_path: Path) -> None:
    result = run("HSASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))
    files = [tmp_path / "run" / name for name in ("result.json", "cases_test.parquet", "config.yaml")]
    before = [file.read_bytes() for file in files]
    again = evaluate(tmp_path / "run")
    assert (again["valid"], again["test"]) == (result["valid"], result["test"])
    assert [file.read_bytes() for file in files] == before


def test_another_ranking_is_that_of_a_run_with_it(random_data: Path, tmp_path: Path) -> None:
    full = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "full"))
    keys = {"eval_args": {"mode": "uni9"}, "metrics": ["MRR"], "topk": [5], "valid_metric": "MRR@5"}
    drawn = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "drawn", **keys))
    again = evaluate(tmp_path / "full", {"eval_args": "{mode: uni9}", "metrics": ["MRR"], "topk": [5]})
    assert again["test"] == drawn["test"] != full["test"]
    assert json.loads((tmp_path / "full" / "evaluation_uni9.json").read_text())["test"] == drawn["test"]
    seen = evaluate(tmp_path / "full", {"exclude_seen": False, "confidence": 0.9})
    assert seen["test"] != full["test"]
    assert {"ndcg@5", "hit@1"} <= set(seen["test_intervals"]) <= set(seen["test"])


def test_a_refit_run_is_ranked_on_the_test_alone(random_data: Path, tmp_path: Path) -> None:
    keys = {"eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}, "refit": True}
    keys["metrics"] = ["NDCG", "AveragePopularity"]
    result = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **keys))
    again = evaluate(tmp_path / "run")
    assert again["test"] == result["test"]
    assert "valid" not in again


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"learning_rate": 0.1}, "learning_rate: not a setting of the ranking"),
        ({"eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}}}, "only the mode of a finished run can change"),
        ({"eval_args": {"mode": "some"}}, "eval_args mode 'some' is not offered"),
    ],
)
def test_what_changes_more_than_the_ranking_is_refused(
    keys: dict, message: str, random_data: Path, tmp_path: Path
) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))
    with pytest.raises(ConfigError, match=message):
        evaluate(tmp_path / "run", keys)


def test_command_line(random_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))
    assert main(["evaluate", str(tmp_path / "run"), "--eval_args={mode: uni9}"]) == 0
    assert "evaluation_uni9.json" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "nothing")]) == 1
    assert "holds no run" in capsys.readouterr().err
    run("Pop", "random", config_dict=settings(random_data, tmp_path / "pop"))
    assert main(["evaluate", str(tmp_path / "pop")]) == 1
    assert "only models of this package" in capsys.readouterr().err
