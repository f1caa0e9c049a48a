"""Which source of a value wins, how values are typed, and names that are unknown."""

from pathlib import Path

import pytest

from recbole_hyper.cli import _parse
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import parse_value
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.conftest import SMALL
from tests.raising import refused


def make(cycle: Path, **keys: object) -> Config:
    settings = {**SMALL, "data_path": str(cycle), **keys}
    return Config(settings.pop("model", "SASRecCE"), settings.pop("dataset", "cycle"), config_dict=settings)


def test_a_protocol_goes_by_its_name(cycle: Path) -> None:
    named = Config("SASRecCE", "cycle", ["global_timepoint"], {**SMALL, "data_path": str(cycle)})
    file = properties_folder() / "protocol" / "global_timepoint.yaml"
    assert named["eval_args"]["split"] == {"GT": {"valid": 0.9, "test": 0.95}}
    assert read_yaml(file).items() <= named.external_config_dict.items()
    with refused(ConfigError, "'global_timepiont'", "global_timepoint"):
        Config("SASRecCE", "cycle", ["global_timepiont"])
    with refused(ConfigError, "global_timepoint", "temporal_users"):
        Config("SASRecCE", "cycle", ["keys.yaml"])


@pytest.mark.parametrize(
    ("key", "meant"),
    [("output", "output_dir"), ("run_dir", "output_dir"), ("lr", "learning_rate"), ("batch_size", "train_batch_size")],
)
def test_a_name_of_other_tools_and_the_beginning_of_a_key_are_understood(key: str, meant: str, cycle: Path) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; did you mean {meant}"):
        Config("SASRecCE", "cycle", config_dict={"data_path": str(cycle), key: "x"})


def test_lists_and_intervals_as_they_are_typed(cycle: Path) -> None:
    config = make(cycle, topk="5,10", valid_metric="NDCG@10", user_inter_num_interval="[5,10]")
    assert config["topk"] == [5, 10]
    assert config["user_inter_num_interval"] == "[5,10]"


def test_keys_that_the_model_does_not_read_are_named(cycle: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(cycle, embedding_size=128, hidden_size=16)
    assert "SASRecCE does not read embedding_size" in caplog.text
    assert "hidden_size" not in caplog.text
    assert "resume" not in make(cycle, resume=True).plain()


def test_order_of_sources(cycle: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("learning_rate: 3e-3\nhidden_size: 32\neval_args: {mode: uni99}\n")
    config = Config("SASRecCE", "cycle", [file], {"data_path": str(cycle), "hidden_size": 48})
    assert config["learning_rate"] == 3e-3  # the file beats the model YAML
    assert config["hidden_size"] == 48  # the dictionary beats the file
    assert config["adam_betas"] == [0.9, 0.98]  # the model YAML beats the settings
    # a mode alone keeps the split, where RecBole would fall back to a random one
    assert config["eval_args"]["split"] == {"LS": "valid_and_test"}
    assert config["eval_args"]["mode"] == {"valid": "uni99", "test": "uni99"}


def test_the_dictionary_is_not_changed_and_no_text_is_run(cycle: Path) -> None:
    keys = {"data_path": str(cycle), "learning_rate": "0.01", "state": "__import__('os').getcwd()"}
    before = dict(keys)
    config = Config("SASRecCE", "cycle", config_dict=keys)
    assert keys == before
    assert config["learning_rate"] == 0.01
    assert config["state"] == "__import__('os').getcwd()"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("True", True), ("false", False), ("~", None), ("[1, 5]", [1, 5]), ("NDCG@10", "NDCG@10"),
     ("{split: {LS: valid_and_test}, mode: full}", {"split": {"LS": "valid_and_test"}, "mode": "full"})],
)  # fmt: skip
def test_parse_value(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_every_model_yaml_names_a_model_and_binds(cycle: Path) -> None:
    files = sorted((properties_folder() / "model").glob("*.yaml"))
    assert {"SASRecCE", "HSASRecCE", "SASRecBCE", "HSASRec"} <= {path.stem for path in files}
    for path in files:
        assert path.read_text().startswith("# "), f"{path.name} must open with its command"
        Config(
            path.stem,
            "cycle",
            config_dict={"data_path": str(cycle), "metrics": ["NDCG"], "topk": [5], "valid_metric": "NDCG@5"},
        )


def test_plain_config_runs_again(cycle: Path, tmp_path: Path) -> None:
    import yaml

    config = make(cycle, geometry="poincare", learning_rate=0.02)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.plain()))
    again = Config(config_file_list=[file])
    assert again.plain() == config.plain()


