"""Determinism, checkpoints, resume after every kind of stop, and the NaN guard."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.training import validation
from recbole_hyper.training.checkpoint import CheckpointError, load_state
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.progress import DivergedError, Training
from recbole_hyper.training.validation import Evaluation
from recbole_hyper.types import Ranks
from tests.conftest import LEARN, SMALL


def settings(path: Path, out: Path, **keys: object) -> dict:
    return {**SMALL, "data_path": str(path), "epochs": 6, "output_dir": str(out), **keys}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(str(folder / "model.safetensors"))


def same(one: Path, two: Path) -> bool:
    first, second = weights(one), weights(two)
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_seed_gives_the_same_numbers(random_data: Path, tmp_path: Path) -> None:
    results = [
        run("SASRecBCE", "random", config_dict=settings(random_data, tmp_path / name, seed=seed))
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    ]
    assert results[0]["test"] == results[1]["test"]
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("model", ["SASRecBCE", "HSASRecCE"])
def test_resume_equals_an_uninterrupted_run(
    model: str, random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(model, "random", config_dict=settings(random_data, tmp_path / "whole"))
    original = Loop.train_epoch

    def interrupted(self: Loop, *arguments: object) -> None:
        if len(self.history) == 3:
            raise KeyboardInterrupt
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(model, "random", config_dict=settings(random_data, tmp_path / "parts"))
    monkeypatch.undo()
    parts = run(model, "random", config_dict=settings(random_data, tmp_path / "parts", resume=True))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert parts["test"] == whole["test"]
    assert parts["epochs"] == whole["epochs"] == 6


@pytest.mark.parametrize("model", ["SASRecCE", "BPR"])
@pytest.mark.parametrize("part", ["", "refit"])
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


@pytest.mark.parametrize("more", [{}, {"lr_plateau": {"factor": 0.5, "patience": 0}}, {"lr_schedule": "cosine"}])
def test_a_run_goes_on_past_its_early_stop(more: dict, random_data: Path, tmp_path: Path) -> None:
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


def test_validation_is_ranked_once_an_epoch(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the best epoch was selected by is what the result has; a run that only reads it again ranks it again."""
    ranked: list[str] = []
    original = validation._ranked

    def counted(model: object, config: Config, evaluation: Evaluation, show_progress: bool) -> Ranks:
        ranked.append(evaluation.name)
        return original(model, config, evaluation, show_progress)

    monkeypatch.setattr(validation, "_ranked", counted)
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


def test_plateau_lowers_the_rate_and_survives_a_resume(random_data: Path, tmp_path: Path) -> None:
    keys = {"lr_plateau": {"factor": 0.5, "patience": 0}, "stopping_step": 20, "learning_rate": 0.02}
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys, epochs=12))
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=7))
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=12, resume=True))
    states = [load_state(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts")]
    rates = [state["optimizer"]["param_groups"][0]["lr"] for state in states]
    assert rates[0] == rates[1] < 0.02
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_a_refit_lowers_the_rate_where_the_selection_did(cycle: Path, tmp_path: Path) -> None:
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


def test_a_refit_trains_as_long_as_the_best_epoch_took(random_data: Path, tmp_path: Path) -> None:
    keys = {"learning_rate": 0.05, "epochs": 6, "stopping_step": 20, "refit": True}
    result = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **keys))
    selected, refit = (pd.read_csv(tmp_path / "run" / name / "train.csv") for name in (".", "refit"))
    scores = selected["valid_ndcg@10"].tolist()
    assert result["best_epoch"] == max(epoch for epoch, score in enumerate(scores) if score == max(scores))
    assert len(refit) == result["refit_epochs"] == result["best_epoch"] + 1 < len(selected) == 6


@pytest.mark.parametrize(("learner", "rate"), [("riemannian_adam", 0.02), ("riemannian_sgd", 0.5)])
def test_riemannian_learners_learn_inside_the_ball(learner: str, rate: float, walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run"), "learner": learner}
    result = run("HGRU4Rec", "walk", config_dict={**keys, "learning_rate": rate, "curvature": 0.5})
    assert result["test"]["hit@1"] > 0.7
    model = load(tmp_path / "run").model
    norms = model.encoder.gru.bias_l0.detach().norm(dim=-1)
    assert 0 < norms.max() < 0.5**-0.5  # moved, and still points of the ball


def test_riemannian_resume_gives_the_weights_of_an_uninterrupted_run(random_data: Path, tmp_path: Path) -> None:
    keys = {"learner": "riemannian_adam", "learning_rate": 0.01, "hidden_size": 8, "stopping_step": 20}
    whole = run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "whole", **keys, epochs=6))
    run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=3))
    keys["resume"] = True
    parts = run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=6))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert parts["test"] == whole["test"]


