"""Between data and model: the origin of an estimated curvature."""

from pathlib import Path

import pytest

from recbole_hyper import run
from tests.training.common import settings


def test_a_resumed_run_knows_where_its_curvature_came_from(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = settings(random_data, tmp_path / "out", epochs=1, curvature="auto")
    first = run("HSASRecCE", "random", config_dict=keys)
    del keys["curvature"]
    again = run("HSASRecCE", "random", config_dict={**keys, "epochs": 2, "resume": True})
    for key in ("curvature", "curvature_origin", "curvature_interval", "curvature_verdict"):
        assert again[key] == first[key]
    assert first["curvature_origin"] == "estimated from the training data"


def test_only_curved_models_estimate_a_curvature(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = {"epochs": 1, "curvature": "auto", "geometry": "euclidean"}
    flat = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "flat", **keys))
    assert "curvature_origin" not in flat
    gru = run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "gru", **keys))
    assert gru["curvature_origin"] == "estimated from the training data"
