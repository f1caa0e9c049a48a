"""Recommendations over HTTP: FastAPI over an engine that is replaced while requests go on.

Requests that arrive while others are computed are computed together, in one product with the items.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Response
from fastapi import Request as HTTPRequest
from fastapi.responses import FileResponse, JSONResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    multiprocess,
)
from pydantic import BaseModel, ConfigDict, Field

from recbole_hyper.serving.engine import Engine, Request

PAGE = Path(__file__).with_name("page")
# of one request: what a shop needs, and no more than a worker can hold
LONGEST, MOST, BATCH, BYTES = 2000, 500, 256, 4 << 20
# requests that are computed together
_TOGETHER = 32
_REQUESTS = Counter("recbole_hyper_requests_total", "Requests by path and status", ["path", "status"])
_SECONDS = Histogram(
    "recbole_hyper_request_seconds", "Seconds of a request", ["path"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)  # fmt: skip
_LISTS = Counter("recbole_hyper_lists_total", "Lists that were recommended", ["kind"])
_RELOADS = Counter("recbole_hyper_reloads_total", "Times that another model was taken", ["outcome"])

Identifier = Annotated[str, Field(max_length=500)]
logger = logging.getLogger("recbole_hyper")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ListRequest(_Body):
    """One list: for a user of the data, or after a history."""

    user: Identifier | None = Field(None, description="user of the data; without a history, what the data have is read")
    history: list[Identifier] | None = Field(None, max_length=LONGEST, description="item ids, oldest first")
    times: list[float] | None = Field(
        None, max_length=LONGEST, description="of the history, for models that read times"
    )
    k: int = Field(10, ge=1, le=MOST)
    exclude_seen: bool | None = Field(None, description="leave out the history; null does as the run did")
    exclude: list[Identifier] = Field([], max_length=LONGEST, description="items that this list leaves out")
    items: list[Identifier] | None = Field(None, max_length=LONGEST, description="the only items of this list")
    rules: dict[str, Any] = Field({}, description="where, at_most, at_least, boost, diversity, diversity_by")


class BatchRequest(_Body):
    """Several lists at one time."""

    requests: list[ListRequest] = Field(max_length=BATCH)


class SimilarRequest(_Body):
    """The items most like one."""

    item: Identifier
    k: int = Field(10, ge=1, le=MOST)


class ScoreRequest(_Body):
    """Scores of given items after a history."""

    history: list[Identifier] = Field(max_length=LONGEST)
    times: list[float] | None = Field(None, max_length=LONGEST)
    items: list[Identifier] = Field(max_length=LONGEST)


class Item(BaseModel):
    """An item and its score."""

    item: str
    score: float


class ListAnswer(BaseModel):
    """A list, best first; ``popular`` where the model knows nothing of the history."""

    items: list[Item]
    popular: bool
    unknown_items: int


@dataclass(frozen=True)
class _Job:
    engine: Engine
    request: Request
    answer: asyncio.Future[list[tuple[str, float]]]


class Service:
    """An engine in use, and the queue before it.

    Args:
        open_engine: gives the engine of what is there now.
        state: changes when ``open_engine`` would give another one.
        every: seconds between two looks at ``state``.
    """

    def __init__(self, open_engine: Callable[[], Engine], state: Callable[[], Hashable], every: float = 1.0) -> None:
        self._open, self._state, self._every = open_engine, state, every
        self._seen = state()
        self.engine = open_engine()
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        # one thread: the compiled search has threads of its own
        self._thread = ThreadPoolExecutor(1, "scores")

    @contextlib.asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        """Answer, and look for another model, until the application ends."""
        tasks = [asyncio.create_task(self._answer()), asyncio.create_task(self._watch())]
        yield
        for task in tasks:
            task.cancel()
        self._thread.shutdown(wait=False)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run what takes the processor in the thread of the scores."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def recommend(self, engine: Engine, request: Request) -> list[tuple[str, float]]:
        """Return the list of a request, computed together with those that wait beside it."""
        answer: asyncio.Future[list[tuple[str, float]]] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Job(engine, request, answer))
        return await answer

    async def _answer(self) -> None:
        while True:
            jobs = [await self._queue.get()]
            while len(jobs) < _TOGETHER and not self._queue.empty():
                jobs.append(self._queue.get_nowait())
            for engine in {id(job.engine): job.engine for job in jobs}.values():
                own = [job for job in jobs if job.engine is engine and not job.answer.done()]
                try:
                    lists = await self.in_thread(engine.recommend, [job.request for job in own])
                except Exception as error:  # each waits for an answer
                    lists = [error] * len(own)
                for job, found in zip(own, lists, strict=True):
                    if job.answer.done():
                        continue
                    if isinstance(found, Exception):
                        job.answer.set_exception(found)
                    else:
                        job.answer.set_result(found)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                state = self._state()
                if state == self._seen:
                    continue
                # the old model goes on answering meanwhile
                self.engine = await asyncio.to_thread(self._open)
                self._seen = state
                _RELOADS.labels("taken").inc()
                logger.info("now serving %s", self.engine.about.get("run"))
            except Exception as error:  # of a bundle that is being replaced: the next look finds it
                _RELOADS.labels("failed").inc()
                logger.warning("the model in use stays: %s", error)


def make_app(service: Service) -> FastAPI:
    """Return the application; its pages are /, /docs, /health and /metrics."""
    app = FastAPI(title="recbole-hyper serve", lifespan=service.running)

    @app.middleware("http")
    async def measured(request: HTTPRequest, go_on: Callable[[HTTPRequest], Awaitable[Response]]) -> Response:
        start = time.perf_counter()
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BYTES or "transfer-encoding" in request.headers:
            response: Response = JSONResponse({"detail": f"a body of at most {BYTES} bytes, with its length"}, 413)
        else:
            response = await go_on(request)
        route = request.scope.get("route")
        path = getattr(route, "path", "other")
        _REQUESTS.labels(path, response.status_code).inc()
        _SECONDS.labels(path).observe(time.perf_counter() - start)
        return response

    @app.exception_handler(ValueError)
    async def refused(_: HTTPRequest, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    _add_questions(app, service)
    _add_state(app, service)
    _add_page(app, service)
    return app


def _request(engine: Engine, body: ListRequest) -> tuple[Request, int]:
    """Return what the engine is given for a body, and how many items of its history are unknown."""
    if (body.user is None) and (body.history is None):
        raise HTTPException(422, "give a user or a history")
    plan = engine.plan(body.k, body.exclude_seen, body.rules, body.items)
    if body.history is None:
        return Request(engine.history_of(str(body.user)) or ([], []), plan, engine.known(body.exclude)), 0
    history, unknown = _history(engine, body.history, body.times)
    return Request(history, plan, engine.known(body.exclude)), unknown


def _history(engine: Engine, items: list[str], times: list[float] | None) -> Any:
    if times is not None and (len(times) != len(items) or not np.isfinite(times).all()):
        raise HTTPException(422, f"times: {len(items)} finite numbers are needed, one for each item of the history")
    return engine.history(items, times)


def _add_questions(app: FastAPI, service: Service) -> None:
    async def answered(engine: Engine, body: ListRequest) -> ListAnswer:
        request, unknown = _request(engine, body)
        pairs = await service.recommend(engine, request)
        popular = not request.history[0]
        _LISTS.labels("popular" if popular else "model").inc()
        items = [Item.model_construct(item=item, score=score) for item, score in pairs]
        return ListAnswer.model_construct(items=items, popular=popular, unknown_items=unknown)

    @app.post("/recommend")
    async def recommend(body: ListRequest) -> ListAnswer:
        """Recommend items to one user, or after one history."""
        return await answered(service.engine, body)

    @app.post("/recommend/batch")
    async def batch(body: BatchRequest) -> list[ListAnswer]:
        """Recommend items to several users, or after several histories; the answers are in order."""
        engine = service.engine
        return await asyncio.gather(*(answered(engine, one) for one in body.requests))

    @app.post("/similar")
    async def similar(body: SimilarRequest) -> list[Item]:
        """Return the items most like one."""
        engine = service.engine
        numbers = engine.known([body.item])
        if not numbers:
            raise HTTPException(404, f"item {body.item!r} is unknown")
        k = min(body.k, engine.catalogue.n_recommendable - 1)
        pairs = await service.in_thread(engine.similar, numbers[0], k)
        return [Item(item=item, score=score) for item, score in pairs]

    @app.post("/score")
    async def score(body: ScoreRequest) -> list[float | None]:
        """Return the scores of items after a history, null for unknown items."""
        engine = service.engine
        history, _ = _history(engine, body.history, body.times)
        if not history[0]:
            raise HTTPException(422, "the history holds no item that the model knows")
        scores = (await service.in_thread(engine.scorer, [history]))[0]
        numbers = [(engine.known([item]) or [0])[0] for item in body.items]
        return [float(scores[number]) if number else None for number in numbers]


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Say which model answers."""
        return {"status": "ok", **service.engine.about}

    @app.get("/metrics")
    def metrics() -> Response:
        """Return counts and times of requests for Prometheus, of all workers together."""
        registry = CollectorRegistry()
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            multiprocess.MultiProcessCollector(registry)
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _add_page(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/page.js", include_in_schema=False)
    def script() -> FileResponse:
        return FileResponse(PAGE / "page.js", media_type="text/javascript")

    @app.get("/search", include_in_schema=False)
    async def search(text: str = "", most: int = 20) -> list[dict[str, Any]]:
        return await service.in_thread(service.engine.search, text[:200], min(most, 100))

    @app.get("/near", include_in_schema=False)
    async def near(item: str) -> list[dict[str, Any]]:
        engine = service.engine
        numbers = engine.known([item])
        if not numbers:
            raise HTTPException(404, f"item {item!r} is unknown")
        pairs = await service.in_thread(engine.similar, numbers[0], min(10, engine.catalogue.n_recommendable - 1))
        described = engine.described(engine.known([one for one, _ in pairs]))
        return [{**one, "score": score} for one, (_, score) in zip(described, pairs, strict=True)]

    @app.get("/map", include_in_schema=False)
    async def item_map(column: str = "") -> dict[str, Any]:
        return await service.in_thread(service.engine.map, column)

    @app.post("/explain", include_in_schema=False)
    async def explain(body: ListRequest) -> dict[str, Any]:
        engine = service.engine
        request, unknown = _request(engine, body)
        pairs = await service.recommend(engine, request)
        items = engine.known([item for item, _ in pairs])
        parts = await service.in_thread(engine.contributions, request.history, items) if request.history[0] else []
        return {"items": engine.described(items), "scores": [score for _, score in pairs],
                "history": engine.described(request.history[0]), "contributions": parts,
                "popular": not request.history[0], "unknown_items": unknown}  # fmt: skip