def test_recbole_models_get_recbole_settings(cycle: Path) -> None:
    stock = read_yaml(Path(__import__("recbole").__file__).parent / "properties" / "model" / "SASRec.yaml")
    config = Config("SASRec", "cycle", config_dict={"data_path": str(cycle)})
    assert {key: config[key] for key in stock} == stock
    assert config["train_neg_sample_args"]["distribution"] == "none"  # cross-entropy
    assert config["eval_args"]["split"] == {"LS": "valid_and_test"}
    assert Config("BPR", "cycle", config_dict={"data_path": str(cycle)})["eval_args"]["split"] == {
        "LS": "valid_and_test"
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b'epochs: !!python/object/apply:os.system ["true"]\n',
            "line 1: could not determine a constructor for the tag",
        ),
        (b"epochs: !mine 3\n", "line 1: could not determine a constructor for the tag"),
        (b"- epochs\n- 3\n", "must contain 'key: value' lines, but is a list"),
        (b"epochs\n", "but is a str"),
        (b"1: 3\n", "the key 1 is not text"),
        (b"? [a]\n: 3\n", "line 1: found unhashable key"),
        (b"epochs: [1\nseed: 2\n", "line 2"),
        (b"topk: " + b"[" * 1000 + b"]" * 1000, "nested too deeply"),
        (b"".join(b" " * depth + b"a:\n" for depth in range(500)), "nested too deeply"),
        (b"seed: \xff\xfe\n", "is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_one_error_that_names_it(cycle: Path, tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Config("SASRecCE", "cycle", [file], {"data_path": str(cycle)})
    assert str(file) in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("typed", "keys"), [
    (["--output_dir=x", "--resume"], {"output_dir": "x", "resume": "True"}),
    (["--resume", "--output_dir=x"], {"output_dir": "x", "resume": "True"}),
    (["--refit", "--show_progress", "--epochs=3"], {"refit": "True", "show_progress": "True", "epochs": "3"}),
    (["--refit", "False", "--epochs", "3"], {"refit": "False", "epochs": "3"}),
    (["--exclude_seen=False", "--gru_bias"], {"exclude_seen": "False", "gru_bias": "True"}),
])  # fmt: skip
def test_a_flag_that_stands_alone_is_true(typed: list[str], keys: dict[str, str]) -> None:
    assert _parse(["run", "--model=SASRecCE", *typed]).keys == keys
    own = [word.replace("--", "--EASER.") if word.startswith("--") else word for word in typed]
    assert _parse(["compare", "--models=EASER", "--dataset=d", *own]).keys == {f"EASER.{k}": v for k, v in keys.items()}


@pytest.mark.parametrize("key", ["epochs", "output_dir", "learning_rate", "loss_type", "nothing"])
def test_a_key_that_is_no_flag_needs_its_value(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for typed in ([f"--{key}"], [f"--{key}", "--seed=3"]):
        with pytest.raises(SystemExit):
            _parse(["run", "--model=SASRecCE", *typed])
        assert f"--{key} needs a value: --{key}=VALUE" in capsys.readouterr().err


def test_metrics_without_brackets_are_a_list(cycle: Path) -> None:
    config = make(cycle, **_parse(["run", "--model=SASRecCE", "--metrics=NDCG,Hit", "--topk=5,10"]).keys)
    assert (config["metrics"], config["topk"]) == (["NDCG", "Hit"], [5, 10])
