"""The models of this package's losses train, on data with a known answer and on random data."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_hyper import components, run
from tests.conftest import SMALL

MODELS = {
    "gSASRec": {"n_negatives": 5},
    "SASRecBCEPlus": {"n_negatives": 2},
    "SASRecSampledCE": {"n_negatives": 2},
    "SASRecSCE": {"sce_bucket_size_y": 6},
    "SASRecRECE": {"rece_rounds": 4},
    "HSASRecSCE": {"sce_bucket_size_y": 6, "curvature": 0.5},
}


@pytest.mark.parametrize("model", MODELS)
def test_learns_that_the_next_item_follows(model: str, cycle: Path, tmp_path: Path) -> None:
    """12 items in a circle. Losses that avoid seen items never compare most of them: chance of hit@3 is 0.25."""
    keys = {
        **SMALL,
        **MODELS[model],
        "data_path": str(cycle),
        "epochs": 40 if model in ("HSASRecSCE", "gSASRec") else 15,
        "learning_rate": 0.02,
        "eval_step": 5,
        "checkpoint_step": 100,
        "exclude_seen": False,
        "topk": [1, 3, 10],
        "output_dir": str(tmp_path / "run"),
    }
    result = run(model, "cycle", config_dict=keys)
    seen_excluded = model in ("SASRecBCEPlus", "SASRecSampledCE")
    assert result["test"]["hit@3"] > (0.5 if seen_excluded else 0.99), result["test"]
    if "SCE" in model and model != "SASRecRECE":
        header = (tmp_path / "run" / "train.csv").read_text().splitlines()[0]
        assert {"selected", "selected_once", "positives_found"} <= set(header.split(","))


@pytest.mark.parametrize("model", ["SASRecSCE", "SASRecRECE", "gSASRec"])
def test_geometry_may_be_exchanged(model: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, **MODELS[model], "data_path": str(random_data), "geometry": "poincare", "curvature": 0.1}
    result = run(model, "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert 0 <= result["test"]["ndcg@10"] <= 1


def test_each_model_names_its_loss() -> None:
    found = {name: components.resolve("models", name).parts["loss_type"] for name in MODELS}
    assert found == {
        "gSASRec": "gbce",
        "SASRecBCEPlus": "bce_plus",
        "SASRecSampledCE": "sampled_ce",
        "SASRecSCE": "sce",
        "SASRecRECE": "rece",
        "HSASRecSCE": "sce",
    }
