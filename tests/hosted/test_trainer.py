"""RecBole's trainer with models of this package: fit, evaluate and save."""

from pathlib import Path
from typing import Any

import pytest
from recbole.quick_start import load_data_and_model, run_recbole
from recbole.trainer import Trainer
from recbole.utils import get_model, init_seed

from recbole_hyper.errors import ConfigError
from tests.hosted.conftest import ours, prepared, trained
from tests.raising import refused


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

    config, train, _, _ = prepared("SASRecCE", settings, exclude_seen=False)
    trainer = MyTrainer(config, get_model("SASRecCE")(config, train.dataset))
    assert type(trainer) is MyTrainer
    trainer.fit(train)


def test_a_checkpoint_of_recbole_is_not_resumed(settings: dict[str, Any]) -> None:
    trainer, _, _ = trained("SASRecCE", settings)
    with refused(ConfigError, trainer.saved_model_file, "recbole_hyper.run"):
        trainer.resume_checkpoint(trainer.saved_model_file)


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
