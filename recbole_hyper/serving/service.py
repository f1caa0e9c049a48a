"""Recommendations over HTTP: a FastAPI application whose model can change between two requests.

Waiting requests are scored as one batch.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field, FiniteFloat
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from recbole_hyper.serving.bundle import Served
from recbole_hyper.serving.query import Query, joined
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Plan

# limits of one request: items of a history, length of a list, lists of a batch, bytes of the body
LONGEST, MOST, BATCH, BYTES = 2000, 500, 256, 4 << 20
# most requests that are scored together
_TOGETHER = 32
_REQUESTS = Counter("recbole_hyper_requests_total", "Requests by path and status", ["path", "status"])
_SECONDS = Histogram(
    "recbole_hyper_request_seconds", "Seconds of a request", ["path"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)  # fmt: skip
_LISTS = Counter("recbole_hyper_lists_total", "Recommended lists", ["kind"])
_RELOADS = Counter("recbole_hyper_reloads_total", "Model reloads", ["outcome"])

Identifier = Annotated[str, Field(max_length=500)]
Times = list[FiniteFloat] | None
logger = logging.getLogger("recbole_hyper")


class ListRequest(BaseModel, extra="forbid"):
    """One list: for a user of the data, or after a history."""

    user: Identifier | None = Field(None, description="user of the data; ignored if there is a history")
    history: list[Identifier] | None = Field(None, max_length=LONGEST, description="item ids, oldest first")
    times: Times = Field(None, max_length=LONGEST, description="times of the history, for models that read times")
    k: int = Field(10, ge=1, le=MOST)
    exclude_seen: bool | None = Field(None, description="leave out the history; null follows the run's evaluation")
    exclude: list[Identifier] = Field([], max_length=LONGEST, description="items to leave out")
    items: list[Identifier] | None = Field(None, max_length=LONGEST, description="recommend only these items")
    rules: dict[str, Any] = Field({}, description="where, at_most, at_least, boost, diversity, diversity_by")


class BatchRequest(BaseModel, extra="forbid"):
    """Several lists at once."""

    requests: list[ListRequest] = Field(max_length=BATCH)


class SimilarRequest(BaseModel, extra="forbid"):
    """The items most similar to one."""

    item: Identifier
    k: int = Field(10, ge=1, le=MOST)


class ScoreRequest(BaseModel, extra="forbid"):
    """Scores of items after a history."""

    history: list[Identifier] = Field(max_length=LONGEST)
    times: Times = Field(None, max_length=LONGEST)
    items: list[Identifier] = Field(max_length=LONGEST)


class Item(BaseModel):
    """An item and its score."""

    item: str
    score: float


class ListAnswer(BaseModel):
    """A list, best first; ``popular`` if the model knows no item of the history."""

    items: list[Item]
    popular: bool
    unknown_items: int


@dataclass(frozen=True)
class Job:
    """A list to compute: after the history of ``query``, without the items ``exclude``; ``pairs`` gets the result."""

    served: Served
    plan: Plan
    query: Query
    exclude: list[int]
    pairs: asyncio.Future[list[tuple[str, float]]]


class Service:
    """The model in use, and the queue of its requests.

    ``open_run`` returns the current model; it is called again when the value of ``state``, checked ``every`` so many
    seconds, changes.
    """

    def __init__(self, open_run: Callable[[], Served], state: Callable[[], Hashable], every: float = 1.0) -> None:
        self._open, self._state, self._every = open_run, state, every
        self._seen = state()
        self.served = open_run()
        self._queue: asyncio.Queue[Job] = asyncio.Queue()
        # one thread, because the compiled search uses several
        self._thread = ThreadPoolExecutor(1, "scores")

    @contextlib.asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        """Answer requests and watch for a new model until the application ends."""
        tasks = [asyncio.create_task(self._answer()), asyncio.create_task(self._watch())]
        yield
        for task in tasks:
            task.cancel()
        self._thread.shutdown(wait=False)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread that computes scores."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def recommend(self, served: Served, body: ListRequest) -> tuple[Query, list[tuple[str, float]]]:
        """Return the history of a request and its list, scored together with other waiting requests."""
        plan = served.plan(body.k, body.exclude_seen, body.items, body.rules)
        if body.history is not None:
            query = query_of(served, body.history, body.times)
        elif body.user is not None:
            query = served.recommender.query(users=[body.user])
        else:
            raise HTTPException(422, "give a user or a history")
        exclude = served.recommender.catalogue.ids.find(body.exclude).tolist()
        pairs: asyncio.Future[list[tuple[str, float]]] = asyncio.get_running_loop().create_future()
        await self._queue.put(Job(served, plan, query, exclude, pairs))
        return query, await pairs

    async def _answer(self) -> None:
        while True:
            jobs = [await self._queue.get()]
            while len(jobs) < _TOGETHER and not self._queue.empty():
                jobs.append(self._queue.get_nowait())
            for plan in {id(job.plan): job.plan for job in jobs}.values():
                own = [job for job in jobs if job.plan is plan and not job.pairs.done()]
                try:
                    lists: list[Any] = await self.in_thread(_lists, own)
                except Exception as error:  # every request needs an answer
                    lists = [error] * len(own)
                for job, pairs in zip(own, lists, strict=True):
                    if not job.pairs.done():
                        done = job.pairs.set_exception if isinstance(pairs, Exception) else job.pairs.set_result
                        done(pairs)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                state = self._state()
                if state == self._seen:
                    continue
                # meanwhile the old model answers
                self.served = await asyncio.to_thread(self._open)
                self._seen = state
                _RELOADS.labels("taken").inc()
                logger.info("now serving %s", self.served.about.get("run"))
            except Exception as error:  # if the bundle is being replaced, the next check finds it
                _RELOADS.labels("failed").inc()
                logger.warning("still serving the earlier model: %s", error)


def query_of(served: Served, history: list[str], times: list[float] | None) -> Query:
    """Return the query of one history; ValueError if the times have another length."""
    return served.recommender.query(histories=[history], times=None if times is None else [times])


def _lists(jobs: list[Job]) -> list[list[tuple[str, float]]]:
    """Return the lists of jobs with the same plan, as pairs of original id and score, best first."""
    if not jobs:
        return []
    recommender, plan = jobs[0].served.recommender, jobs[0].plan
    if any(job.exclude for job in jobs):
        plan = replace(plan, excluded={str(at): np.array(job.exclude, np.int64) for at, job in enumerate(jobs)})
    lists, scores = recommender.lists(joined([job.query for job in jobs]), plan)
    tokens = recommender.store.item_tokens[lists]
    return [
        list(zip(ids[filled].tolist(), values[filled].tolist(), strict=True))
        for ids, values, filled in zip(tokens, scores, lists > 0, strict=True)
    ]


class Measured:
    """Middleware that counts and times requests and refuses large bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, headers = time.perf_counter(), 500, dict(scope["headers"])

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or int(length) > BYTES or b"transfer-encoding" in headers:
                text = f"the body must have a content-length of at most {BYTES} bytes"
                refusal = JSONResponse({"detail": text}, 413)
                await refusal(scope, receive, sent)
            else:
                await self._app(scope, receive, sent)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            _REQUESTS.labels(path, status).inc()
            _SECONDS.labels(path).observe(time.perf_counter() - start)


class PromptProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """HTTP connections that send the body of an answer at once.

    Otherwise, on the sockets that uvicorn shares among workers, it waits 40 ms until the client acknowledges the head.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Switch off Nagle's algorithm for a new connection."""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


def make_app(service: Service) -> FastAPI:
    """Return the application with the routes of this module and /docs."""
    app = FastAPI(title="recbole-hyper serve", lifespan=service.running)
    app.add_middleware(Measured)

    @app.exception_handler(ValueError)
    async def refused(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Describe the model in use."""
        return {"status": "ok", **service.served.about}

    @app.get("/metrics")
    def metrics() -> Response:
        """Return counts and times of the requests of all workers, for Prometheus."""
        registry = None
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            multiprocess.MultiProcessCollector(registry := CollectorRegistry())
        return Response(generate_latest(registry or REGISTRY), media_type=CONTENT_TYPE_LATEST)

    _add_model_routes(app, service)
    return app


def _add_model_routes(app: FastAPI, service: Service) -> None:
    async def answered(served: Served, body: ListRequest) -> ListAnswer:
        query, pairs = await service.recommend(served, body)
        popular = not query.warm[0]
        _LISTS.labels("popular" if popular else "model").inc()
        items = [Item.model_construct(item=item, score=score) for item, score in pairs]
        return ListAnswer.model_construct(items=items, popular=popular, unknown_items=query.unknown_items)

    @app.post("/recommend")
    async def recommend(body: ListRequest) -> ListAnswer:
        """Recommend items to one user, or after one history."""
        return await answered(service.served, body)

    @app.post("/recommend/batch")
    async def batch(body: BatchRequest) -> list[ListAnswer]:
        """Recommend items to several users, or after several histories, in order."""
        served = service.served
        return await asyncio.gather(*(answered(served, one) for one in body.requests))

    @app.post("/similar")
    async def similar(body: SimilarRequest) -> list[Item]:
        """Return the items most similar to one."""
        recommender = service.served.recommender
        numbers = known_item(recommender, body.item)
        k = min(body.k, recommender.n_recommendable - 1)
        _, lists, scores = await service.in_thread(recommender.neighbours, numbers, k)
        ids = recommender.store.item_tokens[lists[0]].tolist()
        return [Item(item=item, score=score) for item, score in zip(ids, scores[0].tolist(), strict=True)]

    @app.post("/score")
    async def score(body: ScoreRequest) -> list[float | None]:
        """Return the scores of items after a history, null for unknown items."""
        recommender = service.served.recommender
        query = query_of(service.served, body.history, body.times)
        query.require_warm()
        scores = (await service.in_thread(recommender.scorer.scores, query))[0]
        numbers = recommender.catalogue.ids.find(body.items).tolist()
        return [float(scores[number]) if number else None for number in numbers]


def known_item(recommender: Recommender, item: str) -> npt.NDArray[np.int64]:
    """Return the number (1,) of an item; HTTPException 404 for one that is unknown."""
    numbers = recommender.catalogue.ids.find([item])
    if not numbers[0]:
        raise HTTPException(404, f"item {item!r} is unknown")
    return numbers
