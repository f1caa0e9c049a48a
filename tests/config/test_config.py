"""A configuration that cannot run fails before any data are read, with a message that says what to do."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from recbole_hyper import registry
from recbole_hyper.cli import _parse
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import parse_keys, parse_value
from recbole_hyper.sweep.checks import bind_base
from recbole_hyper.sweep.space import parse_space
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.conftest import SMALL


def make(cycle: Path, **keys: object) -> Config:
    settings = {**SMALL, "data_path": str(cycle), **keys}
    return Config(settings.pop("model", "SASRecCE"), settings.pop("dataset", "cycle"), config_dict=settings)


def test_unknown_key_names_the_nearest(cycle: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'hiden_size'; did you mean hidden_size"):
        make(cycle, hiden_size=32)


def test_a_protocol_goes_by_its_name(cycle: Path) -> None:
    named = Config("SASRecCE", "cycle", ["global_timepoint"], {**SMALL, "data_path": str(cycle)})
    file = properties_folder() / "protocol" / "global_timepoint.yaml"
    assert named["eval_args"]["split"] == {"GT": {"valid": 0.9, "test": 0.95}}
    assert read_yaml(file).items() <= named.external_config_dict.items()
    with pytest.raises(ConfigError, match=r"'global_timepiont' does not exist .*did you mean global_timepoint\?"):
        Config("SASRecCE", "cycle", ["global_timepiont"])
    with pytest.raises(ConfigError, match=r"known by name: global_timepoint, .*sampled_candidates, temporal_users"):
        Config("SASRecCE", "cycle", ["keys.yaml"])


@pytest.mark.parametrize(
    ("key", "meant"),
    [("output", "output_dir"), ("run_dir", "output_dir"), ("lr", "learning_rate"), ("batch_size", "train_batch_size")],
)
def test_a_name_of_other_tools_and_the_beginning_of_a_key_are_understood(key: str, meant: str, cycle: Path) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; did you mean {meant}"):
        Config("SASRecCE", "cycle", config_dict={"data_path": str(cycle), key: "x"})


def test_unknown_model_names_the_nearest(cycle: Path) -> None:
    with pytest.raises(ConfigError, match=r"model 'HSASRecEC' is unknown. Did you mean .*HSASRecCE"):
        make(cycle, model="HSASRecEC")


def test_missing_dataset_says_where_and_how(cycle: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make(cycle, dataset="cicle")
    message = str(caught.value)
    assert str(cycle / "cicle" / "cicle.inter") in message
    assert "Did you mean 'cycle'" in message
    assert "recbole-hyper prepare cicle" in message


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"hidden_size": 16, "n_heads": 3}, "n_heads=3 does not divide hidden_size=16"),
        ({"hidden_size": "wide"}, "hidden_size='wide': a whole number"),
        ({"hidden_size": 16.5}, "a whole number"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob=1.5"),
        ({"attn_dropout_prob": -0.1}, "attn_dropout_prob=-0.1"),
        ({"MAX_ITEM_LIST_LENGTH": 0}, "MAX_ITEM_LIST_LENGTH=0"),
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"geometry": "poincare", "curvature": -1.0}, "curvature"),
        ({"geometry": "poincare", "curvature": "flat"}, "curvature='flat'"),
        ({"geometry": "spherical"}, "known: cosine, euclidean"),
        ({"loss_type": "cse"}, "losses: 'cse' is unknown"),
        ({"hidden_act": "tanhh"}, "hidden_act='tanhh'"),
        ({"valid_metric": "NDCG@7"}, "valid_metric='NDCG@7' is not computed"),
        ({"metrics": ["NDGC"]}, "metric 'NDGC' is unknown.*ndcg"),
        ({"metrics": ["AUC"], "valid_metric": "AUC"}, "metric 'auc' needs"),
        ({"eval_args": {"mode": "half"}}, "mode 'half' is not offered"),
        ({"exclude_seen": 3}, "exclude_seen=3: true or false"),
        ({"clip_grad_norm": 5}, "clip_grad_norm=5"),
        ({"train_batch_size": 0}, "train_batch_size=0"),
        ({"clip_grad_norm": {"max_norm": -1}}, "clip_grad_norm=.*-1"),
        ({"clip_grad_norm": {"max_norm": "abc"}}, "clip_grad_norm=.*'abc'"),
        ({"clip_grad_norm": {"norm_type": 2}}, "clip_grad_norm=.*'max_norm': 5.0"),
        ({"lr_plateau": {"factor": 2}}, "lr_plateau="),
        ({"lr_plateau": {"factor": "half"}}, "lr_plateau=.*'half'"),
        ({"rowwise_update": True, "learner": "adamw"}, "rowwise_update: true goes with learner: adam"),
        ({"rowwise_update": True, "weight_decay": 0.1}, "weight_decay=0.1"),
        ({"checkpoint_step": 0}, "checkpoint_step=0"),
        ({"valid_metric": "NDCG"}, "valid_metric='NDCG' is not computed"),
        ({"metrics": ["GAUC"], "valid_metric": "GAUC@10"}, "valid_metric='GAUC@10' is not computed"),
        ({"metrics": []}, "metrics="),
        ({"topk": "abc"}, "topk='abc'"),
        ({"topk": [10, 0]}, "whole numbers of at least 1"),
        ({"memory_limit": "4GB"}, "memory_limit='4GB'"),
        ({"n_threads": -1}, "n_threads=-1"),
        ({"epochs": None}, "epochs=None"),
        ({"adam_betas": 0.9}, "adam_betas=0.9"),
        ({"adam_betas": [0.9, 1.5]}, "adam_betas="),
        ({"metric_decimal_place": -1}, "metric_decimal_place=-1"),
        ({"load_col": "abc"}, "load_col='abc'"),
        ({"rm_dup_inter": "all"}, "rm_dup_inter='all'"),
        (
            {"benchmark_filename": ["train", "valid", "test"]},
            r"cycle\.train\.inter does not exist.* holds cycle\.inter",
        ),
        ({"benchmark_filename": ["train"]}, "middle names of three files"),
        ({"benchmark_filename": ["a", "a", "b"]}, "middle names of three files"),
        ({"benchmark_filename": "train"}, "middle names of three files"),
        ({"benchmark_filename": ["a", "b", "c"], "rm_dup_inter": "first"}, "rm_dup_inter='first' does not go with"),
        ({"benchmark_filename": ["a", "b"], "val_interval": {"rating": "[3,inf)"}}, "val_interval.* does not go with"),
        ({"benchmark_filename": ["a", "b"], "user_inter_num_interval": "[5,inf)"}, "does not go with"),
        ({"benchmark_filename": ["a", "b"], "interactions": "given"}, "given as a frame"),
        ({"eval_args": {"split": {"files": ["a", "b", "c"]}}}, "benchmark_filename names the files of the parts"),
        ({"repeatable": True, "exclude_seen": True}, "contradict each other"),
        ({"repeatable": False, "exclude_seen": False}, "contradict each other"),
        ({"repeatable": "no"}, "repeatable='no': true or false"),
        ({"item_inter_num_interval": "[5,inf"}, r"item_inter_num_interval='\[5,inf'"),
        ({"item_inter_num_interval": "5,inf"}, "an interval such as"),
        ({"user_inter_num_interval": "[9,5]"}, "an interval such as"),
        ({"eval_args": {"spilt": {"LS": "valid_only"}}}, "unknown key 'spilt'.*did you mean split"),
        ({"eval_args": {"succesive": True}}, "did you mean successive"),
        ({"eval_args": {"successive": "yes"}}, "successive='yes'"),
        ({"eval_args": {"group_by": "banana"}}, "group_by='banana'"),
        ({"eval_args": {"split": {"LO": 1}}}, "protocols: 'LO' is unknown"),
        ({"eval_args": {"split": {"LS": ["valid_only"]}}}, "allowed are valid_and_test"),
        ({"eval_args": {"split": {"RS": ["a", "b", "c"]}}}, "three shares"),
        ({"eval_args": {"split": {"RS": [0.8, 0.1, float("inf")]}}}, "three shares"),
        ({"eval_args": {"split": {"GT": {"valid": 0.9}}}}, "test: 0.95} is expected"),
        ({"eval_args": {"split": {"GT": {"valid": 0.9, "test": "NaT"}}}}, "'NaT' is no quantile"),
        ({"eval_args": {"split": {"GT": {"valid": 0.8, "test": 0.9, "max_cases": True}}}}, "max_cases=True"),
        ({"eval_args": {"split": {"TU": {"point": 0.9, "min_user_items": 2.7}}}}, "min_user_items=2.7"),
        ({"eval_args": {"split": {"TU": "soon"}}}, "'soon' is no quantile"),
        ({"eval_args": {"split": {"TU": 0.9}}, "refit": True}, "refit: True needs a split by time"),
        ({"eval_args": {"split": {"CI": {"valid": 0.1, "test": 0.2}}, "successive": True}}, "no successive targets"),
        ({"eval_args": {"mode": "unii99"}}, "mode 'unii99' is not offered"),
        ({"eval_args": {"mode": 99}}, "mode 99 is not offered"),
        ({"eval_args": {"mode": "uni"}}, "mode 'uni' is not offered"),
        ({"eval_args": {"mode": {"tset": "full"}}}, "one mode, or"),
        ({"eval_args": "full"}, "eval_args='full'"),
        ({"valid_metric": "NDCG@010"}, "valid_metric='NDCG@010' is not computed"),
        ({"valid_metric": "NDCG@\u00b2"}, "is not computed"),
        ({"metric_decimal_place": 400}, "metric_decimal_place=400: a whole number in \\[0, 15\\]"),
        ({"loss_memory_budget": "abc"}, "loss_memory_budget='abc': a whole number"),
        ({"loss_memory_budget": -1}, "loss_memory_budget=-1"),
        ({"loss_memory_budget": "1.5"}, "loss_memory_budget=1.5"),
        ({"topk": "[" * 5000 + "]" * 5000}, "nested too deeply"),
        ({"eval_args": "{mode: " * 5000 + "}" * 5000}, "nested too deeply"),
        ({"eval_args": "{mode: full, mode: uni99}"}, "'mode' is given twice"),
        ({"load_col": {"inter": 3}}, "load_col="),
        ({"MAX_ITEM_LIST_LENGTH": 10**10}, "MAX_ITEM_LIST_LENGTH=10000000000.*weights of the model need about"),
        ({"hidden_size": 1_000_000}, "hidden_size=1000000.*weights of the model need"),
        ({"log_wandb": True}, "needs the package wandb"),
        ({"curvature_init": 1e-300}, "curvature_init=1e-300"),
        *(
            (
                {"model": model, "curvature": value},
                f"curvature={re.escape(repr(value))}: a number above 0 that float32 holds",
            )
            for model in ("HSASRec", "HSASRecCE", "HSASRecSCE", "HGRU4Rec")
            for value in (1e-300, 1e300, float("inf"), float("nan"), 0, True, 1e-39)
        ),
    ],
)
def test_impossible_values_fail_before_data_are_read(
    cycle: Path, keys: dict, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pandas.read_csv", lambda *a, **k: pytest.fail("data were read"))
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "wandb" else find(name, *a))
    with pytest.raises(ValueError, match=says):
        make(cycle, **keys)


def test_lists_and_intervals_as_they_are_typed(cycle: Path) -> None:
    config = make(cycle, topk="5,10", valid_metric="NDCG@10", user_inter_num_interval="[5,10]")
    assert config["topk"] == [5, 10]
    assert config["user_inter_num_interval"] == "[5,10]"


def test_every_command_reads_typed_keys_alike() -> None:
    typed = {"user_inter_num_interval": "[5,10]", "output_dir": "1", "topk": "5,10", "learning_rate": "1e-3"}
    assert parse_keys(typed) == {**typed, "topk": [5, 10], "learning_rate": 0.001}


def test_a_configuration_that_recbole_stumbles_over_is_one_line(cycle: Path) -> None:
    with pytest.raises(ConfigError, match="data_path=3: text is expected"):
        make(cycle, model="BPR", data_path=3)


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


def test_every_model_of_parts_has_a_yaml() -> None:
    names = [name for name in registry.names("models") if registry.resolve("models", name).parts]
    assert len(names) >= 20
    missing = [name for name in names if not (properties_folder() / "model" / f"{name}.yaml").is_file()]
    assert not missing


def test_plain_config_runs_again(cycle: Path, tmp_path: Path) -> None:
    import yaml

    config = make(cycle, geometry="poincare", learning_rate=0.02)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.plain()))
    again = Config(config_file_list=[file])
    assert again.plain() == config.plain()


def test_command_line_errors_are_one_line(cycle: Path) -> None:
    script = Path(__file__).parents[2] / "run_recbole_hyper.py"
    done = subprocess.run(
        [sys.executable, str(script), "--model=SASRecCE", "--dataset=cycle", f"--data_path={cycle}", "--hiden_size=3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"error: unknown key 'hiden_size'.*\n", done.stderr)


def test_recbole_models_get_recbole_settings(cycle: Path) -> None:
    stock = read_yaml(Path(__import__("recbole").__file__).parent / "properties" / "model" / "SASRec.yaml")
    config = Config("SASRec", "cycle", config_dict={"data_path": str(cycle)})
    assert {key: config[key] for key in stock} == stock
    assert config["train_neg_sample_args"]["distribution"] == "none"  # cross-entropy
    assert config["eval_args"]["split"] == {"LS": "valid_and_test"}
    assert Config("BPR", "cycle", config_dict={"data_path": str(cycle)})["eval_args"]["split"] == {
        "LS": "valid_and_test"
    }


@pytest.mark.parametrize("model", ["HSASRec", "HGRU4Rec", "HSASRecSCE"])
@pytest.mark.parametrize("value", [1e-37, "learn", "auto", 1.0])
def test_curvatures_that_float32_holds_are_taken(cycle: Path, model: str, value: object) -> None:
    assert make(cycle, model=model, curvature=value)["curvature"] == value


def test_what_the_weights_need_is_held_against_the_memory_there_is(
    cycle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cycle, hidden_size=2000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=50_000_000, available=50_000_000))
    with pytest.raises(ConfigError, match=r"weights of the model need about .* GiB in training, of 0\.0 GiB in all"):
        make(cycle, hidden_size=2000, use_gpu=False)
    make(cycle, hidden_size=50, use_gpu=False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b'epochs: !!python/object/apply:os.system ["true"]\n',
            "line 1: could not determine a constructor for the tag",
        ),
        (b"epochs: !mine 3\n", "line 1: could not determine a constructor for the tag"),
        (b"- epochs\n- 3\n", "must hold 'key: value' lines, but holds a list"),
        (b"epochs\n", "but holds a str"),
        (b"1: 3\n", "the key 1 is no text"),
        (b"? [a]\n: 3\n", "line 1: found unhashable key"),
        (b"epochs: [1\nseed: 2\n", "line 2"),
        (b"topk: " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"".join(b" " * depth + b"a:\n" for depth in range(500)), "nested too deeply"),
        (b"seed: \xff\xfe\n", "is no UTF-8 text"),
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


def test_numbers_and_merged_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("\ufeffa: &all {b: 1e-3, c: 2}\nd: {<<: *all, c: 3}\ne: [5, .inf]\n", encoding="utf-8")
    assert read_yaml(file) == {"a": {"b": 0.001, "c": 2}, "d": {"b": 0.001, "c": 3}, "e": [5, float("inf")]}


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (["--output_dir=x", "--resume"], {"output_dir": "x", "resume": "True"}),
        (["--resume", "--output_dir=x"], {"output_dir": "x", "resume": "True"}),
        (["--refit", "--show_progress", "--epochs=3"], {"refit": "True", "show_progress": "True", "epochs": "3"}),
        (["--refit", "False", "--epochs", "3"], {"refit": "False", "epochs": "3"}),
        (["--exclude_seen=False", "--gru_bias"], {"exclude_seen": "False", "gru_bias": "True"}),
    ],
)
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


def test_a_key_that_the_sweep_sets_is_no_misspelling_of_itself(cycle: Path) -> None:
    for key in ("output_dir", "resume"):
        with pytest.raises(ConfigError, match=f"names '{key}', which is no key of a trial; the sweep sets it"):
            bind_base("SASRecCE", "cycle", {"data_path": str(cycle)}, parse_space({key: {"grid": [1, 2]}}))
    with pytest.raises(ConfigError, match="did you mean hidden_size"):
        bind_base("SASRecCE", "cycle", {"data_path": str(cycle)}, parse_space({"hiden_size": {"grid": [1, 2]}}))


def test_the_encoding_that_an_error_asks_for_is_a_key(cycle: Path) -> None:
    assert make(cycle, encoding="latin-1")["encoding"] == "latin-1"


@pytest.mark.parametrize(
    ("model", "learner"),
    [("SASRecCE", "sgdx"), ("SASRecCE", "sparse_adam"), ("BPR", "adamm"), ("GRU4Rec", "riemannian_adam")],
)
def test_a_learner_that_the_trainer_does_not_have_is_refused(cycle: Path, model: str, learner: str) -> None:
    with pytest.raises(ConfigError, match=f"learner='{learner}' is unknown to {model}; allowed: adam, adamw, sgd"):
        make(cycle, model=model, learner=learner)
    assert make(cycle, model=model, learner="AdamW")["learner"] == "AdamW"
