"""The service answers as the run, under the same rules, from processes without torch; a switch drops no request."""

import asyncio
import copy
import math
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import load
from recbole_hyper.data.tables import where
from recbole_hyper.data.tables.engine import TooSlowError
from recbole_hyper.serving.bundle import Served
from recbole_hyper.serving.query import Query, Scorer
from tests.serving.conftest import ITEMS, ask, free_port, ids, opened, until

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

import uvicorn
from fastapi.testclient import TestClient

from recbole_hyper.serving.page.routes import with_page
from recbole_hyper.serving.service import BYTES, PromptProtocol, Service

HISTORIES = [["i3", "i1", "i4"], ["i5"], [f"i{step % 12}" for step in range(30)], ["i7", "gone"]]


@pytest.fixture
def client(bundle: Path) -> Any:
    with TestClient(with_page(Service(lambda: opened(bundle), lambda: 0))) as made:
        yield made


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
        ("/recommend", {"history": ["i1"], "rules": {"where": "cost < 3"}}, 422, "the table has no column 'cost'"),
        ("/recommend", {"history": ["i1"], "times": ["Infinity"]}, 422, "finite number"),
        ("/recommend", {"history": ["i1"] * 2001}, 422, "at most 2000 items"),
        ("/recommend", {"history": ["i1"], "k": "3"}, 422, "valid integer"),
        ("/recommend", {"history": ["i1\0"]}, 422, "an id has no NUL character"),
        ("/recommend", {"history": ["i1"], "rules": {"boost": {"i2\0": 1}}}, 422, "NUL character"),
        ("/recommend", {"history": ["i1"], "rules": {"boost": {"i2": 1e39}}}, 422, "numbers from -3e+38 to"),
        ("/recommend", {"history": ["i1"], "rules": {"diversity": 10**400}}, 422, "a number in [0, 1]"),
        ("/recommend", {"history": ["i1"], "rules": {"where": f"interactions < {10**30}"}}, 200, "items"),
        ("/recommend", {"history": ["i1"], "rules": {"where": f"price > {'9' * 5000}"}}, 422, "no item that may be"),
        ("/recommend", {"history": ["i1"], "rules": {"at_most": {"kind": 10**30}}}, 200, "items"),
        ("/recommend", {"histories": [["i1"], ["i2"]], "times": [[1.0]]}, 422, "times must have the form of histories"),
        ("/recommend", {"histories": {"a": ["i1"]}, "times": {"b": [1.0]}}, 422, "the same names"),
        ("/recommend", {"users": ["u1"] * 257}, 422, "at most 256 items"),
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


def test_numbers_that_json_does_not_have_are_refused(client: TestClient) -> None:
    """1e400 is read as infinity; the answer that quoted it could not be written, and was an error 500."""
    for body in ('{"history": ["i1"], "times": [1e400]}', '{"history": ["i1"], "k": NaN}', "[" * 5000, "{"):
        answer = client.post("/recommend", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), body[:80]
        assert answer.json()["detail"]
    answer = client.post("/recommend", content=b"{}", headers={"content-length": "9" * 5000})
    assert answer.status_code == 413


def test_users_and_histories_have_a_list_each(client: TestClient) -> None:
    def one(**body: Any) -> Any:
        return client.post("/recommend", json={"k": 3, **body}).json()

    assert one(users=["u1", "nobody"]) == [one(user="u1"), one(user="nobody")]
    assert one(histories=HISTORIES) == [one(history=history) for history in HISTORIES]
    rules = {"at_most": {"kind": 1}}
    named = one(histories={"anna": ["i3"], "ben": ["i5"]}, rules=rules, times={"anna": [5.0], "ben": [6.0]})
    assert named == {"anna": one(history=["i3"], rules=rules), "ben": one(history=["i5"], rules=rules)}
    assert one(histories=[["i3"]], times=[[5.0]]) == [one(history=["i3"])]
    assert one(users=[]) == []


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
    docs = client.get("/docs")
    assert docs.status_code == 200
    # a shop's network may have no way out
    assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", docs.text) == []
    assert client.get("/redoc").status_code == 404


class Turned(Scorer):
    """Prefers what another scorer does not."""

    def __init__(self, other: Scorer) -> None:
        self.other = other

    def scores(self, query: Query) -> np.ndarray:
        return -self.other.scores(query)


def test_the_model_changes_between_requests(bundle: Path) -> None:
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


def test_an_application_may_start_again(bundle: Path) -> None:
    """Its queue belonged to the loop of the first start: the second one answered nothing, for ever."""
    app = with_page(Service(lambda: opened(bundle), lambda: 0))
    answers = []
    for _ in range(3):
        with TestClient(app) as client:
            answers.append(client.post("/recommend", json={"history": ["i3"], "k": 3}).json())
            assert len(client.post("/similar", json={"item": "i4", "k": 5}).json()) == 5
    assert answers[0] == answers[1] == answers[2]


