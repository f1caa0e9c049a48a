"""Every model, encoder, geometry and loss learns what is planted: most items of "walk" have one that follows."""

import csv
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import load, run
from recbole_hyper.models.contract import n_learned
from tests.conftest import LEARN

POINCARE = {"geometry": "poincare", "curvature": 0.1}
COSINE = {"geometry": "cosine", "temperature": 0.1, "item_bias": True}
BUCKETS = {"sce_bucket_size_y": 16, "sce_n_buckets": 6, "sce_bucket_size_x": 60}
# each encoder with a loss and a geometry that the others leave out
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("SASRecCE", {}),
    ("SASRecBCE", {}),
    ("HSASRecCE", {}),
    ("HSASRec", {}),
    ("SASRecCE", COSINE),
    ("DualRec", {"n_heads": 2}),
    ("DualSASRec", {"n_heads": 2}),
    ("DualGRU4Rec", {}),
    ("DualFMLPRec", {"loss_type": "bce"}),
    ("FMLPRecCE", {}),
    ("BSARec", {"filter": "causal"}),
    ("BSARec", {"filter": "circular"}),
    ("GRU4RecCE", {}),
    ("HGRU4Rec", {"curvature": "learn", "gru_size": 8}),
    ("eSASRec", {"n_negatives": 20}),
    ("SASRecCE", {"encoder": "hstu", "loss_type": "bce", "epochs": 20, **POINCARE}),
    ("SASRecCE", {"encoder": "fuxi", "epochs": 20}),
    ("FMLPRecMemory", {}),
    # the models of one loss
    ("gSASRec", {"n_negatives": 5, "epochs": 20}),
    ("SASRecBCEPlus", {"n_negatives": 8}),
    ("SASRecSampledCE", {"n_negatives": 16}),
    ("SASRecSCE", BUCKETS),
    ("SASRecRECE", {"rece_rounds": 4}),
    ("HSASRecSCE", {**BUCKETS, "curvature": 0.1}),
]
# pairs of parts that are above with another one
PAIRS: list[tuple[str, dict[str, Any]]] = [
    ("SASRecCE", {**COSINE, "loss_type": "sampled_ce", "n_negatives": 16}),
    ("DualRec", {"n_heads": 2, "loss_type": "rece", "rece_rounds": 3, **POINCARE}),
    ("HSASRecCE", {"encoder": "ligr"}),
    ("FMLPRecMemory", {"encoder": "transformer", "loss_type": "bce", **POINCARE}),
    ("SASRecBCE", {"geometry": "cosine"}),
    ("FMLPRec", {}),
]
LOSSES = {
    **{"gSASRec": "gbce", "SASRecBCEPlus": "bce_plus", "SASRecSampledCE": "sampled_ce", "SASRecSCE": "sce"},
    **{"SASRecRECE": "rece", "HSASRecSCE": "sce"},
}
# what any run leaves in its folder; chosen.json where the data chose a value
FILES = {
    *("config.yaml", "result.json", "model.safetensors", "checkpoint.pt", "train.csv", "run.log", "README.md"),
    *("cases_valid.parquet", "cases_test.parquet", ".run.lock", "data", "format.json"),
}


def learned(model: str, walk: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    return run(model, "walk", config_dict={**LEARN, "data_path": str(walk), "output_dir": str(folder), **keys})


@pytest.mark.parametrize(
    ("model", "keys"), [*RUNS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS)], ids=str
)
def test_learns_what_follows(model: str, keys: dict[str, Any], walk: Path, tmp_path: Path) -> None:
    """A model that learned nothing has a hit@1 of 1 / 52."""
    result = learned(model, walk, tmp_path / "run", **keys)
    exact = result["config"]["loss_type"] == "ce"
    # the gates of a GRU and the blocks of LiGR, HSTU and FuXi need more epochs than these
    slow = "GRU" in model or result["config"]["encoder"] in ("ligr", "hstu", "fuxi")
    assert result["test"]["hit@1"] > (0.85 if exact and not slow else 0.7)
    assert {name: result["config"][name] for name in keys} == keys
    assert result["config"]["loss_type"] == LOSSES.get(model, result["config"]["loss_type"])
    assert {path.name for path in (tmp_path / "run").iterdir()} - {"chosen.json"} == FILES
    with open(tmp_path / "run" / "train.csv") as file:
        rows = list(csv.DictReader(file))
    if result["config"]["loss_type"] == "sce":
        assert {"selected", "selected_once", "positives_found"} <= rows[0].keys()
    if "future_loss" in rows[0]:
        # both directions learn: what was before an item is as certain as what follows
        for term in ("past_loss", "future_loss"):
            assert float(rows[-1][term]) < 0.6 * float(rows[0][term])


@pytest.mark.parametrize("keys", [{}, POINCARE])
def test_a_head_with_separate_item_vectors(keys: dict[str, Any], walk: Path, tmp_path: Path) -> None:
    result = learned("SASRecCE", walk, tmp_path / "run", reuse_item_embeddings=False, **keys)
    model = load(tmp_path / "run").model
    assert model.output_embedding is not None
    assert model.head.weight is model.output_embedding.weight
    assert result["parameters"] == n_learned(model)
    for matrix in (model.item_embedding.weight, model.output_embedding.weight):
        assert not matrix[0].any()
    # two matrices that no step had moved would not know what follows
    assert result["test"]["hit@1"] > 0.85
