"""RecBole's Config for models of this package: the same keys and checks as a run's."""

from pathlib import Path
from typing import Any

import pytest
from recbole.config import Config
from recbole.quick_start import run_recbole
from recbole.utils import ModelType

import recbole_hyper
from recbole_hyper import registry
from recbole_hyper.errors import ConfigError
from tests.hosted.conftest import ours
from tests.raising import refused


def test_config(settings: dict[str, Any]) -> None:
    config = Config(model="HSASRecCE", dataset="random", config_dict=settings)
    assert isinstance(config, Config)
    assert config["MODEL_TYPE"] == ModelType.SEQUENTIAL
    assert config["geometry"] == "poincare"
    assert config["hidden_size"] == settings["hidden_size"]
    assert "poincare" in str(config)
    with refused(ConfigError, "'learning_rat'", "learning_rate"):
        Config("HSASRecCE", "random", config_dict={**settings, "learning_rat": 1})


def test_config_of_a_file_and_of_a_class(settings: dict[str, Any]) -> None:
    Path("first.yaml").write_text("model: BPR\n")
    Path("second.yaml").write_text("model: SASRecCE\nhidden_size: 24\n")
    config = Config(dataset="random", config_file_list=["first.yaml", "second.yaml"], config_dict=dict(settings))
    assert (config["model"], config["hidden_size"]) == ("SASRecCE", settings["hidden_size"])
    stock = Config(dataset="random", config_file_list=["second.yaml", "first.yaml"], config_dict=dict(settings))
    assert type(stock) is Config
    assert Config(recbole_hyper.SASRecCE, "random", config_dict=settings).model_class is recbole_hyper.SASRecCE


def test_the_command_line_wins(settings, monkeypatch, caplog) -> None:
    words = ["--model=SASRecCE", "--epochs=7", "--eval_args={mode: full}", "--config_files=a.yaml", "--note=x", "word"]
    monkeypatch.setattr("sys.argv", ["run_recbole.py", *words])
    config = Config(dataset="random", config_dict={**settings, "model": "BPR", "epochs": 3})
    assert (config["model"], config["epochs"], config["eval_args"]["mode"]["test"]) == ("SASRecCE", 7, "full")
    assert "--note on the command line is not a key" in caplog.text
    assert "'word' on the command line" in caplog.text
    assert "config_files" not in caplog.text
    monkeypatch.setattr("sys.argv", ["run_recbole.py", "--epochs=7", "--epochs=8"])
    with refused(ConfigError, "epochs", "twice"):
        Config("SASRecCE", "random", config_dict=settings)


@pytest.mark.parametrize(("key", "value"), [("refit", True), ("resume", True)])
def test_keys_that_only_a_run_supports_are_refused(key: str, value: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value} does not work with RecBole's own functions"):
        Config("SASRecCE", "random", config_dict={**settings, key: value})


def test_keys_for_files_of_a_run_give_a_warning(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    Config("SASRecCE", "random", config_dict={**settings, "output_dir": "x", "checkpoint_dir": "y"})
    assert "does not read output_dir" in caplog.text
    assert "checkpoint_dir:" not in caplog.text


def test_a_class_that_recbole_would_not_find_by_its_name(settings, monkeypatch) -> None:
    monkeypatch.setitem(registry._registry, "models", dict(registry._registry["models"]))
    with refused(ConfigError, "'Pop'"):
        Config(recbole_hyper.Pop, "random", config_dict=settings)

    class OwnSASRec(recbole_hyper.SASRecCE):
        """A user's own."""

    result = run_recbole(model=OwnSASRec, dataset="random", config_dict=dict(settings))
    assert dict(result["test_result"]) == ours("SASRecCE", settings)["test"]
