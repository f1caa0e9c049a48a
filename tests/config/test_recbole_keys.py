"""Every key that RecBole documents is read, or warned of and kept out of the record, or refused with the reason."""

import logging
from pathlib import Path
from typing import Any

import pytest
from recbole.utils import argument_list

from recbole_hyper import registry, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.recbole_keys import NO_EFFECT, REFUSED, TRANSLATED, without_effect
from recbole_hyper.config.resolve import RECBOLE_PROPERTIES, model_class
from recbole_hyper.files import write_json, write_yaml
from recbole_hyper.runs.claim import require_continued
from recbole_hyper.runs.folder import ABOUT_RUN, CONFIG, FORMAT
from recbole_hyper.settings import SETTINGS
from recbole_hyper.yaml_files import read_yaml
from tests.conftest import SMALL
from tests.raising import refused

# config_file is what RecBole's code calls the option --config_files
NO_KEYS = {"config_file"}
# a value that is not the default, of the right type where one is required
OTHER = {"epochs": 7, "train_batch_size": 33, "learning_rate": 0.5, "eval_step": 5, "stopping_step": 4,
         "eval_batch_size": 77, "MAX_ITEM_LIST_LENGTH": 9, "clip_grad_norm": {"max_norm": 2.0}, "weight_decay": 0.25,
         "learner": "sgd", "lr_plateau": {"factor": 0.3}, "adam_betas": [0.5, 0.5], "item_bias_init": 0.5,
         "curvature": 0.5, "curvature_init": 0.5, "curvature_learning_rate": 0.5, "manifold_learning_rate": 0.5,
         "stabilize": 3, "loss_decimal_place": 6, "memory_limit": 1 << 40, "worker": 3, "train_windows": "last",
         "train_neg_sample_args": {"distribution": "popularity"}}  # fmt: skip
# read by RecBole where data or a device ask for it: with sequence columns, files of users or items, wandb, a device
READ_ELSEWHERE = {
    "filter_inter_by_user_or_item",
    "seq_len",
    "seq_separator",
    "wandb_project",
    "gpu_id",
    "use_gpu",
    "enable_scaler",
}


def documented() -> set[str]:
    """Return the keys of RecBole's YAML files of no single model, and of its lists of arguments."""
    files = [RECBOLE_PROPERTIES / "overall.yaml", RECBOLE_PROPERTIES / "dataset" / "sample.yaml"]
    files += list((RECBOLE_PROPERTIES / "quick_start_config").glob("*.yaml"))
    keys = {key for file in files for key in read_yaml(file)}
    for name in ("general", "training", "evaluation", "dataset"):
        keys |= set(getattr(argument_list, f"{name}_arguments"))
    return keys - NO_KEYS


def bound(cycle: Path, model: str, **keys: Any) -> Config:
    return Config(model, "cycle", config_dict={"data_path": str(cycle), **keys})


