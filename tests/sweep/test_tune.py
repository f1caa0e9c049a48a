"""A sweep without a space searches ``tune``, which fits every model, and ends with a tested winner."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from recbole_hyper.cli import main
from recbole_hyper.commands.overview import parts
from recbole_hyper.config import Config
from recbole_hyper.config.tables import of_model
from recbole_hyper.sweep.checks import readable
from recbole_hyper.sweep.search import list_trials
from recbole_hyper.sweep.space import read_space
from recbole_hyper.sweep.trial import Plan

pytestmark = pytest.mark.usefixtures("serial_sweeps")

MODELS = [entry.name for entry in parts("models") if entry.name != "Pop"]


def planned(model: str, **keys: Any) -> Plan:
    return Plan(model, "none", {"interactions": "given", **keys}, Path("none"))


@pytest.mark.parametrize("model", MODELS)
def test_the_space_varies_keys_that_the_model_reads(model: str) -> None:
    read = {row["key"] for row in of_model(Config(model, config_dict={"interactions": "given"}))}
    space = read_space(f"tune-{model}" if model in ("EASER", "PureSVDN", "ItemKNN") else "tune")
    trials = list_trials(readable(planned(model), space), "random", 8, 1)
    assert len({trial.name for trial in trials}) > 2
    for trial in trials:
        assert set(trial.settings) <= read
        Config(model, config_dict={"interactions": "given", **trial.settings})


def test_it_ends_with_a_tested_winner(keys: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    free = ("hidden_size", "train_batch_size")
    fixed = [f"--{key}={value}" for key, value in keys.items() if key not in free]
    out = tmp_path / "tuned"
    asked = ["sweep", "--model=SASRecCE", "--dataset=tiny", "--time_budget=5m", "--num_samples=2"]
    assert main([*asked, *fixed, f"--output_dir={out}"]) == 0
    outcome = json.loads((out / "sweep.json").read_text())
    assert sum(outcome["trials"].values()) == outcome["trials"]["finished"] + outcome["trials"].get("stopped", 0) == 2
    request = yaml.safe_load((out / "sweep.yaml").read_text())
    assert (request["search"], request["scheduler"], request["num_samples"]) == ("random", "asha", 2)
    assert set(outcome["best"]["settings"]) == {
        "learning_rate", "train_batch_size", "hidden_size", "weight_decay", "hidden_dropout_prob", "attn_dropout_prob"
    }  # fmt: skip
    assert (out / outcome["best_run"] / "result.json").is_file()
    assert outcome["test"]["ndcg@5"] > 0
    # the same again, with one trial more
    more = [word for word in asked if not word.startswith("--num_samples")]
    assert main([*more, "--num_samples=3", *fixed, f"--output_dir={out}", "--resume=True"]) == 0
    assert sum(json.loads((out / "sweep.json").read_text())["trials"].values()) == 3
    assert "selected by validation ndcg@5" in capsys.readouterr().out


def test_a_model_without_an_encoder_has_its_own_keys(keys: dict[str, Any], tmp_path: Path) -> None:
    kept = {key: value for key, value in keys.items() if key in ("data_path", "eval_args")}
    asked = ["sweep", "--model=EASER", "--dataset=tiny", "--num_samples=2"]
    assert main([*asked, *(f"--{key}={value}" for key, value in kept.items()), f"--output_dir={tmp_path / 't'}"]) == 0
    outcome = json.loads((tmp_path / "t" / "sweep.json").read_text())
    assert set(outcome["best"]["settings"]) == {"reg_weight"}
