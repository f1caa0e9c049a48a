"""The service answers as the run, under the same rules, from processes without torch; a switch drops no request."""

from __future__ import annotations

import copy
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from recbole_hyper import load, run
from recbole_hyper.cli import main
from recbole_hyper.errors import ConfigError
from recbole_hyper.serving.bundle import BUNDLE, Served, open_bundle
from recbole_hyper.serving.query import Query, Scorer
from tests.foreign_code import name_a_plugin
from tests.serving.conftest import ask, free_port, keys, until

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

import uvicorn
from fastapi.testclient import TestClient

from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.runs.serve import prepare
from recbole_hyper.serving.page.routes import with_page
from recbole_hyper.serving.service import BYTES, PromptProtocol, Service

HISTORIES = [["i3", "i1", "i4"], ["i5"], [f"i{step % 12}" for step in range(30)], ["i7", "gone"]]


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    write_bundle(folder)
    table = pd.DataFrame({"item_id": [f"i{item}" for item in range(12)], "price": range(12), "kind": list("abcd") * 3})
    table.to_csv(folder.parent / "catalogue.csv", index=False)
    return folder


def opened(folder: Path) -> Served:
    return open_bundle(folder, load, table=folder.parent / "catalogue.csv")


@pytest.fixture
def client(bundle: Path) -> Any:
    with TestClient(with_page(Service(lambda: opened(bundle), lambda: 0))) as made:
        yield made


def ids(answer: dict[str, Any]) -> list[str]:
    return [item["item"] for item in answer["items"]]


def test_the_service_recommends_as_the_run(client: TestClient, bundle: Path) -> None:
    model = load(bundle)
    model.use_catalogue(pd.read_csv(bundle.parent / "catalogue.csv"))
    rules = {"where": "price > 1", "at_most": {"kind": 1}, "boost": {"i7": 0.5}, "diversity": 0.2}
    for options in ({}, {"exclude_seen": False}, {"rules": rules}, {"items": ["i1", "i2", "i8", "i9"]}):
        requests = [{"history": history, "k": 3, **options} for history in HISTORIES]
        answers = client.post("/recommend/batch", json={"requests": requests}).json()
        expected = model.recommend(histories=HISTORIES, k=3, **options)
        for number, answer in enumerate(answers):
            own = expected[expected["user_id"] == number]
            assert ids(answer) == own["item_id"].tolist()
            np.testing.assert_allclose([item["score"] for item in answer["items"]], own["score"], atol=1e-4)
        assert [answer["unknown_items"] for answer in answers] == [0, 0, 0, 1]
    one = client.post("/recommend", json={"user": "u3", "k": 4, "exclude": ["i2"]}).json()
    assert ids(one) == model.recommend(users=["u3"], k=4, exclude={"u3": ["i2"]})["item_id"].tolist()
    popular = client.post("/recommend", json={"user": "nobody", "k": 3}).json()
    assert popular["popular"]
    assert ids(popular) == model.recommend(users=["nobody"], k=3)["item_id"].tolist()
    similar = client.post("/similar", json={"item": "i4", "k": 5}).json()
    assert [item["item"] for item in similar] == model.similar_items(["i4"], 5)["similar_id"].tolist()
    scores = client.post("/score", json={"history": HISTORIES[0], "items": ["i9", "gone", "i2"]}).json()
    assert scores[1] is None
    np.testing.assert_allclose([scores[0], scores[2]], model.score(HISTORIES[:1], ["i9", "i2"])[0], atol=1e-4)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/recommend", {}, 422, "give a user or a history"),
        ("/recommend", {"history": ["i1"], "k": 501}, 422, "less than or equal to 500"),
        ("/recommend", {"history": ["i1"], "k": 13}, 422, "k=13: between 1 and 12 items can be recommended"),
        ("/recommend", {"history": ["i1"], "rule": {}}, 422, "Extra inputs are not permitted"),
        ("/recommend", {"history": ["i1"], "rules": {"where": "cost < 3"}}, 422, "there is no column 'cost'"),
        (
            "/recommend",
            {"history": ["i1"], "times": [1.0, 2.0]},
            422,
            "times[0] has 2 entries, its history",
        ),
        ("/recommend", {"history": ["i1"], "times": ["Infinity"]}, 422, "finite number"),
        ("/recommend", {"history": ["i1"] * 2001}, 422, "at most 2000 items"),
        ("/recommend", {"history": ["i" * 501]}, 422, "at most 500 characters"),
        ("/recommend/batch", {"requests": [{"history": []}] * 257}, 422, "at most 256 items"),
        ("/similar", {"item": "gone"}, 404, "item 'gone' is unknown"),
        ("/score", {"history": ["gone"], "items": ["i1"]}, 422, "have no item that the model knows"),
    ],
)
def test_bad_requests_are_refused(path: str, body: dict, status: int, message: str, client: TestClient) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert message in answer.text


