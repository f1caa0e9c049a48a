"""RecBole's own functions with models of this package by name: the results are those of ``recbole_hyper.run``."""

from typing import Any

import pytest
from recbole.quick_start import run_recbole

from recbole_hyper import load
from recbole_hyper.models import rank
from tests.hosted.conftest import ours


@pytest.mark.parametrize("model", ["HSASRecCE", "gSASRec", "DualSASRec", "GRU4RecCE", "EASER", "PureSVDN"])
def test_run_recbole(model: str, settings: dict[str, Any]) -> None:
    result = run_recbole(model=model, dataset="random", config_dict=dict(settings))
    expected = ours(model, settings)
    assert dict(result["test_result"]) == expected["test"]
    assert dict(result["best_valid_result"]) == expected["valid"]
    assert result["best_valid_score"] == expected["valid"]["ndcg@5"]
    assert result["valid_score_bigger"] is True


def test_the_default_fits_its_ranker_with_the_best_weights(settings, monkeypatch) -> None:
    monkeypatch.setattr(rank, "_worth", lambda scores, *_: scores.new_ones(()))
    result = run_recbole(model="FMLPRecMemory", config_dict=settings, dataset="random")
    expected = ours("FMLPRecMemory", settings)
    assert bool(load("own").model.ranking.ranker.numbers.any())
    assert dict(result["test_result"]) == expected["test"]
    assert dict(result["best_valid_result"]) == expected["valid"]


@pytest.mark.parametrize("keys", [
    {"encoder": "hstu"},
    {"eval_args": {"split": {"GT": {"valid": 0.8, "test": 0.9}}, "mode": "full"}},
    {"eval_args": {"mode": {"valid": "uni9", "test": "full"}}},
    {"exclude_seen": False, "lr_plateau": {"factor": 0.5, "patience": 0}, "epochs": 5, "eval_step": 2},
    {"curvature": "auto"},
    {"learner": "riemannian_adam", "curvature": "learn"},
])  # fmt: skip
def test_other_settings(keys: dict[str, Any], settings: dict[str, Any]) -> None:
    result = run_recbole(model="HSASRecCE", dataset="random", config_dict={**settings, **keys})
    assert dict(result["test_result"]) == ours("HSASRecCE", settings, **keys)["test"]