@pytest.mark.parametrize("model", ["SASRecCE", "EASER", "BPR", "SASRec"])
def test_what_is_not_named_is_read(cycle: Path, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    item, attribute = Config.__getitem__, Config.__getattr__
    monkeypatch.setattr(Config, "__getitem__", lambda self, key: (asked.add(key), item(self, key))[1])
    monkeypatch.setattr(Config, "__getattr__", lambda self, key: (asked.add(key), attribute(self, key))[1])
    keys = {**SMALL, "epochs": 1, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False, "data_path": str(cycle)}
    run(model, "cycle", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    config = bound(cycle, model)
    for key in sorted(documented() - READ_ELSEWHERE):
        if key not in config.resolved.reasons and key not in REFUSED and key not in TRANSLATED:
            assert key in asked, f"{key} is not read in a run of {model}: say so in recbole_keys"


@pytest.mark.parametrize("model", [*registry.names("models"), "BPR", "SASRec", "EASE"])
def test_what_has_no_effect_is_warned_of_and_not_recorded(cycle, model, caplog) -> None:
    default = bound(cycle, model)
    given = {}
    for key in default.resolved.reasons:
        value = default.internal_config_dict.get(key)
        given[key] = OTHER.get(key, (not value) if isinstance(value, bool) else f"{value} and more")
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        config = bound(cycle, model, **given)
    for key in given:
        assert f"{model} does not read {key}: the key has no effect in this run; " in caplog.text
        assert key == "epochs" or key not in config.plain()
        assert config[key] == default[key]
    assert len(given) > 20
    # the record of a run says it all, without a warning
    caplog.clear()
    Config(config_dict=config.plain())
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("key", "value", "why", "counts"),
    [
        ("adam_betas", [0.5, 0.5], "learner is 'riemannian_adam'", {"learner": "adamw"}),
        ("stabilize", 3, "learner is 'adam'", {"learner": "riemannian_sgd"}),
        ("curvature_init", 0.5, "curvature is 0.0153", {"curvature": "learn"}),
        ("feature_fusion", "concat", "selected_features is None", {"selected_features": ["kind"]}),
    ],
)
def test_a_key_that_another_switches_off(cycle, key, value, why, counts, caplog) -> None:
    learner = {"learner": "riemannian_adam"} if key == "adam_betas" else {}
    config = bound(cycle, "HSASRecCE", **{key: value}, **learner)
    assert f"HSASRecCE does not read {key}: the key has no effect in this run; {why}" in caplog.text
    assert config[key] == bound(cycle, "HSASRecCE")[key]
    caplog.clear()
    Config(config_dict=config.plain())
    assert bound(cycle, "HSASRecCE", **{key: value}, **counts)[key] == value
    assert caplog.text == ""


@pytest.mark.parametrize("model", ["SASRecCE", "EASER", "BPR", "SASRec"])
@pytest.mark.parametrize("key", sorted(REFUSED))
def test_what_no_run_takes_is_refused(cycle: Path, model: str, key: str) -> None:
    allowed, why = REFUSED[key]
    for value in allowed:
        bound(cycle, model, **{key: value})
    with pytest.raises(ConfigError, match=f"{key} is not supported") as caught:
        bound(cycle, model, **{key: "2" if key != "nproc" else 2})
    assert why in str(caught.value)


def test_every_entry_is_of_a_key_that_exists() -> None:
    ours = set(SETTINGS)
    named = [key for entry in NO_EFFECT if not entry.switch for key in entry.keys.split()]
    assert set(named) <= documented() | ours
    assert len(named) == len(set(named))


def test_what_a_model_of_recbole_reads_beside_its_yaml_counts(cycle: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = bound(cycle, "HRM", reg_weight=0.25)
    assert config["reg_weight"] == config.plain()["reg_weight"] == 0.25
    assert caplog.text == ""


def test_an_option_of_a_part_that_no_yaml_of_it_names_is_read(cycle: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert bound(cycle, "DualRec", dual_windows="full")["dual_windows"] == "full"
    assert caplog.text == ""
    assert "gbce_t" not in bound(cycle, "SASRecCE", gbce_t=0.5).plain()
    assert "SASRecCE does not read gbce_t" in caplog.text


def test_a_run_that_recorded_keys_without_effect_is_still_the_same_run(cycle: Path, tmp_path: Path) -> None:
    config = bound(cycle, "SASRecCE")
    before = {**config.plain(), "train_neg_sample_args": {"sample_num": 1}, "save_dataset": True, "embedding_size": 128}
    write_json(tmp_path / ABOUT_RUN, {"format": FORMAT})
    write_yaml(tmp_path / CONFIG, before)
    require_continued(config, tmp_path)
    write_yaml(tmp_path / CONFIG, {**before, "hidden_size": 8})
    with refused(ConfigError, "hidden_size"):
        require_continued(config, tmp_path)


@pytest.mark.parametrize(("model", "read"), [("SASRecCE", True), ("EASER", False), ("Pop", False), ("BPR", False)])
def test_only_models_made_of_parts_read_the_keys_of_windows(model: str, read: bool) -> None:
    assert ("train_windows" not in without_effect(model_class(model))) == read


@pytest.mark.parametrize("model", ["SASRecCE", "EASER", "BPR", "SASRec"])
def test_repeatable_says_what_exclude_seen_says(cycle: Path, model: str, caplog: pytest.LogCaptureFixture) -> None:
    default = bound(cycle, model)
    assert default["exclude_seen"] is True  # although RecBole's own default is repeatable: True for sequences
    for repeatable in (True, False):
        config = bound(cycle, model, repeatable=repeatable)
        assert config["exclude_seen"] is not repeatable
        assert bound(cycle, model, repeatable=repeatable, exclude_seen=not repeatable)["exclude_seen"] is not repeatable
        # what RecBole draws negatives by is the model's own affair
        assert config["repeatable"] == default["repeatable"]
        # a run records what holds, so that an evaluation may change it
        record = config.plain()
        assert "repeatable" not in record
        assert Config(config_dict={**record, "exclude_seen": repeatable})["exclude_seen"] is repeatable
        with pytest.raises(ConfigError, match=f"repeatable={repeatable} and exclude_seen={repeatable} contradict"):
            bound(cycle, model, repeatable=repeatable, exclude_seen=repeatable)
    assert caplog.text == ""
