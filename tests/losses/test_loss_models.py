"""The models of this package's losses train, and learn the pattern that is planted in the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_hyper import registry, run
from tests.conftest import LEARN

MODELS = {
    "gSASRec": {"n_negatives": 5, "epochs": 20},
    "SASRecBCEPlus": {"n_negatives": 8},
    "SASRecSampledCE": {"n_negatives": 16},
    "SASRecSCE": {"sce_bucket_size_y": 16, "sce_n_buckets": 6, "sce_bucket_size_x": 60},
    "SASRecRECE": {"rece_rounds": 4},
    "HSASRecSCE": {"sce_bucket_size_y": 16, "sce_n_buckets": 6, "sce_bucket_size_x": 60, "curvature": 0.1},
}


def learned(model: str, walk: Path, folder: Path, **keys: object) -> float:
    """Train on the planted walk and return hit@1 of the test; chance is 1 / 52."""
    given = {**LEARN, **MODELS[model], "data_path": str(walk), "output_dir": str(folder), **keys}
    return run(model, "walk", config_dict=given)["test"]["hit@1"]


@pytest.mark.parametrize("model", MODELS)
def test_learns_what_follows(model: str, walk: Path, tmp_path: Path) -> None:
    assert learned(model, walk, tmp_path / "run") > 0.7
    if "SCE" in model:
        header = (tmp_path / "run" / "train.csv").read_text().splitlines()[0]
        assert {"selected", "selected_once", "positives_found"} <= set(header.split(","))


@pytest.mark.parametrize("model", ["SASRecSCE", "SASRecRECE", "gSASRec"])
def test_learns_with_another_geometry(model: str, walk: Path, tmp_path: Path) -> None:
    assert learned(model, walk, tmp_path / "run", geometry="poincare", curvature=0.1) > 0.7


def test_each_model_names_its_loss() -> None:
    found = {name: registry.resolve("models", name).parts["loss_type"] for name in MODELS}
    assert found == {
        "gSASRec": "gbce",
        "SASRecBCEPlus": "bce_plus",
        "SASRecSampledCE": "sampled_ce",
        "SASRecSCE": "sce",
        "SASRecRECE": "rece",
        "HSASRecSCE": "sce",
    }