def test_large_bodies_are_refused_unread(client: TestClient) -> None:
    answer = client.post("/recommend", content=b"x" * (BYTES + 1))
    assert answer.status_code == 413
    answer = client.post("/recommend", content=iter([b"{}"]))  # no length is said
    assert answer.status_code == 413


def test_health_metrics_and_the_interface(client: TestClient) -> None:
    about = client.get("/health").json()
    assert about["status"] == "ok"
    assert (about["model"], about["n_items"]) == ("SASRecCE", 12)
    client.post("/recommend", json={"history": ["i1"]})
    text = client.get("/metrics").text
    assert 'recbole_hyper_requests_total{path="/recommend",status="200"}' in text
    assert 'recbole_hyper_request_seconds_bucket{le="0.005",path="/recommend"}' in text
    assert "/recommend/batch" in client.get("/openapi.json").json()["paths"]
    assert client.get("/docs").status_code == 200


def test_what_the_page_reads(client: TestClient, bundle: Path) -> None:
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


def answer_of_a_worker(body: dict[str, Any], blocked: tuple[str, ...] = (), **settings: Any) -> dict[str, Any]:
    """What a worker, a process of its own that cannot import ``blocked``, answers to /recommend."""
    code = """
import json, sys
body, blocked = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(blocked))
from fastapi.testclient import TestClient
from recbole_hyper.runs import serve
with TestClient(serve.app()) as client:
    print(client.post("/recommend", json=body).text)
"""
    environment = {**os.environ, "RECBOLE_HYPER_SERVE": json.dumps(settings)}
    words = [sys.executable, "-c", code, json.dumps([body, blocked])]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_worker_imports_no_torch(bundle: Path) -> None:
    settings = {"run": str(bundle), "catalogue": str(bundle.parent / "catalogue.csv"), "threads": 1, "trust": {}}
    body = {"history": ["i3", "i1"], "k": 2, "rules": {"at_most": {"kind": 1}}}
    assert len(answer_of_a_worker(body, ("torch", "recbole"), **settings)["items"]) == 2


class Turned(Scorer):
    """Prefers what another scorer does not."""

    def __init__(self, other: Scorer) -> None:
        self.other = other

    def scores(self, query: Query) -> np.ndarray:
        return -self.other.scores(query)


def test_another_model_is_taken_while_requests_go_on(bundle: Path) -> None:
    """What was asked before the switch is answered, by either model, and all that comes after it by the new one."""
    first, state = opened(bundle), [0]
    recommender = copy.copy(first.recommender)
    recommender.scorer = Turned(first.recommender.scorer)
    second = Served(recommender, {**first.about, "model": "Other"}, {})
    service = Service(lambda: (first, second)[state[0]], lambda: state[0], every=0.01)
    with TestClient(with_page(service)) as client:
        old = ids(client.post("/recommend", json={"history": ["i3"], "k": 11}).json())
        answers: list[Any] = []

        def ask() -> None:
            for _ in range(40):
                answers.append(client.post("/recommend", json={"history": ["i3"], "k": 11}))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        state[0] = 1
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 120
        for _ in range(500):
            if client.get("/health").json()["model"] == "Other":
                break
            time.sleep(0.01)
        assert ids(client.post("/recommend", json={"history": ["i3"], "k": 11}).json()) == old[::-1]
        assert all(ids(answer.json()) in (old, old[::-1]) for answer in answers)


def test_the_bundle_follows_the_run(bundle: Path, tmp_path: Path) -> None:
    assert not prepare(bundle)  # it is there
    (bundle / "result.json").touch()
    with pytest.raises(ConfigError, match="has no finished run"):
        prepare(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / BUNDLE).mkdir()
    with pytest.raises(ConfigError, match="was not written by 'recbole-hyper serve', which would replace it"):
        write_bundle(tmp_path)


@pytest.mark.parametrize(("name", "more"), [("EASER", {}), ("FMLPRecMemory", {}), ("HSASRecCE", {"curvature": 0.4})])
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


