"""Finished runs as rows of RecBoard."""

import json
from pathlib import Path

import pytest

from examples.recboard import write
from recbole_hyper import run
from tests.training.common import settings


def test_a_row_has_the_figures_of_each_seed(random_data: Path, tmp_path: Path) -> None:
    folders, results = [tmp_path / "a", tmp_path / "b"], []
    for seed, folder in enumerate(folders):
        keys = settings(random_data, folder, epochs=1, seed=seed, topk=[5], metrics=["NDCG", "Hit"])
        results.append(run("FMLPRecMemory", "random", config_dict=keys | {"valid_metric": "NDCG@5"}))
    for dataset in ("Other", "Amazon2014Beauty_550_LOU", "Amazon2014Beauty_550_LOU"):
        write(dataset, tmp_path / "rows.json", folders[:1] if dataset == "Other" else folders)
    other, content = json.loads((tmp_path / "rows.json").read_text())  # of the second, once
    assert (other["dataset"], content["dataset"]) == ("Other", "Amazon2014Beauty_550_LOU")
    assert content["tags"][:2] == ["Sequential", "CE"]
    for one, result in zip(content["runs"], results, strict=True):
        assert one["params"] == {key: result[key] for key in ("seed", "commit")}
        assert one["metrics"]["best"] == one["metrics"]["test"]
        for part in ("valid", "test"):
            found = one["metrics"][part]
            assert len(found) == 9
            expected = result[part]["ndcg@5"], result[part]["hit@5"]
            assert (found["NDCG@5"], found["HITRATE@5"]) == pytest.approx(expected, abs=1e-4)
            assert found["HITRATE@1"] <= found["HITRATE@50"]
