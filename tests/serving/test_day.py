"""A day of a service: new catalogues under load, broken ones, a port in use, a killed worker; no request is lost."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.serving.conftest import ITEMS, ask, until

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from prometheus_client.parser import text_string_to_metric_families

RELOADS = 50
QUESTION = {"history": ["i3", "i1"], "k": 3, "rules": {"at_most": {"kind": 1}, "where": "price >= 0"}}


def write_catalogue(file: Path, day: int) -> None:
    """Replace the catalogue: the items of even days have one kind each, those of odd days share four."""
    kinds = [item if day % 2 == 0 else item % 4 for item in range(ITEMS)]
    rows = "".join(f"i{item},k{kind},{day}\n" for item, kind in enumerate(kinds))
    part = file.with_suffix(".part")
    part.write_text(f"item_id,kind,price\n{rows}")
    part.replace(file)


def metric(text: str, name: str, **labels: str) -> float:
    """Return the value of a metric, read by the parser of Prometheus; 0 if it is missing."""
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


class Customers:
    """Threads that ask without a pause; a connection that breaks is tried once more, as any client does."""

    def __init__(self, port: int, n: int) -> None:
        self.port, self.stop, self.answers, self.failed, self.broken = port, threading.Event(), [0], [], [0]
        self.threads = [threading.Thread(target=self.run) for _ in range(n)]

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop.is_set():
            for attempt in range(5):
                try:
                    connection.request("POST", "/recommend", json.dumps(QUESTION), {"content-type": "application/json"})
                    reply = connection.getresponse()
                    answer = json.loads(reply.read())
                    if reply.status != 200 or len(answer["items"]) != 3:
                        self.failed.append(answer)
                    self.answers[0] += 1
                    break
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    self.broken[0] += 1
                    if attempt == 4:
                        self.failed.append(error)

    def __enter__(self) -> Customers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


@contextmanager
def served(run: Path, catalogue: Path, workers: int) -> Iterator[tuple[subprocess.Popen, int]]:
    """Run the real command, which looks for changes ten times as often; yield it and its port when it says so."""
    code = "import sys; from recbole_hyper.runs import serve; serve.EVERY = 0.1; from recbole_hyper.cli import main; "
    words = ["serve", str(run), "--port=0", f"--workers={workers}", f"--catalogue={catalogue}"]
    command = [sys.executable, "-c", code + "sys.exit(main(sys.argv[1:]))", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line
        yield server, int(line.split(":")[2].split()[0])
    finally:
        server.terminate()
        server.communicate(timeout=60)


def workers_of(server: subprocess.Popen) -> list[int]:
    """Return the process ids of the living workers."""
    children = [one for one in psutil.Process(server.pid).children() if one.status() != psutil.STATUS_ZOMBIE]
    return [one.pid for one in children if "spawn_main" in " ".join(one.cmdline())]


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("workers", [1, 2])
def test_a_day_of_the_service(workers: int, bundle: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.csv"
    write_catalogue(catalogue, 0)
    with served(bundle, catalogue, workers) as (server, port), Customers(port, 3) as customers:
        address = f"http://127.0.0.1:{port}"

        def metrics() -> str:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

        def taken() -> float:
            return metric(metrics(), "recbole_hyper_reloads_total", outcome="taken")

        def failures() -> float:
            return metric(metrics(), "recbole_hyper_reloads_total", outcome="failed")

        def is_taken(seconds: float) -> bool:
            """Write a new catalogue; return whether all workers take it within some seconds."""
            nonlocal day
            before, end, day = taken(), time.monotonic() + seconds, day + 1
            write_catalogue(catalogue, day)
            while time.monotonic() < end:
                if taken() >= before + workers:
                    return True
                time.sleep(0.02)
            return False

        # a second service on this port is one error
        again = [sys.executable, "-m", "recbole_hyper", "serve", str(bundle), f"--port={port}"]
        done = subprocess.run(again, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: cannot listen on --port={port} of 127.0.0.1")
        assert done.stderr.count("\n") == 1

        day = 0
        for number in range(1, RELOADS + 1):
            if number % 10 == 0:
                before = failures()
                catalogue.write_text("nothing,to\nsee,here\n" if number % 20 == 0 else "\0\1\2")
                until(lambda before=before: failures() > before, 60)
                assert len(ask(f"{address}/recommend", QUESTION)["items"]) == 3
            if number == 25:
                catalogue.unlink()
                time.sleep(0.3)
            assert is_taken(60)
            if workers > 1 and number == 30:
                os.kill(workers_of(server)[0], signal.SIGKILL)
                # the supervisor starts another one, which takes catalogues as well
                until(lambda: len(workers_of(server)) == workers and is_taken(5), 120)
        answered = metric(metrics(), "recbole_hyper_requests_total", path="/recommend", status="200")
        assert customers.failed == []
        assert customers.broken[0] <= 3 * (workers > 1)
        assert customers.answers[0] > 3 * RELOADS
        # a killed worker may have counted what its client did not get
        assert answered >= customers.answers[0] - 3
        text = metrics()
    assert metric(text, "recbole_hyper_request_seconds_count", path="/recommend") >= answered
    assert metric(text, "recbole_hyper_requests_total", path="/recommend") == metric(
        text, "recbole_hyper_requests_total", path="/recommend", status="200"
    )
