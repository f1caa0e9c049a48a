"""Recommendations over HTTP: a FastAPI application whose model can change between two requests.

Waiting requests are scored as one batch. A request gets an answer, or the process ends: no request waits for ever.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, StrictBool, StrictInt
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from recbole_hyper.data.tables.engine import TooSlowError
from recbole_hyper.serving.bundle import Served
from recbole_hyper.serving.query import Query, joined
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Plan

# limits of one request: items of a history, length of a list, lists of a batch, bytes of the body
LONGEST, MOST, BATCH, BYTES = 2000, 500, 256, 4 << 20
# most requests that are scored together
_TOGETHER = 32
# after this many seconds a request is answered with an error, and so is one with a condition on the catalogue
_PATIENCE, _PLANNING = 60.0, 5.0
# conditions that are evaluated at a time
_PLANNERS = 4
# a model or a catalogue that cannot be read is tried again after this many looks
_LOOKS = 30
_REQUESTS = Counter("recbole_hyper_requests_total", "Requests by path and status", ["path", "status"])
_SECONDS = Histogram(
    "recbole_hyper_request_seconds", "Seconds of a request", ["path"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)  # fmt: skip
_LISTS = Counter("recbole_hyper_lists_total", "Recommended lists", ["kind"])
_RELOADS = Counter("recbole_hyper_reloads_total", "Model reloads", ["outcome"])


def _no_nul(text: str) -> str:
    if "\0" in text:  # numpy would cut the id there, and find another one
        raise ValueError("an id has no NUL character")
    return text


Identifier = Annotated[str, Field(max_length=500), AfterValidator(_no_nul)]
History = Annotated[list[Identifier], Field(max_length=LONGEST)]
Times = Annotated[list[FiniteFloat], Field(max_length=LONGEST)]
logger = logging.getLogger("recbole_hyper")


class ListRequest(BaseModel, extra="forbid"):
    """One list: for a user of the data, or after a history."""

    user: Identifier | None = Field(None, description="user of the data; ignored if there is a history")
    history: History | None = Field(None, description="item ids, oldest first")
    times: Times | None = Field(None, description="times of the history, for models that read times")
    k: StrictInt = Field(10, ge=1, le=MOST)
    exclude_seen: StrictBool | None = Field(None, description="leave out the history; null is as in the run")
    exclude: History = Field([], description="items to leave out")
    items: History | None = Field(None, description="recommend only these items")
    rules: dict[str, Any] = Field({}, description="where, at_most, at_least, boost, diversity, diversity_by")


class ManyRequest(ListRequest):
    """One list, or with ``users`` or ``histories`` one for each of them, under the same rules."""

    times: Times | list[Times] | dict[str, Times] | None = Field(  # type: ignore[assignment]
        None, description="times of the history, or of each of the histories"
    )
    users: list[Identifier] | None = Field(None, max_length=BATCH, description="users of the data, a list for each")
    histories: Annotated[list[History] | dict[Identifier, History], Field(max_length=BATCH)] | None = Field(
        None, description="histories, or histories by name, a list for each"
    )

    def each(self) -> dict[str, ListRequest] | list[ListRequest] | None:
        """Return the requests of ``users`` or ``histories``; None for a single list. ValueError for several of them."""
        given = [name for name in ("user", "history", "users", "histories") if getattr(self, name) is not None]
        if self.users is None and self.histories is None:
            return None
        if len(given) > 1:
            raise ValueError(f"give one of {' and '.join(given)}")
        if self.users is not None:
            if self.times is not None:
                raise ValueError("times belong to histories; the run's data has the times of users")
            return [self._one(user=user) for user in self.users]
        times, histories = self.times, self.histories or []
        if times is not None and (type(times) is not type(histories) or len(times) != len(histories)):
            raise ValueError("times must have the form of histories: the times of each of them")
        if isinstance(histories, dict):
            assert times is None or isinstance(times, dict)
            if times is not None and times.keys() != histories.keys():
                raise ValueError("times and histories must have the same names")
            return {name: self._one(history=one, times=times and times[name]) for name, one in histories.items()}
        rows = [None] * len(histories) if times is None else list(times)
        return [self._one(history=history, times=own) for history, own in zip(histories, rows, strict=True)]

    def _one(self, **own: Any) -> ListRequest:
        common = {name: getattr(self, name) for name in ("k", "exclude_seen", "exclude", "items", "rules")}
        return ListRequest.model_construct(**common, **own)


class BatchRequest(BaseModel, extra="forbid"):
    """Several lists at once."""

    requests: list[ListRequest] = Field(max_length=BATCH)


class SimilarRequest(BaseModel, extra="forbid"):
    """The items most similar to one."""

    item: Identifier
    k: StrictInt = Field(10, ge=1, le=MOST)


class ScoreRequest(BaseModel, extra="forbid"):
    """Scores of items after a history."""

    history: History
    times: Times | None = None
    items: History


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


def end_process() -> None:
    """Stop this process as a service manager does: requests under way are answered, then a supervisor restarts it."""
    os.kill(os.getpid(), signal.SIGTERM)


class Service:
    """The model in use, and the queue of its requests.

    ``open_run`` returns the current model; it is called again when the value of ``state``, checked ``every`` so many
    seconds, changes. It is None while the model is being replaced. ``fail`` is called if a task of the service ends; by
    default the process ends too.
    """

    served: Served
    _queue: asyncio.Queue[Job]
    _thread: ThreadPoolExecutor
    _planners: ThreadPoolExecutor

    def __init__(
        self,
        open_run: Callable[[], Served],
        state: Callable[[], Hashable],
        every: float = 1.0,
        fail: Callable[[], None] = end_process,
    ) -> None:
        self._open, self._state, self._every, self._fail = open_run, state, every, fail
        self._stopped = True
        self._seen = state()
        self.served = open_run()

    @contextlib.asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        """Answer requests and watch for a new model until the application ends; it may start again."""
        # a queue belongs to the event loop of one start; one thread, because the compiled search uses several
        self._queue, self._thread, self._stopped = asyncio.Queue(), ThreadPoolExecutor(1, "scores"), False
        self._planners = ThreadPoolExecutor(_PLANNERS, "plans")
        tasks = [asyncio.create_task(self._answer()), asyncio.create_task(self._watch())]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        try:
            yield
        finally:
            self._stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._thread.shutdown(wait=False)
            self._planners.shutdown(wait=False, cancel_futures=True)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not self._stopped:
            error = None if task.cancelled() else task.exception()
            logger.critical("a task of the service has ended (%r): the process ends", error)
            self._stop()
            self._fail()

    def _stop(self) -> None:
        """Answer the waiting requests with an error, and all that come later."""
        self._stopped = True
        while not self._queue.empty():
            _settle(self._queue.get_nowait(), HTTPException(503, "the service is stopping"))

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread that computes scores."""
        return await self._answered(asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments))

    async def _answered(self, result: Awaitable[Any]) -> Any:
        """Return a result; HTTPException 503 if it takes too long."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await result
        except TimeoutError:
            raise HTTPException(503, f"no answer within {_PATIENCE:g} seconds") from None

    async def plan(self, served: Served, body: ListRequest, end: float = math.inf) -> Plan:
        """Return the plan of a request by the time ``end``; conditions delay no request without one."""
        key = json.dumps([body.k, body.exclude_seen, body.items, body.rules], sort_keys=True)
        if (plan := served.plans.get(key)) is not None:
            return plan
        if not {"where", "at_least"} & body.rules.keys():
            return served.plan(key, _PLANNING)
        if self._stopped:
            raise HTTPException(503, "the service is stopping")
        try:
            seconds, loop = min(_PLANNING, end - time.monotonic()), asyncio.get_running_loop()
            return await self._answered(loop.run_in_executor(self._planners, served.plan, key, seconds))
        except TooSlowError as error:
            raise HTTPException(503, str(error)) from error

    async def recommend(self, served: Served, body: ListRequest, plan: Plan) -> tuple[Query, list[tuple[str, float]]]:
        """Return the history of a request and its list, scored together with other waiting requests."""
        if body.history is not None:
            query = query_of(served, body.history, body.times)
        elif body.user is not None:
            query = served.recommender.query(users=[body.user])
        else:
            raise HTTPException(422, "give a user or a history; for several lists, users or histories")
        if self._stopped:
            raise HTTPException(503, "the service is stopping")
        exclude = served.recommender.catalogue.ids.find(body.exclude).tolist()
        pairs: asyncio.Future[list[tuple[str, float]]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Job(served, plan, query, exclude, pairs))
        return query, await self._answered(pairs)

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            jobs = [await self._queue.get()]
            while len(jobs) < _TOGETHER and not self._queue.empty():
                jobs.append(self._queue.get_nowait())
            try:
                for plan in {id(job.plan): job.plan for job in jobs}.values():
                    own = [job for job in jobs if job.plan is plan and not job.pairs.done()]
                    lists = await loop.run_in_executor(self._thread, _lists_or_errors, own)
                    for job, pairs in zip(own, lists, strict=True):
                        _settle(job, pairs)
            except Exception as error:  # such as a pool that starts no thread
                logger.exception("no answer to %d requests", len(jobs))
                for job in jobs:
                    _settle(job, error)
            finally:  # the task is cancelled
                for job in jobs:
                    _settle(job, HTTPException(503, "the service is stopping"))

    async def _watch(self) -> None:
        failed: tuple[Hashable, str] | None = None
        looks = 0
        while True:
            await asyncio.sleep(self._every)
            state: Hashable = None
            try:
                state = self._state()
                looks += 1
                # what cannot be read is not read every second
                if state is None or state == self._seen or (failed and failed[0] == state and looks < _LOOKS):
                    continue
                # meanwhile the old model answers
                self.served = await asyncio.to_thread(self._open)
                self._seen, failed = state, None
                _RELOADS.labels("taken").inc()
                logger.info("now serving %s", self.served.about.get("run"))
            except Exception as error:  # if the bundle is being replaced, the next look finds it
                looks = 0
                if failed != (state, str(error)):
                    failed = state, str(error)
                    _RELOADS.labels("failed").inc()
                    logger.warning("still serving the earlier model: %s", error)


def _settle(job: Job, answer: list[tuple[str, float]] | BaseException) -> None:
    """Give a job its answer, unless it has one or nobody waits for it."""
    if not job.pairs.done():
        if isinstance(answer, BaseException):
            job.pairs.set_exception(answer)
        else:
            job.pairs.set_result(answer)


def query_of(served: Served, history: list[str], times: list[float] | None) -> Query:
    """Return the query of one history; ValueError if the times have another length."""
    return served.recommender.query(histories=[history], times=None if times is None else [times])


def _lists_or_errors(jobs: list[Job]) -> Sequence[list[tuple[str, float]] | Exception]:
    """Return the lists of jobs with the same plan; if they fail, the error for each job."""
    if not jobs:
        return []
    try:
        return _lists(jobs)
    except Exception as error:
        return [error] * len(jobs)
    except BaseException as error:  # SystemExit or a cancellation in a plugin would end the task of the service
        return [RuntimeError(repr(error))] * len(jobs)


def _lists(jobs: list[Job]) -> list[list[tuple[str, float]]]:
    """Return the lists of jobs with the same plan, as pairs of original id and score, best first."""
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
            # the number of digits first: Python reads no number of thousands of digits
            long = len(length) > len(str(BYTES)) or not length.isdigit() or int(length) > BYTES
            if long or b"transfer-encoding" in headers:
                text = f"the body must have a content-length of at most {BYTES} bytes"
                await JSONResponse({"detail": text}, 413)(scope, receive, sent)
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
    """Return the application with the routes of this module."""
    # FastAPI's pages about the routes load scripts from elsewhere; the page of this package does not
    app = FastAPI(title="recbole-hyper serve", lifespan=service.running, docs_url=None, redoc_url=None)
    app.add_middleware(Measured)

    @app.exception_handler(ValueError)
    async def refused(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # without the input, which may be large, and may be a number that JSON does not have
        detail = [{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()]
        return JSONResponse({"detail": detail}, 422)

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
    async def answered(served: Served, body: ListRequest, plan: Plan) -> ListAnswer:
        query, pairs = await service.recommend(served, body, plan)
        popular = not query.warm[0]
        _LISTS.labels("popular" if popular else "model").inc()
        items = [Item.model_construct(item=item, score=score) for item, score in pairs]
        return ListAnswer.model_construct(items=items, popular=popular, unknown_items=query.unknown_items)

    @app.post("/recommend")
    async def recommend(body: ManyRequest) -> ListAnswer | list[ListAnswer] | dict[str, ListAnswer]:
        """Recommend items to one user, or after one history; with ``users`` or ``histories``, to each of them."""
        served, requests = service.served, body.each()
        plan = await service.plan(served, body)
        if requests is None:
            return await answered(served, body, plan)
        if isinstance(requests, list):
            return await asyncio.gather(*(answered(served, one, plan) for one in requests))
        answers = await asyncio.gather(*(answered(served, one, plan) for one in requests.values()))
        return dict(zip(requests, answers, strict=True))

    @app.post("/recommend/batch")
    async def batch(body: BatchRequest) -> list[ListAnswer]:
        """Recommend items to several users, or after several histories, in order."""
        served = service.served
        # one after another: the first condition that is refused or takes too long ends the request
        end = time.monotonic() + _PATIENCE
        plans = [await service.plan(served, one, end) for one in body.requests]
        return await asyncio.gather(*(answered(served, *one) for one in zip(body.requests, plans, strict=True)))

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
