"""The files of a training: checkpoints, the validation of the last epoch, and resumes from both."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from recbole_hyper import run
from recbole_hyper.training.checkpoint import load_state
from recbole_hyper.training.progress import Training
from tests.training.common import same, settings


@pytest.mark.parametrize(("model", "part"), [("SASRecCE", ""), ("BPR", ""), ("SASRecCE", "refit")])
def test_a_checkpoint_is_written_between_two_validations_and_in_a_refit(
    model: str, part: str, random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"eval_step": 10, "refit": bool(part), "eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}}
    keys |= {"learning_rate": 0.001, "metrics": ["MRR"], "valid_metric": "MRR@10"}
    run(model, "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    noted = Training._note_epoch

    def stopped(self: Training, *arguments: Any) -> None:
        if len(self.history) == 3 and (not part or self.output_dir.name == part):
            raise KeyboardInterrupt
        noted(self, *arguments)

    monkeypatch.setattr(Training, "_note_epoch", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(model, "random", config_dict=settings(random_data, tmp_path / "parts", **keys))
    monkeypatch.undo()
    assert len(load_state(tmp_path / "parts" / part / "checkpoint.pt")["history"]) == 3
    result = run(config_dict={"output_dir": str(tmp_path / "parts"), "resume": True})
    assert same(tmp_path / "whole" / part, tmp_path / "parts" / part)
    seconds = pd.read_csv(tmp_path / "parts" / part / "train.csv").train_seconds
    assert len(seconds) > 3
    # those of the first part count too
    assert result["seconds"][part or "train"] == pytest.approx(seconds.sum())


@pytest.mark.parametrize(
    ("model", "eval_step"), [("EASER", 2), ("SASRecCE", 2), ("SASRecCE", 7), ("BPR", 2), ("BPR", 7)]
)
def test_the_last_epoch_is_validated(eval_step: int, model: str, random_data: Path, tmp_path: Path) -> None:
    reported: list[tuple[int, float]] = []
    result = run(
        model,
        "random",
        config_dict=settings(random_data, tmp_path / "run", epochs=3, eval_step=eval_step),
        on_validation=lambda epoch, score: reported.append((epoch, score)),
    )
    scores = pd.read_csv(tmp_path / "run" / "train.csv")["valid_ndcg@10"].dropna()
    last = result["epochs"] - 1
    assert scores.index.tolist() == [epoch for epoch in range(last) if (epoch + 1) % eval_step == 0] + [last]
    assert reported == [(epoch, pytest.approx(score)) for epoch, score in scores.items()]
    assert result["best_epoch"] == max(epoch for epoch, score in scores.items() if score == scores.max())
    assert result["best_valid_score"] == pytest.approx(scores.max(), abs=1e-6)


def test_a_run_killed_before_its_last_checkpoint_continues_with_more_epochs(random_data, tmp_path, monkeypatch) -> None:
    """Its weights are of an epoch that more epochs would not validate."""
    keys = {"epochs": 3, "eval_step": 2, "learning_rate": 0.001}
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    written = Training._write_state

    def stopped(self: Training) -> None:
        if len(self.history) == 3:
            raise KeyboardInterrupt
        written(self)

    monkeypatch.setattr(Training, "_write_state", stopped)
    with pytest.raises(KeyboardInterrupt):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys))
    monkeypatch.undo()
    for name in ("whole", "parts"):
        run(config_dict={"output_dir": str(tmp_path / name), "resume": True, "epochs": 4})
    assert same(tmp_path / "whole", tmp_path / "parts")
    columns = ["epoch", "train_loss", "valid_ndcg@10"]
    tables = [pd.read_csv(tmp_path / name / "train.csv")[columns] for name in ("whole", "parts")]
    pd.testing.assert_frame_equal(*tables)


def test_checkpoints_have_no_pickled_objects(random_data: Path, tmp_path: Path) -> None:
    run("HSASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=1))
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert {"model", "optimizer", "epoch", "random"} <= set(state)