@pytest.mark.parametrize("model", ["Pop", "EASER", "PureSVDN", "SASRecCE", "BPR", "GRU4Rec"])
@pytest.mark.parametrize("eval_step", [2, 7])
def test_the_last_epoch_is_validated(eval_step: int, model: str, random_data: Path, tmp_path: Path) -> None:
    reported: list[tuple[int, float]] = []
    own = {"rank": 4} if model == "PureSVDN" else {}
    result = run(
        model,
        "random",
        config_dict=settings(random_data, tmp_path / "run", epochs=3, eval_step=eval_step, **own),
        on_validation=lambda epoch, score: reported.append((epoch, score)),
    )
    scores = pd.read_csv(tmp_path / "run" / "train.csv")["valid_ndcg@10"].dropna()
    last = result["epochs"] - 1
    assert scores.index.tolist() == [epoch for epoch in range(last) if (epoch + 1) % eval_step == 0] + [last]
    assert reported == [(epoch, pytest.approx(score)) for epoch, score in scores.items()]
    assert result["best_epoch"] == max(epoch for epoch, score in scores.items() if score == scores.max())
    assert result["best_valid_score"] == pytest.approx(scores.max(), abs=1e-6)


def scored(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Let every validation find the score that ``scores`` holds for its epoch."""
    validate = Loop._validate

    def given(self: Loop, *arguments: Any) -> object:
        _, result = validate(self, *arguments)
        row = self.history[-1]
        row["valid_ndcg@10"] = scores[row["epoch"]]
        return scores[row["epoch"]], {**result, "ndcg@10": scores[row["epoch"]]}

    monkeypatch.setattr(Loop, "_validate", given)


@pytest.mark.parametrize(
    ("scores", "short", "long"),
    [
        # validated are 1, 3 and so on; the last of a run of five epochs is 4
        ([0, 0.5, 0, 0.4, 0.9, 0.3, 0, 0.2], 4, 1),
        ([0, 0.5, 0, 0.4, 0.9, 0.3, 0, 0.6], 4, 7),
        ([0, 0.5, 0, 0.4, 0.1, 0.3, 0, 0.2], 1, 1),
    ],
)
def test_the_validation_of_a_last_epoch_is_forgotten_by_a_run_that_goes_on(
    scores: list[float], short: int, long: int, random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(monkeypatch, scores)
    keys = {"eval_step": 2, "stopping_step": 3, "lr_plateau": {"factor": 0.5, "patience": 1}, "learning_rate": 0.02}
    keys |= {"refit": True, "eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}}
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    first = run("SASRecCE", "random", config_dict=settings(random_data, parts, **keys, epochs=5))
    tested = weights(parts)
    # what is finished stays as it is
    again = run("SASRecCE", "random", config_dict=settings(random_data, parts, **keys, epochs=5, resume=True))
    assert [again[key] for key in ("valid", "test")] == [first[key] for key in ("valid", "test")]
    assert all(torch.equal(tested[name], tensor) for name, tensor in weights(parts).items())
    last = run("SASRecCE", "random", config_dict=settings(random_data, parts, **keys, epochs=8, resume=True))
    expected = run("SASRecCE", "random", config_dict=settings(random_data, whole, **keys, epochs=8))
    assert (first["best_epoch"], last["best_epoch"], expected["best_epoch"]) == (short, long, long)
    assert [last[key] for key in ("valid", "test", "refit_epochs")] == [
        expected[key] for key in ("valid", "test", "refit_epochs")
    ]
    assert same(parts, whole)
    assert same(parts / "refit", whole / "refit")
    states = [load_state(folder / "checkpoint.pt") for folder in (parts, whole)]
    assert states[0]["scheduler"] == states[1]["scheduler"]
    assert [row.get("valid_ndcg@10") for row in states[0]["history"]] == [
        row.get("valid_ndcg@10") for row in states[1]["history"]
    ]
    assert all(torch.equal(states[0]["model"][name], tensor) for name, tensor in states[1]["model"].items())


def test_a_resumed_model_of_recbole_tests_its_best_epoch(random_data: Path, tmp_path: Path) -> None:
    """LightGCN ranks with vectors that are no parameters; here its first epochs are the best."""
    keys = {"learning_rate": 0.3, "stopping_step": 20, "embedding_size": 8}
    whole = run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    assert whole["best_epoch"] < 3
    run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=4))
    parts = run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, resume=True))
    assert (parts["valid"], parts["test"]) == (whole["valid"], whole["test"])


def test_a_model_that_cannot_be_continued_exactly_says_so(random_data: Path, tmp_path: Path) -> None:
    run("DiffRec", "random", config_dict=settings(random_data, tmp_path / "out", epochs=1))
    with pytest.raises(CheckpointError, match="DiffRec cannot be resumed exactly"):
        run("DiffRec", "random", config_dict=settings(random_data, tmp_path / "out", epochs=2, resume=True))


def test_weights_of_other_data_are_refused(random_data: Path, tmp_path: Path) -> None:
    """The same rows in another order give every item another number."""
    keys = settings(random_data, tmp_path / "out", epochs=1)
    result = run("SASRecCE", "random", config_dict=keys)
    file = random_data / "random" / "random.inter"
    header, *rows = file.read_text().splitlines(keepends=True)
    file.write_text(header + "".join(reversed(rows)))
    with pytest.raises(CheckpointError, match="trained on other data"):
        evaluate(tmp_path / "out", {"data_path": str(random_data)})
    with pytest.raises(CheckpointError, match="trained on other data"):
        run("SASRecCE", "random", config_dict={**keys, "epochs": 3, "resume": True})
    # the folder has the data that it was trained on, also after a resume was refused
    assert len(load(tmp_path / "out").recommend(users=["u1"], k=3)) == 3
    assert evaluate(tmp_path / "out")["test"] == result["test"]
    file.write_text(header + "".join(rows))
    assert len(load(tmp_path / "out").recommend(users=["u1"], k=3)) == 3
    with pytest.raises(ValueError, match="is one text"):
        load(tmp_path / "out").recommend(users="u1")


def test_a_resumed_run_knows_where_its_curvature_came_from(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = settings(random_data, tmp_path / "out", epochs=1, curvature="auto")
    first = run("HSASRecCE", "random", config_dict=keys)
    del keys["curvature"]
    again = run("HSASRecCE", "random", config_dict={**keys, "epochs": 2, "resume": True})
    for key in ("curvature", "curvature_origin", "curvature_interval", "curvature_verdict"):
        assert again[key] == first[key]
    assert first["curvature_origin"] == "estimated from the training data"


def test_a_curvature_to_be_estimated_for_what_is_flat_and_what_is_not(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = {"epochs": 1, "curvature": "auto", "geometry": "euclidean"}
    flat = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "flat", **keys))
    assert "curvature_origin" not in flat
    gru = run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "gru", **keys))
    assert gru["curvature_origin"] == "estimated from the training data"


def test_what_is_asked_of_a_run_is_checked_before_it_is_trained(random_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="topk=5000: the data has only 50 items"):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "out", topk=[10, 5000]))
    with pytest.raises(ConfigError, match="has no run to resume"):
        run(config_dict={"resume": True, "output_dir": str(tmp_path / "typo")})
    assert not (tmp_path / "typo").exists()


def test_a_finished_run_is_not_written_over(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    before = (tmp_path / "run" / "result.json").read_bytes()
    with pytest.raises(ValueError, match="already has a run"):
        run("SASRecCE", "random", config_dict=keys)
    with pytest.raises(ValueError, match=r"cannot be resumed with another configuration .*learning_rate"):
        run("SASRecCE", "random", config_dict={**keys, "resume": True, "learning_rate": 0.5})
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_a_run_from_before_a_key_existed_goes_on(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    file = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert content.pop("reuse_item_embeddings") is True
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"another configuration \(reuse_item_embeddings: True before, False now\)"):
        run("SASRecCE", "random", config_dict={**keys, "resume": True, "reuse_item_embeddings": False})
    assert run("SASRecCE", "random", config_dict={**keys, "resume": True, "epochs": 2})["epochs"] == 2


def test_checkpoints_hold_no_pickled_objects(random_data: Path, tmp_path: Path) -> None:
    run("HSASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=1))
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert {"model", "optimizer", "epoch", "random"} <= set(state)


def test_a_damaged_checkpoint_is_named(random_data: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return os.system, ("touch " + str(tmp_path / "evil"),)

    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=1))
    path = tmp_path / "run" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt cannot be read"):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=2, resume=True))
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_state(path)
    assert not (tmp_path / "evil").exists()


def test_a_loss_that_is_not_finite_names_the_step(random_data: Path, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"loss is (nan|inf) at epoch \d+, step \d+; lower learning_rate"):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", learning_rate=1e38, epochs=9))


def test_a_good_state_is_promised_only_where_there_is_one(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, steps = Loop.require_finite, [0]

    def broken(self: Loop, loss: float, step: int) -> None:
        steps[0] -= 1
        check(self, float("nan") if steps[0] == 0 else loss, step)

    monkeypatch.setattr(Loop, "require_finite", broken)
    for first, message in ((1, "No checkpoint was saved before$"), (60, r"The last good state is in .*run60$")):
        steps[0] = first
        keys = settings(random_data, tmp_path / f"run{first}", epochs=30)
        with pytest.raises(DivergedError, match=message):
            run("SASRecCE", "random", config_dict=keys)


def test_a_refit_that_fails_leaves_the_epochs_of_the_configuration(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []
    train = Loop.train_epoch

    def failing(self: Loop, *arguments: Any) -> None:
        if self.output_dir.name == "refit":
            bound.append(self.config)
            raise MemoryError
        train(self, *arguments)

    monkeypatch.setattr(Loop, "train_epoch", failing)
    keys = settings(
        random_data, tmp_path / "run", refit=True, eval_args={"split": {"GT": {"valid": 0.7, "test": 0.85}}}
    )
    with pytest.raises(MemoryError):
        run("SASRecCE", "random", config_dict=keys)
    assert bound[0]["epochs"] == 6


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
