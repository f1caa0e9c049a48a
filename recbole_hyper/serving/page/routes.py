"""The page of the service and its routes: search, neighbours, map, contributions of the items of a history."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI
from fastapi.responses import FileResponse

from recbole_hyper.serving.query import Query, plain_query
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.service import Identifier, ListRequest, Service, known_item, make_app

PAGE = Path(__file__).parent
# contributions are computed for this many newest items of a history
_EXPLAINED = 50
# names of the column that a reader calls an item by, without case and signs, the first one first
_TITLES = ("title", "name", "itemname", "itemtitle", "productname", "producttitle", "movietitle")


def with_page(service: Service) -> FastAPI:
    """Return the application of a service with its page."""
    app = make_app(service)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    @app.get("/page.js", include_in_schema=False)
    def script() -> FileResponse:
        return FileResponse(PAGE / "page.js", media_type="text/javascript")

    @app.get("/search", include_in_schema=False)
    async def search(text: str = "", most: int = 20) -> list[dict[str, Any]]:
        return await service.in_thread(find, service.served.recommender, text[:200], max(0, min(most, 100)))

    @app.get("/near", include_in_schema=False)
    async def near(item: Identifier) -> list[dict[str, Any]]:
        recommender = service.served.recommender
        k = min(10, recommender.n_recommendable - 1)
        _, lists, scores = await service.in_thread(recommender.neighbours, known_item(recommender, item), k)
        described = describe(recommender, lists[0])
        return [{**one, "score": score} for one, score in zip(described, scores[0].tolist(), strict=True)]

    @app.get("/map", include_in_schema=False)
    async def item_map(column: str = "") -> dict[str, Any]:
        served = service.served
        return await service.in_thread(coloured, served.recommender, served.places, column)

    @app.post("/explain", include_in_schema=False)
    async def explain(body: ListRequest) -> dict[str, Any]:
        recommender = service.served.recommender
        served = service.served
        query, pairs = await service.recommend(served, body, await service.plan(served, body))
        items = recommender.catalogue.ids.find([item for item, _ in pairs])
        parts = await service.in_thread(contributions, recommender, query, items)
        return {"items": describe(recommender, items), "scores": [score for _, score in pairs],
                "history": describe(recommender, query.items), "contributions": parts,
                "popular": not query.warm[0], "unknown_items": query.unknown_items}  # fmt: skip

    return app


def contributions(recommender: Recommender, query: Query, items: Any) -> list[list[float]]:
    """Return, for each item of the history, how much the scores of ``items`` fall without it.

    The result is 0 for all but the newest 50 items, and empty for a history of one item, without which none is left.
    """
    history, length = query.items.tolist(), len(query.items)
    if length < 2:
        return []
    result = np.zeros((length, len(items)))
    times = [0.0] * length if query.times is None else query.times.tolist()
    first = max(0, length - _EXPLAINED)
    # the whole history, then the history without each item
    left_out = (-1, *range(first, length))
    histories, their_times = (
        [[value for at, value in enumerate(values) if at != out] for out in left_out] for values in (history, times)
    )
    scores = recommender.scorer.scores(plain_query(histories, their_times))[:, items]
    result[first:] = scores[:1] - scores[1:]
    return result.tolist()


def find(recommender: Recommender, text: str, most: int) -> list[dict[str, Any]]:
    """Describe the most popular items whose id or text columns contain ``text``; case is ignored."""
    catalogue = recommender.catalogue
    texts = [column for column in catalogue.columns.values() if pa.types.is_string(column.type)]
    matches = np.zeros(catalogue.n_items, dtype=bool)
    for column in (pa.array(catalogue.item_tokens), *texts):
        matches |= np.asarray(pc.fill_null(pc.match_substring(column, text, ignore_case=True), False), dtype=bool)
    matches[0] = False
    if catalogue.allowed is not None:
        matches &= catalogue.allowed
    order = np.argsort(-recommender.popularity[matches], kind="stable")[:most]
    return describe(recommender, np.flatnonzero(matches)[order])


def describe(recommender: Recommender, numbers: Any) -> list[dict[str, Any]]:
    """Return the columns of each item, its id as ``item``, and what a reader calls it as ``title`` (None: nothing)."""
    catalogue = recommender.catalogue
    bare = {re.sub("[^a-z]", "", name.lower()): name for name in reversed(catalogue.columns)}
    title = next((bare[name] for name in _TITLES if name in bare), None)
    described = []
    for number in numbers.tolist():
        item = {name: values[number].as_py() for name, values in catalogue.columns.items()}
        own = {"item": str(catalogue.item_tokens[number]), "title": (title and item[title]) or None}
        described.append(item | own)
    return described


def coloured(recommender: Recommender, places: dict[str, Any], column: str) -> dict[str, Any]:
    """Return the map with the values of a column, and the names of all columns."""
    catalogue = recommender.catalogue
    result = {**places, "columns": list(catalogue.columns)}
    if places and column in catalogue.columns:
        numbers = catalogue.ids.find(np.array(places["items"]))
        result["values"] = catalogue.columns[column].take(pa.array(numbers)).to_pylist()
    return result
