"""The requests of the page."""

import json
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from recbole_hyper import load
from recbole_hyper.runs import serve
from recbole_hyper.serving.bundle import open_bundle
from recbole_hyper.serving.page.routes import with_page
from recbole_hyper.serving.service import Service
from tests.serving.conftest import opened, until


@pytest.fixture
def client(bundle: Path) -> Any:
    with TestClient(with_page(Service(lambda: opened(bundle), lambda: 0))) as made:
        yield made


def test_routes_of_the_page(client: TestClient, bundle: Path) -> None:
    assert "What the model knows" in client.get("/").text
    assert client.get("/page.js").headers["content-type"].startswith("text/javascript")
    found = client.get("/search", params={"text": "I1"}).json()
    assert {item["item"] for item in found} == {"i1", "i10", "i11"}
    assert {"kind", "price", "interactions"} <= set(found[0])
    places = client.get("/map", params={"column": "kind"}).json()
    assert len(places["x"]) == len(places["values"]) == 12
    assert not places["disk"]
    answer = client.post("/explain", json={"history": ["i3", "i1"], "k": 2}).json()
    items = [item["item"] for item in answer["items"]]
    scores = load(bundle).score([["i3", "i1"], ["i1"], ["i3"]], items)
    np.testing.assert_allclose(answer["contributions"], scores[:1] - scores[1:], atol=1e-4)
    assert client.post("/explain", json={"history": ["i3"], "k": 2}).json()["contributions"] == []


def test_an_item_is_called_by_its_title(bundle: Path, tmp_path: Path) -> None:
    table = pd.DataFrame({"sku": ["i1", "i2"], "Product Name": ["lamp", None], "kind": ["light", "office"]})
    table.to_csv(tmp_path / "mine.csv", index=False)
    served = open_bundle(bundle, load, table=tmp_path / "mine.csv", item_column="sku")
    with TestClient(with_page(Service(lambda: served, lambda: 0))) as client:
        found = {item["item"]: item["title"] for item in client.get("/search", params={"text": "i"}).json()}
    assert (found["i1"], found["i2"], found["i3"]) == ("lamp", None, None)


def test_a_worker_waits_for_the_bundle_of_another_run(bundle, tmp_path, monkeypatch, caplog) -> None:
    next_run, link = tmp_path / "next", tmp_path / "link"
    shutil.copytree(bundle, next_run, ignore=lambda _, names: [name for name in names if name == "serving"])
    link.symlink_to(bundle)
    settings = {"run": str(link), "threads": 1, "trust": {"files": [], "everything": False}, "every": 0.01}
    monkeypatch.setenv(serve._VARIABLE, json.dumps(settings))
    with TestClient(serve.app()) as client, caplog.at_level(logging.INFO, "recbole_hyper"):
        first = client.get("/health").json()["run"]
        link.unlink()
        link.symlink_to(next_run)
        copy = Path(shutil.copytree(bundle / "serving", tmp_path / "copy"))
        threading.Timer(0.3, copy.rename, [next_run / "serving"]).start()
        assert serve._opener(settings)().about["run"] == first
        until(lambda: "now serving" in caplog.text, 60)
    assert "still serving the earlier model" not in caplog.text
