"""Finished runs as a row of RecBoard."""

from pathlib import Path

import pytest

from examples.recboard import row
from recbole_hyper import run
from tests.training.common import settings


def test_a_row_has_the_figures_of_each_seed(random_data: Path, tmp_path: Path) -> None:
    folders, results = [tmp_path / "a", tmp_path / "b"], []
    for seed, folder in enumerate(folders):
        keys = settings(random_data, folder, epochs=1, seed=seed, topk=[5], metrics=["NDCG", "Hit"])
        results.append(run("FMLPRecMemory", "random", config_dict=keys | {"valid_metric": "NDCG@5"}))
    (content,) = row("Amazon2014Beauty_550_LOU", folders)
    assert content["dataset"] == "Amazon2014Beauty_550_LOU"
    assert content["tags"][:2] == ["Sequential", "CE"]
    for seed, (one, result) in enumerate(zip(content["runs"], results, strict=True)):
        assert one["params"] == {"seed": seed, "commit": result["commit"]}
        assert one["metrics"]["best"] == one["metrics"]["test"]
        for part in ("valid", "test"):
            found = one["metrics"][part]
            assert len(found) == 9
            assert (found["NDCG@5"], found["HITRATE@5"]) == pytest.approx(
                (result[part]["ndcg@5"], result[part]["hit@5"]), abs=1e-4
            )
            assert found["HITRATE@1"] <= found["HITRATE@50"]
