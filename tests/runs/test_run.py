"""A run from its keys to result.json: equal seeds, checks before training, refits, the content of the result."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.training import progress
from recbole_hyper.training.checkpoint import CheckpointError
from recbole_hyper.training.validation import Evaluation
from recbole_hyper.types import Ranks
from tests.raising import refused
from tests.training.common import same, settings


def test_the_same_seed_gives_the_same_numbers(random_data: Path, tmp_path: Path) -> None:
    results = [
        run("SASRecBCE", "random", config_dict=settings(random_data, tmp_path / name, seed=seed))
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    ]
    assert results[0]["test"] == results[1]["test"]
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_validation_is_ranked_once_an_epoch(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the best epoch was selected by is what the result has; a run that only reads it again ranks it again."""
    ranked: list[str] = []
    original = progress.rank

    def counted(score: object, settings: object, evaluation: Evaluation, *more: bool) -> Ranks:
        ranked.append(evaluation.name)
        return original(score, settings, evaluation, *more)

    monkeypatch.setattr(progress, "rank", counted)
    keys = {"epochs": 4, "eval_step": 2, "learning_rate": 0.02, "confidence": 0.95, "save_cases": True}
    first = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "out", **keys))
    assert ranked == ["valid", "valid", "test"]
    cases = pd.read_parquet(tmp_path / "out" / "cases_valid.parquet")
    ranked.clear()
    again = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "out", **keys, resume=True))
    assert ranked == ["valid", "test"]
    assert {name: first[name] for name in ("valid", "valid_intervals", "test")} == {
        name: again[name] for name in ("valid", "valid_intervals", "test")
    }
    pd.testing.assert_frame_equal(cases, pd.read_parquet(tmp_path / "out" / "cases_valid.parquet"))


def test_a_refit_trains_as_long_as_the_best_epoch_took(random_data: Path, tmp_path: Path) -> None:
    keys = {"learning_rate": 0.05, "epochs": 6, "stopping_step": 20, "refit": True}
    result = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **keys))
    selected, refit = (pd.read_csv(tmp_path / "run" / name / "train.csv") for name in (".", "refit"))
    scores = selected["valid_ndcg@10"].tolist()
    assert result["best_epoch"] == max(epoch for epoch, score in enumerate(scores) if score == max(scores))
    assert len(refit) == result["refit_epochs"] == result["best_epoch"] + 1 < len(selected) == 6


def test_weights_of_other_data_are_refused(random_data: Path, tmp_path: Path) -> None:
    """The same rows in another order give every item another number."""
    keys = settings(random_data, tmp_path / "out", epochs=1)
    result = run("SASRecCE", "random", config_dict=keys)
    file = random_data / "random" / "random.inter"
    header, *rows = file.read_text().splitlines(keepends=True)
    file.write_text(header + "".join(reversed(rows)))
    with refused(CheckpointError, "trained", "other"):
        evaluate(tmp_path / "out", {"data_path": str(random_data)})
    with refused(CheckpointError, "trained", "other"):
        run("SASRecCE", "random", config_dict={**keys, "epochs": 3, "resume": True})
    # the folder has the data that it was trained on, also after a resume was refused
    assert len(load(tmp_path / "out").recommend(users=["u1"], k=3)) == 3
    assert evaluate(tmp_path / "out")["test"] == result["test"]
    file.write_text(header + "".join(rows))
    assert len(load(tmp_path / "out").recommend(users=["u1"], k=3)) == 3
    with refused(ValueError, "single", "string"):
        load(tmp_path / "out").recommend(users="u1")


def test_a_run_is_checked_before_training(random_data: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "typo has no run"):
        run(config_dict={"resume": True, "output_dir": str(tmp_path / "typo")})
    assert not (tmp_path / "typo").exists()


def test_a_finished_run_is_not_overwritten(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    before = (tmp_path / "run" / "result.json").read_bytes()
    with refused(ValueError, "already"):
        run("SASRecCE", "random", config_dict=keys)
    with refused(ValueError, "learning_rate"):
        run("SASRecCE", "random", config_dict={**keys, "resume": True, "learning_rate": 0.5})
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_a_run_older_than_a_key_resumes(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    file = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert content.pop("reuse_item_embeddings") is True
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with refused(ValueError, "reuse_item_embeddings"):
        run("SASRecCE", "random", config_dict={**keys, "resume": True, "reuse_item_embeddings": False})
    assert run("SASRecCE", "random", config_dict={**keys, "resume": True, "epochs": 2})["epochs"] == 2


def test_result_file_is_complete(random_data: Path, tmp_path: Path) -> None:
    run("HSASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=1, confidence=None))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    wanted = {"model", "dataset", "protocol", "seed", "best_epoch", "epochs", "valid", "test", "seconds", "parameters",
              "peak_memory_bytes", "n_users", "n_items", "n_interactions", "n_test_cases", "data_fingerprint",
              "versions", "exclude_seen", "commit", "config", "curvature"}  # fmt: skip
    assert wanted <= set(result)
    assert {"load", "train", "valid", "test"} <= set(result["seconds"])
    assert result["n_users"] == 40
    assert result["peak_memory_bytes"] > 2**20


def test_exclude_seen_changes_the_ranking(random_data: Path, tmp_path: Path) -> None:
    results = [
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / str(flag), epochs=3, exclude_seen=flag))
        for flag in (True, False)
    ]
    assert results[0]["test"]["hit@10"] >= results[1]["test"]["hit@10"]
    assert results[0]["test"] != results[1]["test"]


@pytest.mark.parametrize(("model", "resumes"), [("RecVAE", False), ("SASRecCE", True)])
def test_only_a_model_that_can_be_resumed_is_advised_to_resume(model, resumes, random_data, tmp_path) -> None:
    run(model, "random", config_dict=settings(random_data, tmp_path / "run", epochs=1))
    (said,) = [line for line in (tmp_path / "run" / "run.log").read_text().splitlines() if "train longer" in line]
    assert said.endswith("--epochs=2")
    assert ("--resume=True" in said) == resumes
