"""The result of resolving a configuration: all mistakes at once, stored values, files of RecBole's users."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact, parse_keys
from recbole_hyper.config.resolve import resolve
from recbole_hyper.files import read_written_yaml, write_yaml
from recbole_hyper.yaml_files import parse_yaml, read_yaml
from tests.config.test_binding import make
from tests.raising import refused

GIVEN = {"interactions": "given"}
MODEL = """
from recbole.model.general_recommender import BPR


class Weighted(BPR):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.weights = config["weight_mode"], config["complex"], config["not_there"]
"""


@pytest.fixture
def weighted(tmp_path: Path) -> Exact:
    """Return the keys of a model of a third party with its YAML file."""
    (tmp_path / "weighted.py").write_text(MODEL)
    (tmp_path / "Weighted.yaml").write_text("weight_mode: ''\ncomplex: true\ncompilee: 3\nembedding_size: 8\n")
    return Exact(GIVEN, plugins=[str(tmp_path / "weighted.py")])


def test_all_mistakes_are_one_error(cycle: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make(cycle, hidden_size=0, epochs="three", hiden_size=3, eval_args={"mode": "half"}, dataset="cicle")
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 mistakes:"
    for text in ("unknown key 'hiden_size'", "mode='half'", "hidden_size=0", "epochs='three'", "dataset 'cicle'"):
        assert sum(text in line for line in lines) == 1, text


@pytest.mark.parametrize("value", ["", "3", "[64,32]", "1e-3", "None", "true", "~", 3, None, [1, "2"]])
def test_a_stored_value_keeps_its_type(value: Any, weighted: Exact, tmp_path: Path) -> None:
    config = Config("Weighted", "x", config_dict=Exact(weighted, weight_mode=value))
    assert config["weight_mode"] == value
    write_yaml(tmp_path / "config.yaml", config.plain())
    stored = read_written_yaml(tmp_path / "config.yaml", "damaged")
    opened = Config(stored=stored, with_files=False)
    assert (type(opened["weight_mode"]), opened["weight_mode"]) == (type(value), value)
    assert opened.plain() == config.plain()
    # a trial of a sweep gets keys that were parsed before, and a comparison a file
    assert parse_keys(Exact(weight_mode=value))["weight_mode"] == value
    assert read_yaml(tmp_path / "config.yaml")["weight_mode"] == value


def test_the_file_beside_a_model_has_its_own_keys(weighted: Exact, caplog: pytest.LogCaptureFixture) -> None:
    config = Config("Weighted", "x", config_dict=weighted)
    assert config["complex"] is True
    assert "nothing reads compilee" in caplog.text
    assert "Weighted reads not_there in its source, but no file sets it" in caplog.text


def test_names_of_metrics_in_other_libraries(cycle: Path) -> None:
    config = make(cycle, metrics=["hr", "NDCG"], valid_metric="HR@5", topk=[5])
    assert (config["metrics"], config["valid_metric"]) == (["Hit", "NDCG"], "Hit@5")


def test_recboles_default_folder_need_not_exist(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("data_path: dataset/\n")
    assert Path(Config("SASRecCE", "ml-100k", ["mine.yaml"])["data_path"], "ml-100k.inter").is_file()
    Config("SASRecCE", "ml-100k", config_dict={"data_path": "elsewhere"})
    assert "data_path='elsewhere' has no ml-100k" in caplog.text


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("output_dir: ~/other\n")
    assert parse_keys({"output_dir": "~/run"})["output_dir"] == f"{tmp_path}/run"
    assert Config("SASRecCE", config_file_list=["~/mine.yaml"], config_dict=GIVEN)["output_dir"] == f"{tmp_path}/other"
    assert Config("SASRecCE", config_dict={**GIVEN, "output_dir": "~"})["output_dir"] is None
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.yaml").write_text("plugins: ['~/mine.py']\n")
    config = Config("SASRecCE", config_file_list=["~/mine.yaml"], config_dict=GIVEN)
    assert config["plugins"] == [str(tmp_path / "mine.py")]


def test_filters_beside_benchmark_files_are_named(caplog: pytest.LogCaptureFixture) -> None:
    files = {"benchmark_filename": ["a", "b", "c"], "user_inter_num_interval": "[5,inf)"}
    found = resolve("BPR", "x", [], files)
    assert found.values["user_inter_num_interval"] is None
    assert any("user_inter_num_interval='[5,inf)' has no effect" in text for text in found.warnings)


def test_anchors_without_end_are_one_line() -> None:
    bomb = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    for text in (bomb, "epochs: &e [*e]\n"):
        with refused(ConfigError, "repeats", "anchors"):
            parse_yaml(text, "mine.yaml")
    assert parse_yaml("a: &a [1, 2]\nb: *a\n", "mine.yaml")["b"] == [1, 2]


def test_sizes_are_judged_before_anything_is_built() -> None:
    with refused(ConfigError, "n_layers=100000000"):
        Config("SASRecCE", config_dict={**GIVEN, "n_layers": 100_000_000})
