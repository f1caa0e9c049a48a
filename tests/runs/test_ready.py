"""Between data and model: the origin of an estimated curvature, and small catalogues."""

from pathlib import Path

from recbole_hyper import run
from tests.conftest import SMALL, write_inter
from tests.training.common import settings


def test_a_resumed_run_knows_where_its_curvature_came_from(random_data, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = settings(random_data, tmp_path / "out", epochs=1, curvature="auto")
    first = run("HSASRecCE", "random", config_dict=keys)
    del keys["curvature"]
    again = run("HSASRecCE", "random", config_dict={**keys, "epochs": 2, "resume": True})
    for key in ("curvature", "curvature_origin", "curvature_interval"):
        assert again[key] == first[key]
    assert first["curvature_origin"] == "estimated from the training data"


def test_only_curved_models_estimate_a_curvature(random_data, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = {"epochs": 1, "curvature": "auto", "geometry": "euclidean"}
    flat = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "flat", **keys))
    assert "curvature_origin" not in flat
    gru = run("HGRU4Rec", "random", config_dict=settings(random_data, tmp_path / "gru", **keys))
    assert gru["curvature_origin"] == "estimated from the training data"


def test_a_small_catalogue_has_short_lists(tmp_path: Path) -> None:
    write_inter(tmp_path, "tiny", [(f"u{user}", f"i{(user + n) % 7}", n) for user in range(9) for n in range(5)])
    keys = {**SMALL, "data_path": str(tmp_path), "epochs": 1}
    result = run("SASRecCE", "tiny", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert 0 < result["test"]["ndcg@5"] <= result["test"]["ndcg@10"] < 1 == result["test"]["hit@10"]
