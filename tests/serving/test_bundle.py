"""A bundle answers as the run, with a graph and without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from recbole_hyper import load, run
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import open_bundle
from recbole_hyper.serving.page.routes import with_page
from recbole_hyper.serving.service import Service
from tests.serving.conftest import ids, keys


@pytest.mark.parametrize(("name", "more"), [("EASER", {}), ("HSASRecCE", {"curvature": 0.4})])
def test_other_models_are_served_too(name: str, more: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    run(name, "small", config_dict=keys(folder.parent / "data", tmp_path / "run", **more))
    write_bundle(tmp_path / "run")
    served, model = open_bundle(tmp_path / "run", load), load(tmp_path / "run")
    with TestClient(with_page(Service(lambda: served, lambda: 0))) as client:
        answer = client.post("/recommend", json={"history": ["i3", "i1"], "k": 5}).json()
        assert ids(answer) == model.recommend(histories=[["i3", "i1"]], k=5)["item_id"].tolist()
        similar = client.post("/similar", json={"item": "i4", "k": 5}).json()
        expected = model.similar_items(["i4"], 5)
        assert [item["item"] for item in similar] == expected["similar_id"].tolist()
        np.testing.assert_allclose([item["score"] for item in similar], expected["score"], rtol=1e-4, atol=1e-4)
        assert client.get("/map").json().get("disk", False) == (name == "HSASRecCE")