class Failing(Scorer):
    """Raises an error."""

    def __init__(self, other: Scorer, error: BaseException) -> None:
        self.other, self.error = other, error

    def scores(self, query: Query) -> np.ndarray:
        raise self.error


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(3), asyncio.CancelledError(), StopIteration()])
def test_an_error_in_the_thread_of_scores_is_an_answer(error: BaseException, bundle: Path) -> None:
    first = opened(bundle)
    good = first.recommender.scorer
    first.recommender.scorer = Failing(good, error)
    with TestClient(with_page(Service(lambda: first, lambda: 0)), raise_server_exceptions=False) as client:
        assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code == 500
        first.recommender.scorer = good
        assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code == 200


def test_a_thread_that_cannot_start_is_an_answer(bundle: Path) -> None:
    service = Service(lambda: opened(bundle), lambda: 0)
    with TestClient(with_page(service), raise_server_exceptions=False) as client:
        service._thread.shutdown()
        assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code == 500
        assert client.post("/similar", json={"item": "i4", "k": 5}).status_code == 500


def test_a_thread_that_hangs_is_an_answer(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recbole_hyper.serving.service._PATIENCE", 0.05)
    service, free = Service(lambda: opened(bundle), lambda: 0), threading.Event()
    with TestClient(with_page(service)) as client:
        service._thread.submit(free.wait)
        answer = client.post("/recommend", json={"history": ["i3"], "k": 3})
        assert (answer.status_code, answer.json()["detail"]) == (503, "no answer within 0.05 seconds")
        free.set()


class Slow:
    """A condition that takes some seconds."""

    def __init__(self) -> None:
        self.begun, self.takes = threading.Event(), math.inf

    def mask(self, columns: Any, seconds: float) -> np.ndarray:
        self.begun.set()
        time.sleep(max(0.0, min(seconds, self.takes)))
        if seconds < self.takes:
            raise TooSlowError(f"it takes more than {seconds:.2g} seconds")
        return np.ones(ITEMS + 1, dtype=bool)


def test_a_slow_condition_delays_no_other_request(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition of a client held up /health for seconds, and stopped the service for minutes."""
    slow, parse = Slow(), where.parse_where
    monkeypatch.setattr(where, "parse_where", lambda text: slow if "slow" in text else parse(text))
    monkeypatch.setattr("recbole_hyper.serving.service._PLANNING", 2.0)
    with TestClient(with_page(Service(lambda: opened(bundle), lambda: 0))) as client:

        def asked(condition: str = "") -> Any:
            return client.post("/recommend", json={"history": ["i3"], "rules": {"where": condition}, "k": 3})

        waiting: list[Any] = []
        thread = threading.Thread(target=lambda: waiting.append(asked("slow > price")))
        thread.start()
        assert slow.begun.wait(30)
        answers = [
            client.get("/health"),
            asked(),
            asked("price > 3"),
            asked("sleep_ms(250) > price"),
            asked("cost > 1"),
        ]
        assert not waiting, "the others are answered first"
        assert [answer.status_code for answer in answers] == [200, 200, 200, 422, 422]
        thread.join()
        assert (waiting[0].status_code, waiting[0].json()["detail"]) == (503, "it takes more than 2 seconds")
        many = [{"history": ["i3"], "k": 3, "rules": {"where": f"slow > {number}"}} for number in range(200)]
        begin = time.monotonic()
        assert client.post("/recommend/batch", json={"requests": many}).status_code == 503
        assert time.monotonic() - begin < 30, "the first condition ends the request"
        monkeypatch.setattr("recbole_hyper.serving.service._PATIENCE", 0.5)
        slow.takes = 0.1
        assert client.post("/recommend/batch", json={"requests": many}).status_code == 503, "all of them take too long"
        assert asked("slow > price").status_code == 200


@pytest.mark.parametrize("name", ["_answer", "_watch"])
def test_a_dead_task_ends_the_process(name: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    service = Service(lambda: opened(bundle), lambda: 0, fail=failed.set)

    async def dead() -> None:
        await asyncio.sleep(0.2)
        raise OSError("nobody expected this")

    monkeypatch.setattr(service, name, dead)
    with TestClient(with_page(service)) as client:
        # whatever waits is answered
        assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code in (200, 503)
        assert failed.wait(30)
        assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code == 503


def test_what_cannot_be_read_is_not_read_at_every_look(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken catalogue was read, and warned about, every second."""
    state, opens = [0], []

    def open_run() -> Served:
        opens.append(state[0])
        if state[0] == 1:
            raise ValueError("a broken catalogue")
        return opened(bundle)

    def look() -> int:
        if state[0] == 2:
            raise FileNotFoundError("catalogue.csv")
        return state[0]

    with TestClient(with_page(Service(open_run, look, every=0.005))) as client:
        for state[0] in (1, 2, 3):
            time.sleep(0.1)
            assert client.post("/recommend", json={"history": ["i3"], "k": 3}).status_code == 200
        until(lambda: opens[-1] == 3)
    assert opens[0] == 0
    assert opens.count(3) == 1
    assert 1 <= opens.count(1) < 5
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "a broken catalogue" in warnings[0]
    assert "catalogue.csv" in warnings[1]


def test_answers_are_sent_at_once() -> None:
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
