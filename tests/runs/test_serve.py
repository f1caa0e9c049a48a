"""Serving a run: workers without torch, code that is trusted, and a run that changes."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.runs import serve as module
from recbole_hyper.runs.serve import prepare
from recbole_hyper.serving.bundle import BUNDLE
from tests.serving.conftest import ask, free_port, keys, until


def answer_of_a_worker(body: dict[str, Any], blocked: tuple[str, ...] = (), **settings: Any) -> dict[str, Any]:
    """What a worker, a separate process that cannot import ``blocked``, answers to /recommend."""
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


def test_a_port_in_use_is_one_error_before_any_work(bundle: Path, capsys: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", str(bundle), f"--port={port}"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"error: cannot listen on --port={port} of 127.0.0.1, choose another: [Errno 98]" in said.err
    assert main(["serve", str(bundle), "--port=70000"]) == 1
    assert "error: cannot listen on --port=70000" in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "shopp"), "--port=0"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/shopp" in line
    assert "result.json" in line


def test_nothing_is_announced_without_the_extra(bundle, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", str(bundle)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "pip install 'recbole-hyper[serve]'" in said.err


def test_the_thread_that_writes_bundles_survives_errors(tmp_path, monkeypatch, caplog) -> None:
    """A file that was replaced between two looks ended it silently, and no model was taken any more."""
    stopped, looks = threading.Event(), []

    def fingerprint(place: Path) -> str:
        looks.append(place)
        if len(looks) in (1, 2):
            raise FileNotFoundError("replaced")
        if len(looks) > 6:
            stopped.set()
        return "state"

    def broken(place: Path, trust: Any) -> bool:
        raise RuntimeError("damaged")

    monkeypatch.setattr(module, "fingerprint", fingerprint)
    monkeypatch.setattr(module, "prepare", broken)
    monkeypatch.setattr(module, "EVERY", 0.0)
    module._keep_prepared(tmp_path, {}, stopped)
    assert len(looks) == 7
    # one warning for each fault, not for each look
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["replaced", "damaged"]


def test_a_file_that_disappears_between_two_looks_does_not_count(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.fingerprint(bundle)
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # it was there a moment ago
    assert module.fingerprint(bundle) == before


@pytest.mark.slow  # trains, and starts processes
def test_two_workers_share_metrics_and_reload_a_resumed_run(folder: Path, tmp_path: Path) -> None:
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
        workers = [one for one in psutil.Process(server.pid).children() if "spawn_main" in " ".join(one.cmdline())]
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
