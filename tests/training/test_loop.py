"""The training loop: a resume equals one uninterrupted run, the plateau, early stopping, and the NaN guard."""

from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import load, run
from recbole_hyper.training.checkpoint import load_state
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.progress import DivergedError
from tests.conftest import LEARN
from tests.raising import refused
from tests.training.common import same, settings

COSINE = {"lr_schedule": "cosine", "warmup_ratio": 0.25, "learning_rate": 0.02, "stopping_step": 20}


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("SASRecBCE", {}),
        ("SASRecCE", COSINE),
        ("HGRU4Rec", {"learner": "riemannian_adam", "hidden_size": 8, "MAX_ITEM_LIST_LENGTH": 4, "stopping_step": 20}),
    ],
)
def test_resume_equals_an_uninterrupted_run(model, keys, random_data, tmp_path, monkeypatch) -> None:
    whole = run(model, "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    original = Loop.train_epoch

    def interrupted(self: Loop, *arguments: object) -> None:
        if len(self.history) == 3:
            raise KeyboardInterrupt
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(model, "random", config_dict=settings(random_data, tmp_path / "parts", **keys))
    monkeypatch.undo()
    parts = run(model, "random", config_dict=settings(random_data, tmp_path / "parts", **keys, resume=True))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert parts["test"] == whole["test"]
    assert parts["epochs"] == whole["epochs"] == 6
    if keys == COSINE:
        rates = pd.read_csv(tmp_path / "parts" / "train.csv")["learning_rate"]
        assert rates.idxmax() == 1
        assert rates.iloc[-1] < 0.002
        assert load_state(tmp_path / "parts" / "checkpoint.pt")["optimizer"]["param_groups"][0]["initial_lr"] == 0.02


@pytest.mark.parametrize("more", [{"lr_plateau": {"factor": 0.5, "patience": 0}}, {"lr_schedule": "cosine"}])
def test_a_run_with_more_patience_continues_past_its_early_stop(more: dict, random_data: Path, tmp_path: Path) -> None:
    split = {"split": {"GT": {"valid": 0.7, "test": 0.85}}}
    keys = {"learning_rate": 0.05, "epochs": 16, "eval_args": split, "refit": True, "seed": 1, **more}
    whole = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys, stopping_step=4))
    short = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, stopping_step=0))
    longer = {**keys, "stopping_step": 4, "resume": True}
    parts = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **longer))
    assert short["epochs"] < parts["epochs"] == whole["epochs"]
    assert short["best_epoch"] < parts["best_epoch"] == whole["best_epoch"]
    assert parts["valid"] == whole["valid"]
    assert parts["test"] == whole["test"]
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert same(tmp_path / "whole" / "refit", tmp_path / "parts" / "refit")


def test_plateau_lowers_the_rate_and_survives_a_resume(random_data: Path, tmp_path: Path) -> None:
    keys = {"lr_plateau": {"factor": 0.5, "patience": 0}, "stopping_step": 20, "learning_rate": 0.02}
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys, epochs=12))
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=7))
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=12, resume=True))
    states = [load_state(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts")]
    rates = [state["optimizer"]["param_groups"][0]["lr"] for state in states]
    assert rates[0] == rates[1] < 0.02
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_a_refit_lowers_the_rate_in_the_same_epochs(cycle: Path, tmp_path: Path) -> None:
    keys = {"lr_plateau": {"factor": 0.5, "patience": 0}, "learning_rate": 0.02, "epochs": 8, "exclude_seen": False}
    first = run("SASRecCE", "cycle", config_dict=settings(cycle, tmp_path / "later", **keys))
    keys["refit"] = True
    later = run("SASRecCE", "cycle", config_dict=settings(cycle, tmp_path / "later", **keys, resume=True))
    at_once = run("SASRecCE", "cycle", config_dict=settings(cycle, tmp_path / "at_once", **keys))
    assert later["valid"] == at_once["valid"] == first["valid"]
    assert later["test"] == at_once["test"]
    rates, chosen = (
        pd.read_csv(tmp_path / "later" / name / "train.csv")["learning_rate"].tolist() for name in ("refit", ".")
    )
    assert len(rates) == later["refit_epochs"] == later["best_epoch"] + 1
    assert rates == chosen[: len(rates)]
    assert rates[-1] < rates[0] == 0.02
    assert same(tmp_path / "later" / "refit", tmp_path / "at_once" / "refit")


@pytest.mark.parametrize(("learner", "rate"), [("riemannian_adam", 0.02), ("riemannian_sgd", 0.5)])
def test_riemannian_learners_learn_inside_the_ball(learner: str, rate: float, walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run"), "learner": learner}
    result = run("HGRU4Rec", "walk", config_dict={**keys, "learning_rate": rate, "curvature": 0.5})
    assert result["test"]["hit@1"] > 0.7
    model = load(tmp_path / "run").model
    norms = model.encoder.gru.bias_l0.detach().norm(dim=-1)
    assert 0 < norms.max() < 0.5**-0.5  # moved, and still points of the ball


def test_a_loss_that_is_not_finite_names_the_step(random_data: Path, tmp_path: Path) -> None:
    with refused(DivergedError, "at epoch ", "step ", "lower learning_rate"):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", learning_rate=1e38, epochs=9))


def test_early_stopping_keeps_the_best_epoch(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=60, stopping_step=2, learning_rate=0.01)
    result = run("SASRecCE", "random", config_dict=keys)
    rows = (tmp_path / "run" / "train.csv").read_text().splitlines()
    column = rows[0].split(",").index("valid_ndcg@10")
    scores = [float(row.split(",")[column]) for row in rows[1:]]
    assert result["epochs"] == len(scores) < 60
    assert result["best_valid_score"] == pytest.approx(max(scores), abs=1e-6)
    # RecBole takes the last of equals
    assert result["best_epoch"] == max(epoch for epoch, score in enumerate(scores) if score == max(scores))
