"""Values as RecBole's users write them: read, warned of, or refused in one line that names the key."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import plugin_files, registry
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.part_checks import blamed

GIVEN = {"interactions": "given"}


def of_file(text: str, folder: Path, model: str = "BPR", **keys: Any) -> Config:
    (folder / "mine.yaml").write_text(text)
    return Config(model, "x", [str(folder / "mine.yaml")], {**GIVEN, **keys})


def test_an_interval_may_be_a_list(tmp_path: Path) -> None:
    config = of_file("user_inter_num_interval: [5, 10]\n", tmp_path)
    assert config["user_inter_num_interval"] == "[5,10]"
    with pytest.raises(ConfigError) as error:
        of_file("user_inter_num_interval: [10, 5]\n", tmp_path)
    assert "user_inter_num_interval" in str(error.value)


@pytest.mark.parametrize("model", ["BPR", "SASRecCE"])
def test_labels_that_no_ranking_reads_are_a_warning(model, tmp_path, caplog) -> None:
    config = of_file("threshold: {rating: 3.5}\ndataset_save_path: ''\n", tmp_path, model)
    assert "does not read threshold" in caplog.text
    assert "threshold" not in config.plain()


def test_other_keys_in_eval_args_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = of_file("eval_args: {mode: uni9, metrics: [Recall], topk: [10, 20]}\n", tmp_path)
    assert config["eval_args"]["mode"]["test"] == "uni9"
    assert config["topk"] == [1, 5, 10]
    assert f"{tmp_path / 'mine.yaml'}: nothing reads metrics, topk in eval_args" in caplog.text
    with pytest.raises(ConfigError) as error:
        of_file("eval_args: {spilt: {LS: valid_only}}\n", tmp_path)
    assert "split" in str(error.value)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"plugins": [5]}, "plugins"),
        ({"plugins": ["a\0.py"]}, "plugins"),
        ({"encoder": "..:x"}, "..:x"),
        ({"benchmark_filename": 1.5}, "benchmark_filename=1.5"),
        ({"init_from": 5}, "init_from=5"),
        ({"eval_setting": {"order": "RO"}}, "eval_args"),
    ],
)
def test_values_of_a_wrong_type_are_one_line(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config("SASRecCE", "x", config_dict={**GIVEN, **keys})
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_keys_that_nothing_sets_are_named_though_a_file_of_recbole_has_their_names(tmp_path, caplog) -> None:
    text = "from recbole.model.general_recommender import BPR\n\n\nclass AlphaUnset(BPR):\n"
    text += "    def __init__(self, config, dataset):\n        self.alpha, self.tau = config['alpha'], config['tau']\n"
    text += "        self.width, self.seed = config['hidden_size'], config['seed']\n"
    (tmp_path / "alpha_unset.py").write_text(text)
    Config("AlphaUnset", "x", config_dict={**GIVEN, "plugins": [str(tmp_path / "alpha_unset.py")]})
    assert "reads alpha, hidden_size, tau in its source, but no file sets it" in caplog.text


def test_a_package_of_the_current_folder_with_only_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {
        "model/small": "from mypkg.tools.layers import SIZE\n",
        "tools/layers": "SIZE = 16\n",
    }.items():
        file = tmp_path / "mypkg" / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(content)
    monkeypatch.chdir(tmp_path)
    assert plugin_files.load(tmp_path / "mypkg" / "model" / "small.py").SIZE == 16


def test_a_bug_in_a_plugin_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "my_encoder.py").write_text("class Decay:\n    def forward(self):\n        return [][1]\n")
    registry.load_plugins([tmp_path / "my_encoder.py"])
    part = plugin_files.load(tmp_path / "my_encoder.py").Decay
    with pytest.raises(ConfigError) as error, blamed(part, "forward"):
        part().forward()
    assert "my_encoder.py:3" in str(error.value)
    assert "--traceback" in str(error.value)
