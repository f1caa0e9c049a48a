"""The requests of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from recbole_hyper import load
from recbole_hyper.serving.page.routes import with_page
from recbole_hyper.serving.service import Service
from tests.serving.conftest import opened


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
