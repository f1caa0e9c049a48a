"""RecBole's trainer with models of this package: fit, evaluate, save and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recbole.quick_start import load_data_and_model, run_recbole
from recbole.trainer import Trainer
from recbole.utils import get_model, get_trainer, init_seed

from tests.hosted.conftest import ours, prepared, trained


def test_trainer(settings: dict[str, Any]) -> None:
    seen: list[int] = []
    config, train, valid, test = prepared("SASRecCE", settings)
    init_seed(config["seed"], config["reproducibility"])
    trainer = Trainer(config, get_model("SASRecCE")(config, train.dataset))
    score, result = trainer.fit(train, valid, False, True, False, lambda epoch, score: seen.append(epoch))
    expected = ours("SASRecCE", settings)
    assert (score, dict(result)) == (expected["valid"]["ndcg@5"], expected["valid"])
    assert seen == [0, 1]
    assert Path(trainer.saved_model_file).parent.name == "saved"
    assert dict(trainer.evaluate(test, load_best_model=True)) == expected["test"]
    assert [file.name for file in Path("saved").iterdir()] == [Path(trainer.saved_model_file).name]


def test_saved_false_writes_no_checkpoint(settings: dict[str, Any]) -> None:
    result = run_recbole(model="SASRecCE", dataset="random", config_dict={**settings, "eval_step": 3}, saved=False)
    assert result["best_valid_result"]
    assert list(Path("saved").iterdir()) == []


def test_a_users_trainer_class_is_left_alone(settings: dict[str, Any]) -> None:
    class MyTrainer(Trainer):
        """Changes nothing."""

    config, train, _, test = prepared("SASRecCE", settings, exclude_seen=False)
    trainer = MyTrainer(config, get_model("SASRecCE")(config, train.dataset))
    assert type(trainer) is MyTrainer
    trainer.fit(train)
    found = trainer.evaluate(test._loader, load_best_model=False)
    again = Trainer(config, trainer.model).evaluate(test, load_best_model=False)
    # RecBole rounds to 4 places what this package rounds to 6, by another way
    assert found["ndcg@5"] == pytest.approx(again["ndcg@5"], abs=1e-6)


def test_resume_checkpoint(settings: dict[str, Any]) -> None:
    trainer, _, (score, _) = trained("SASRecCE", settings)
    config, train, valid, test = prepared("SASRecCE", settings, epochs=4)
    again = get_trainer(config["MODEL_TYPE"], config["model"])(config, get_model("SASRecCE")(config, train._dataset))
    again.resume_checkpoint(trainer.saved_model_file)
    assert again.start_epoch == trainer.best_epoch + 1
    assert again.best_valid_score == score
    assert again.fit(train, valid)[0] >= score
    assert [row["epoch"] for row in again.loop.history[again.start_epoch :]] == list(range(again.start_epoch, 4))
    assert again.evaluate(test)["ndcg@5"] >= 0


@pytest.mark.parametrize("model", ["HSASRecCE", "EASER"])
def test_load_data_and_model(model: str, settings: dict[str, Any]) -> None:
    trainer, test, _ = trained(model, settings, curvature="auto")
    expected = dict(trainer.evaluate(test))
    config, network, dataset, train, valid, loaded_test = load_data_and_model(trainer.saved_model_file)
    assert config["model"] == model
    assert config["curvature"] != "auto"
    assert (len(train), len(valid)) == (len(train), len(loaded_test))
    assert dataset.item_num == network.n_items
    assert dict(Trainer(config, network).evaluate(loaded_test, load_best_model=False)) == expected