def test_a_model_with_a_vector_per_user_is_not_served(folder: Path, tmp_path: Path) -> None:
    run("BPR", "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    with pytest.raises(ConfigError, match="BPR learned a vector per user and cannot score other histories"):
        write_bundle(tmp_path / "run")


@pytest.fixture
def foreign(folder: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The folder of a run without a bundle that names a plugin, the plugin, and the file that is there once it ran."""
    run("Pop", "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    return name_a_plugin(tmp_path / "run")


def test_a_bundle_is_written_by_no_code_that_a_folder_names(foreign: tuple[Path, Path, Path]) -> None:
    place, plugin, marker = foreign
    with pytest.raises(ConfigError, match="names the plugin"):
        write_bundle(place)
    assert not marker.exists()
    with trusting([plugin]):
        write_bundle(place)
    assert marker.exists()


@pytest.mark.slow  # starts processes
def test_serve_runs_no_code_that_a_folder_names(foreign: tuple[Path, Path, Path], capsys: Any) -> None:
    place, plugin, marker = foreign
    assert main(["serve", str(place)]) == 1
    said = capsys.readouterr().err
    assert f"{place} cannot be served: " in said
    assert f"names the plugin {plugin}: opening a run runs no code" in said
    other = place.parent / "other.py"
    other.write_text("pass\n")
    assert main(["serve", str(place), f"--plugins={other}"]) == 1
    assert not marker.exists()
    assert not (place / BUNDLE).exists()


def test_answers_are_not_held_back() -> None:
    """Several workers took 44 ms for an answer: the sockets that they inherit waited for acknowledgements."""
    delays = []

    class Watched(PromptProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            delays.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    config = uvicorn.Config(answer, port=(port := free_port()), http=Watched, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([config.bind_socket()],))  # as several workers have it
    thread.start()
    try:
        assert until(lambda: ask(f"http://127.0.0.1:{port}/") == {})
    finally:
        server.should_exit = True
        thread.join()
    assert delays
    assert not any(delays)


def test_inspect_shows_the_page_of_the_service(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    served: list[dict[str, Any]] = []
    monkeypatch.setattr("recbole_hyper.report.inspection.inspect_run", lambda *_: "tables")
    monkeypatch.setattr("recbole_hyper.runs.serve.serve", lambda run, host="", port=0, workers=0, catalogue=None,
                        plugins=(), trust_plugins=False: served.append(locals()))  # fmt: skip
    assert main(["inspect", "saved/shop"]) == 0
    assert served == []
    assert main(["inspect", "saved/shop", "--port=8123", "--catalogue=c.csv"]) == 0
    assert [(one["run"], one["host"], one["port"], one["catalogue"]) for one in served] == [
        ("saved/shop", "127.0.0.1", 8123, "c.csv")
    ]
    assert "http://127.0.0.1:8123 shows the model" in capsys.readouterr().out


@pytest.mark.slow  # starts processes
def test_serve_runs_code_that_the_user_trusts(foreign: tuple[Path, Path, Path]) -> None:
    """Both the process that writes the bundle and a worker, which scores by the model where it has no graph."""
    place, plugin, marker = foreign
    for trust in ({"files": [str(plugin)], "everything": False}, {"files": [], "everything": True}):
        shutil.rmtree(place / BUNDLE, ignore_errors=True)
        assert prepare(place, trust)
        marker.unlink()
        settings = {"run": str(place), "catalogue": None, "threads": 1, "trust": trust}
        assert len(answer_of_a_worker({"history": ["i3"]}, **settings)["items"]) == 10
        marker.unlink()


@pytest.mark.slow  # trains, and starts processes
def test_two_workers_count_together_and_both_take_a_resumed_run(folder: Path, tmp_path: Path) -> None:
    words = ["--epochs=3", "--resume=True", f"--output_dir={tmp_path / 'run'}"]
    run("SASRecCE", "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    address = f"http://127.0.0.1:{(port := free_port())}"
    serve = [sys.executable, "-m", "recbole_hyper", "serve", str(tmp_path / "run"), f"--port={port}", "--workers=2"]
    server = subprocess.Popen(serve)

    def sums(name: str) -> dict[str, float]:
        """The values of a metric by its labels."""
        text = urllib.request.urlopen(f"{address}/metrics", timeout=60).read().decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{")]
        return {labels[len(name) :]: float(value) for labels, _, value in lines}

    def models() -> set[str]:
        """What the workers that answer say of the run."""
        return {ask(f"{address}/health")["run"] for _ in range(20)}

    try:
        until(lambda: ask(f"{address}/health"))
        workers = [
            child for child in psutil.Process(server.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        assert len(workers) == 2
        for _ in range(60):
            assert len(ask(f"{address}/recommend", {"history": ["i3"], "k": 4})["items"]) == 4
        # whichever worker is asked has those of both
        counted = [sums("recbole_hyper_requests_total")['{path="/recommend",status="200"}'] for _ in range(10)]
        assert counted == [60.0] * 10
        assert sums("recbole_hyper_request_seconds_count")['{path="/recommend"}'] == 60
        before = models()
        assert len(before) == 1
        subprocess.run([sys.executable, "-m", "recbole_hyper", "run", *words], check=True, capture_output=True)
        until(lambda: sums("recbole_hyper_reloads_total").get('{outcome="taken"}') == 2)
        assert models().isdisjoint(before)
        assert 'outcome="failed"' not in str(sums("recbole_hyper_reloads_total"))
    finally:
        server.terminate()
        server.wait(30)
