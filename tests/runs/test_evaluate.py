"""A finished run ranked again gives what a run with these settings would have given."""

import json
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.evaluate import evaluate
from tests.conftest import small
from tests.raising import refused

settings = partial(small, epochs=1)


@pytest.fixture(scope="module")
def finished(random_data_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, into which evaluations write."""
    folder = tmp_path_factory.mktemp("finished") / "my run"
    run("SASRecCE", "random", config_dict=settings(random_data_once, folder))
    return folder


def test_the_same_settings_give_the_same_metrics(random_data: Path, tmp_path: Path) -> None:
    result = run("HSASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))
    files = [tmp_path / "run" / name for name in ("result.json", "cases_test.parquet", "config.yaml")]
    before = [file.read_bytes() for file in files]
    again = evaluate(tmp_path / "run")
    assert (again["valid"], again["test"]) == (result["valid"], result["test"])
    assert [file.read_bytes() for file in files] == before


def test_an_evaluation_equals_a_run_with_its_settings(random_data: Path, tmp_path: Path) -> None:
    full = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "full"))
    keys = {"eval_args": {"mode": "uni9"}, "metrics": ["MRR"], "topk": [5], "valid_metric": "MRR@5"}
    drawn = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "drawn", **keys))
    again = evaluate(tmp_path / "full", {"eval_args": "{mode: uni9}", "metrics": ["MRR"], "topk": [5]})
    assert again["test"] == drawn["test"] != full["test"]
    (file,) = (tmp_path / "full").glob("evaluation_uni9-*.json")
    assert json.loads(file.read_text())["test"] == drawn["test"]
    ranked = evaluate(tmp_path / "full", {"metrics": ["GAUC"]})  # a metric without cut-off
    assert list(ranked["test"]) == ["gauc"]
    seen = evaluate(tmp_path / "full", {"exclude_seen": False, "confidence": 0.9})
    assert evaluate(tmp_path / "full", {"repeatable": True})["test"] == seen["test"]  # RecBole's key for the same
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
        ({"learning_rate": 0.1}, "learning_rate: cannot change in the evaluation"),
        ({"eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}}}, "only the mode of a finished run can change"),
        ({"eval_args": {"mode": "some"}}, "eval_args mode='some'"),
        ({"metrics": ["Foo"]}, "metric 'Foo' is unknown"),
        ({"metrics": None}, "metrics=None"),
        ({"topk": []}, "topk=[]"),
    ],
)
def test_invalid_settings_of_a_ranking_are_refused(keys: dict, message: str, finished: Path) -> None:
    with refused(ConfigError, message):
        evaluate(finished, keys)


def test_every_ranking_has_its_file_and_its_origin(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    result = json.loads((finished / "result.json").read_text())
    rankings = [{}, {"topk": [3]}, {"topk": [5]}, {"exclude_seen": False}, {"eval_args": {"mode": "uni9"}}]
    rankings.append({"exclude_seen": False, "eval_args": {"mode": "uni9"}})
    for keys in [*rankings, {}]:  # the last is the first
        evaluate(tmp_path / "run", keys)
    files = {file.name: json.loads(file.read_text()) for file in (tmp_path / "run").glob("evaluation_*.json")}
    assert len(files) == len(rankings)
    assert sum(name.startswith("evaluation_uni9-") for name in files) == 2
    for content in files.values():
        same = ("protocol", "seed", "data_fingerprint", "n_valid_cases", "n_test_cases", "versions", "commit")
        assert {key: content[key] for key in same} == {key: result[key] for key in same}
        assert content["config"]["topk"] == content["changes"].get("topk", [1, 5, 10])


def test_a_run_without_a_result_is_not_finished(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with refused(ConfigError, "--resume=True", "--output_dir="):
        evaluate(tmp_path / "run")


def test_the_order_of_keys_and_run_does_not_matter(finished: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["evaluate", "--eval_args={mode: uni9}", str(finished)]) == 0
    assert main(["evaluate", "--eval_args", "{mode: uni7}", "--traceback", str(finished)]) == 0
    out = capsys.readouterr().out
    assert "evaluation_uni9-" in out
    assert "evaluation_uni7-" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["DIR", "stray", "--topk=[5]"], "'stray' is not of the form --key=value (in a list write commas"),
        (["DIR", "stray", "--topk"], "'stray' is not of the form --key=value"),
        (["--topk", "--seed=3", "DIR"], "--topk needs a value"),
        (["--topk=[5]", "DIR", "--topk=[6]"], "--topk is given twice"),
        (["--topk=[5]"], "the following arguments are required: run"),
    ],
)
def test_bad_commands(words: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", *words])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_files_of_candidates_that_share_a_name_have_a_result_each(random_data: Path, tmp_path: Path) -> None:
    run("Pop", "random", config_dict={"data_path": str(random_data), "output_dir": str(tmp_path / "run")})
    cases = pd.read_parquet(tmp_path / "run" / "cases_test.parquet")
    targets = {*cases.item_id, *pd.read_parquet(tmp_path / "run" / "cases_valid.parquet").item_id}
    inter = pd.read_csv(random_data / "random" / "random.inter", sep="\t", dtype=str)
    others = sorted({*inter.iloc[:, 1]} - targets)
    assert len(others) >= 2
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        file = tmp_path / str(number) / "negatives.txt"
        file.write_text("".join(f"{user} {' '.join(others[:number])}\n" for user in cases.user_id))
        evaluate(tmp_path / "run", {"eval_args": {"mode": str(file)}})
    found = [json.loads(file.read_text()) for file in (tmp_path / "run").glob("evaluation_negatives-*.json")]
    assert sorted(one["eval_args"]["mode"]["test"] for one in found) == [
        str(tmp_path / name / "negatives.txt") for name in "12"
    ]


def test_times_are_printed_as_dates(folder: Path, tmp_path: Path) -> None:
    nothing = "no interaction after 1007 can be ranked: the table has nothing newer"
    for content, message in (("u1,i3,900", nothing), ("u1,gone,2000", "ranked: 1 new interactions with unknown items")):
        (tmp_path / "new.csv").write_text(f"user_id,item_id,timestamp\n{content}\n")
        with refused(ConfigError, message):
            evaluate(folder, data=tmp_path / "new.csv")


@pytest.mark.parametrize("model", ["EASER", "ItemKNN"])
def test_new_users_are_ranked_by_models_that_read_histories(model: str, random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5"}
    run(model, "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    new = pd.DataFrame(
        {"user_id": "new", "item_id": ["i1", "i2", "i3"], "timestamp": [1_600_000_000, 1_600_000_001, 1_600_000_002]}
    )
    counts = evaluate(tmp_path / "run", data=new)["protocol_counts"]
    assert counts["cases of new users"] == counts["test cases"] == 2
    assert counts["new interactions of users that the model did not learn, not ranked"] == 0
