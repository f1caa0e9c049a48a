"""What the files of a third-party model define: its keys, defaults and names."""

import logging
import shutil
from pathlib import Path

import pytest

from recbole_hyper import cli
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError
from tests.host.conftest import keys
from tests.raising import refused


def test_its_files_and_keys_are_known(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "models", "--plugins=gated_average.py,weighted_pool.py"]) == 0
    shown = capsys.readouterr().out
    assert "Averages the history behind a gate" in shown
    assert "PooledBase" in shown  # of the file beside
    assert cli.main(["keys", "WeightedPool", "--plugins=weighted_pool.py"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    # of the file beside too, with the default of WeightedPool.yaml
    assert "0.1" in rows["session_dropout"]
    assert "WeightedPool.yaml" in rows["sharpness"]
    assert not {"device", "MODEL_TYPE", "ENTITY_ID_FIELD", "double_tower"} & rows.keys()
    assert cli.main(["keys", "GatedAverage", "--plugins=gated_average.py"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {"mix_alpha", "mix_mode", "epochs"} <= rows.keys()
    assert not {"logger_name", "from_scratch"} & rows.keys()


def test_one_warning_for_each_thing_in_its_yaml(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            Config("GatedAverage", "d", config_dict=keys(place, "GatedAverage"))
            Config("WeightedPool", "d", config_dict=keys(place, "WeightedPool"))
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "the key 'n_heads' is given twice; the last value counts",
        "nothing reads logger_name, from_scratch",
        "neg_sampling is from an earlier release of RecBole: train_neg_sample_args=None",
    ]


def test_a_model_without_its_yaml_says_which_key_it_needs(tmp_path: Path) -> None:
    imported = "from recbole.model.abstract_recommender import SequentialRecommender"
    (tmp_path / "alone.py").write_text(f"{imported}\n\n\nclass Alone(SequentialRecommender):\n    pass\n")
    with refused(ConfigError, "loss_type", "input_type"):
        Config("Alone", "ml-100k", config_dict={"plugins": [str(tmp_path / "alone.py")]})
    (tmp_path / "typed.py").write_text(f"{imported}\n\n\nclass Typed(SequentialRecommender):\n    type = 'general'\n")
    for plugins, text in (([str(tmp_path / "typed.py")], "Typed.type='general'"), (5.5, "plugins: 5.5")):
        with refused(ConfigError, text):
            Config("Alone", "ml-100k", config_dict={"plugins": plugins})


def test_folders_with_files_of_one_name_do_not_meet(place: Path) -> None:
    other = place / "other"
    other.mkdir()
    (other / "pooled_base.py").write_text((place / "models" / "gated_average.py").read_text())
    (other / "mine.py").write_text("from pooled_base import GatedAverage\n\n\nclass Mine(GatedAverage):\n    pass\n")
    shutil.copy(place / "models" / "GatedAverage.yaml", other)
    files = ["weighted_pool.py", str(other / "mine.py")]
    for model in ("WeightedPool", "Mine"):
        assert Config(model, "d", config_dict=keys(place, model, plugins=files)).model_class.__name__ == model
    # and a name that two files have is not guessed
    with refused(ConfigError, "GatedAverage"):
        Config("GatedAverage", "d", config_dict=keys(place, "x", plugins=["gated_average.py", str(other / "mine.py")]))
