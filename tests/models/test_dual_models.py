"""DualRec and its kin as models: learning, terms of the loss, other geometries and losses, settings and ablations."""

import csv
from pathlib import Path

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import Config
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.models.base import build_part
from recbole_hyper.report.recipes import read_recipe
from tests.conftest import SMALL

DUAL = ["DualRec", "DualSASRec", "DualGRU4Rec", "DualFMLPRec"]
KEYS = {
    **SMALL,
    "n_heads": 2,
    "inner_size": 16,
    "topk": [1, 3, 10],
    "valid_metric": "MRR@10",
    "eval_args": {"mode": "full"},
}
# rows of the recipes that change DualRec or its kin: (recipe, row)
ABLATIONS = [
    (recipe, title)
    for recipe in (
        "dualrec-table3-beauty",
        "dualrec-table4-beauty",
        "dualrec-table5-beauty",
        "dualrec-ablations-beauty",
    )
    for title in read_recipe(recipe).rows
]
# rows that state the defaults
FULL = {"full", "DualSASRec+BIT", "DualGRU4Rec+BIT", "DualFMLP-Rec+BIT"}


def history(folder: Path) -> list[dict[str, float]]:
    with open(folder / "train.csv") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


@pytest.mark.parametrize("model", ["DualRec", "DualFMLPRec"])
def test_every_term_is_in_the_record(model: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**KEYS, "data_path": str(random_data), "dual_alpha": 0.3, "dual_beta": 0.7, "weight_decay": 0.0}
    run(model, "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    rows = history(tmp_path / "run")
    assert len(rows) == 2
    for row in rows:
        total = 0.3 * row["past_loss"] + 0.7 * row["future_loss"] + 0.7 * row["transfer_loss"]
        assert row["train_loss"] == pytest.approx(total, rel=1e-4)
        assert row["transfer_loss"] > 0


def test_another_encoder_has_no_future_loss(random_data: Path, tmp_path: Path) -> None:
    keys = {**KEYS, "data_path": str(random_data), "encoder": "windowed_attention"}
    run("DualRec", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert all("future_loss" not in row for row in history(tmp_path / "run"))


def test_a_dual_encoder_trains_both_directions_in_any_model(random_data: Path, tmp_path: Path) -> None:
    keys = {**KEYS, "data_path": str(random_data), "encoder": "dual"}
    run("SASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert all("future_loss" in row for row in history(tmp_path / "run"))


@pytest.mark.parametrize(("recipe", "title"), ABLATIONS, ids=["-".join(entry) for entry in ABLATIONS])
def test_every_ablation_changes_what_it_names_and_nothing_else(recipe: str, title: str, random_data: Path) -> None:
    row = read_recipe(recipe).rows[title]
    base = Config(row.model, "random", config_dict={"data_path": str(random_data)}).final_config_dict
    changed = Config(row.model, "random", config_dict={"data_path": str(random_data), **row.settings})
    differing = {
        key for key, value in changed.final_config_dict.items() if base[key] != value and key != "checkpoint_dir"
    }
    assert differing <= set(row.settings)
    for key, value in row.settings.items():
        assert changed[key] == value
    assert bool(differing) == (title not in FULL)


@pytest.mark.parametrize("model", DUAL)
def test_published_defaults(model: str, random_data: Path) -> None:
    config = Config(model, "random", config_dict={"data_path": str(random_data)})
    built = build_part("encoder", config, torch.nn.Embedding(5, 64, padding_idx=0))
    assert isinstance(built, DualEncoder)
    assert (built.alpha, built.beta, built.transfer_form, built.directions) == (0.5, 0.1, "heads", "both")
    if model == "DualRec":
        assert built.past.layers[0].attention.windows == (2, 3, 4, 5, 7, 11, 21, 50)
        assert (config["learning_rate"], config["weight_decay"], config["stopping_step"]) == (0.001, 1e-4, 9)
