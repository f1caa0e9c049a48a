"""What a serving process answers from: a bundle, which is a graph of scores, vectors and ids, and the run's histories.

Imports no torch: the graph runs in onnxruntime. A model that has no graph is served by its own scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.ids import Ids
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import ConfigError, require
from recbole_hyper.evaluation.search import best_items
from recbole_hyper.files import digest, read_json
from recbole_hyper.serving.catalogue import Catalogue, column_of_items
from recbole_hyper.serving.inputs import read_table
from recbole_hyper.serving.rules import Plan, select

#: folder of the bundle in that of the run, and the files in it
BUNDLE, ABOUT, GRAPH, ARRAYS = "serving", "about.json", "scores.onnx", "arrays.npz"
MAP, SEQUENCES = "map.json", "sequences"
_EXPLAINED = 50
Scores = npt.NDArray[np.float32]
#: a history as numbers of items, oldest first, and when they were chosen
History = tuple[list[int], list[float]]


class Scorer(Protocol):
    """Gives the scores (n, n_items) after ``histories``, none of which is empty; the array is the caller's."""

    def __call__(self, histories: Sequence[History]) -> Scores: ...


class GraphScorer:
    """Scores by the graph of a bundle, in ``threads`` threads.

    ConfigError where onnxruntime is missing.
    """

    def __init__(self, file: Path, threads: int, max_length: int) -> None:
        require("serve", "recbole-hyper serve", "onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]
        self._max_length = max_length

    def __call__(self, histories: Sequence[History]) -> Scores:
        newest = [(items[-self._max_length :], times[-self._max_length :]) for items, times in histories]
        lengths = np.array([len(items) for items, _ in newest], dtype=np.int64)
        filled = np.arange(lengths.max()) < lengths[:, None]
        given: dict[str, npt.NDArray[Any]] = {"item_length": lengths}
        for name, part, kind in (("item_id_list", 0, np.int64), ("timestamp_list", 1, np.float64)):
            given[name] = np.zeros(filled.shape, dtype=kind)
            given[name][filled] = np.concatenate([one[part] for one in newest])
        return np.array(self._session.run(["scores"], {name: given[name] for name in self._names})[0], np.float32)


@dataclass(frozen=True)
class Request:
    """One list that is wanted: whose history, what it leaves out, and the plan of its rules."""

    history: History
    plan: Plan
    exclude: Sequence[int] = ()


@dataclass(frozen=True)
class Engine:
    """Answers for numbers of items and original ids; made once per bundle, never changed.

    Attributes:
        about: what the bundle says of its model.
        scorer, catalogue, store: scores, items, and users with their histories.
        norms: (n_items,) lengths of the item vectors, empty for a model without.
        places: where items lie in two dimensions, see ``item_map``.
    """

    about: dict[str, Any]
    scorer: Scorer
    catalogue: Catalogue
    store: SequenceStore
    norms: Scores = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    places: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = np.full(len(self.store.user_tokens), -1, dtype=np.int64)
        rows[self.store.users] = np.arange(self.store.n_rows)
        numbers = {token: number for number, token in enumerate(self.store.item_tokens.tolist()) if number}
        if self.catalogue.allowed is not None:  # the model knows nothing of the others
            numbers = {token: number for token, number in numbers.items() if self.catalogue.allowed[number]}
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_numbers", numbers)
        object.__setattr__(self, "_users", Ids(self.store.user_tokens))
        object.__setattr__(self, "_plans", lru_cache(32)(self._make_plan))

    _rows: npt.NDArray[np.int64] = field(init=False, repr=False)
    _numbers: dict[str, int] = field(init=False, repr=False)
    _users: Ids = field(init=False, repr=False)
    _plans: Any = field(init=False, repr=False)

    def _make_plan(self, k: int, exclude_seen: bool | None, rules: str, items: tuple[str, ...] | None) -> Plan:
        seen = bool(self.about["exclude_seen"]) if exclude_seen is None else exclude_seen
        return self.catalogue.plan(k, exclude_seen=seen, items=items, rules=json.loads(rules))

    def plan(self, k: int, exclude_seen: bool | None, rules: dict[str, Any], items: list[str] | None) -> Plan:
        """Return the plan of a request; plans are kept, since most requests have the same. ValueError as a plan."""
        only = None if items is None else tuple(items)
        return self._plans(k, exclude_seen, json.dumps(rules, sort_keys=True), only)

    def history_of(self, user: str) -> History | None:
        """Return what a user of the data did, None for a user who is not in them."""
        number = int(self._users.find(np.array([user]))[0])
        row = int(self._rows[number]) if number else -1
        if row < 0:
            return None
        start, stop = self.store.offsets[row], self.store.offsets[row] + self.store.lengths[row]
        items = self.store.items[start:stop]
        known = items > 0 if self.catalogue.allowed is None else self.catalogue.allowed[items]
        return items[known].tolist(), np.asarray(self.store.times[start:stop])[known].tolist()

    def history(self, items: Sequence[str], times: Sequence[float] | None) -> tuple[History, int]:
        """Return the known items of a history as numbers, and how many are unknown."""
        numbers = [self._numbers.get(item, 0) for item in items]
        moments = [0.0] * len(items) if times is None else times
        kept = [(number, moment) for number, moment in zip(numbers, moments, strict=True) if number]
        return ([number for number, _ in kept], [moment for _, moment in kept]), len(items) - len(kept)

    def known(self, items: Sequence[str]) -> list[int]:
        """Return the numbers of the known items among ``items``."""
        return [self._numbers[item] for item in items if item in self._numbers]

    def recommend(self, requests: Sequence[Request]) -> list[list[tuple[str, float]]]:
        """Return the list of each request: original ids and scores, best first; popular items without a history."""
        lists: list[list[tuple[str, float]]] = [[] for _ in requests]
        warm = [number for number, request in enumerate(requests) if request.history[0]]
        scores = self.scorer([requests[number].history for number in warm]) if warm else None
        for plan in {id(request.plan): request.plan for request in requests}.values():
            rows = [number for number, request in enumerate(requests) if request.plan is plan]
            block = np.empty((len(rows), self.catalogue.n_items), dtype=np.float32)
            for at, number in enumerate(rows):
                block[at] = scores[warm.index(number)] if number in warm and scores is not None else self.popularity
            left_out = [
                [*(requests[number].history[0] if plan.exclude_seen else ()), *requests[number].exclude]
                for number in rows
            ]
            offsets = np.cumsum([0, *map(len, left_out)]).astype(np.int64)
            top, best = select(block, plan, offsets, np.array([*chain(*left_out)], dtype=np.int64))
            for at, number in enumerate(rows):
                tokens = self.store.item_tokens[top[at]].tolist()
                lists[number] = [
                    pair for pair in zip(tokens, best[at].tolist(), strict=True) if pair[0] and np.isfinite(pair[1])
                ]
        return lists

    @property
    def popularity(self) -> Scores:
        """(n_items,) share of the training interactions."""
        counts = self.catalogue.columns["interactions"].to_numpy(zero_copy_only=False)
        return (counts / max(1, int(counts.sum()))).astype(np.float32)

    def similar(self, item: int, k: int) -> list[tuple[str, float]]:
        """Return the k items most like one, as ``Recommender.similar_items`` measures it."""
        if len(self.norms):
            likeness = self._likeness(item)
        else:
            likeness = self.scorer([([item], [0.0])])[0]
        hidden = None if self.catalogue.allowed is None else ~self.catalogue.allowed
        top, best = best_items(likeness[None], k, offsets=np.array([0, 1]), excluded=np.array([item]), hidden=hidden)
        return list(zip(self.store.item_tokens[top[0]].tolist(), best[0].tolist(), strict=True))

    def _likeness(self, item: int) -> Scores:
        """Return (n_items,) cosines, on a ball minus the geodesic distances (see ``Poincare.similarity``)."""
        unit = self.catalogue.vectors
        cosine = unit @ unit[item]
        curvature = self.about.get("curvature")
        if curvature is None:
            return cosine
        root = 2 * curvature**0.5
        lengths = root * self.norms.astype(np.float64)
        apart = np.sinh(lengths) * np.sinh(lengths[item]) * np.maximum(1 - cosine, 0)
        above = 2 * np.sinh((lengths - lengths[item]) / 2) ** 2 + apart
        return (-2 * np.arcsinh(np.sqrt(above / 2)) / (root / 2)).astype(np.float32)

    def contributions(self, history: History, items: Sequence[int]) -> list[list[float]]:
        """Return for each history item what the scores of ``items`` lose where it is left out, (L, len(items)).

        Beyond the newest 50 items, and for the only one, that is 0.
        """
        length = len(history[0])
        first = max(0, length - _EXPLAINED)
        losses = np.zeros((length, len(items)))
        if length > 1:
            shorter = [
                (history[0][:at] + history[0][at + 1 :], history[1][:at] + history[1][at + 1 :])
                for at in range(first, length)
            ]
            scores = self.scorer([history, *shorter])[:, list(items)]
            losses[first:] = scores[:1] - scores[1:]
        return losses.tolist()

    # --- for the page ------------------------------------------------------------------------------------------------
    def search(self, text: str, most: int) -> list[dict[str, Any]]:
        """Return the first items whose id or text columns contain ``text``, whatever its case, described."""
        texts = {name: column for name, column in self.catalogue.columns.items() if pa.types.is_string(column.type)}
        matches = np.zeros(self.catalogue.n_items, dtype=bool)
        for column in (pa.array(self.store.item_tokens), *texts.values()):
            matches |= np.asarray(pc.fill_null(pc.match_substring(column, text, ignore_case=True), False), dtype=bool)
        matches[0] = False
        if self.catalogue.allowed is not None:
            matches &= self.catalogue.allowed
        counts = self.popularity[matches]
        order = np.flatnonzero(matches)[np.argsort(-counts, kind="stable")[:most]]
        return self.described(order.tolist())

    def described(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return the id of each item, as ``item``, and its columns."""
        return [
            {name: values[number].as_py() for name, values in self.catalogue.columns.items()}
            | {"item": str(self.store.item_tokens[number])}
            for number in numbers
        ]

    def map(self, column: str) -> dict[str, Any]:
        """Return where the items lie, with the values of a column, and the names of all columns."""
        columns = self.catalogue.columns
        if not self.places or column not in columns:
            return {**self.places, "columns": list(columns)}
        numbers = self.catalogue.ids.find(np.array(self.places["items"]))
        return {**self.places, "columns": list(columns), "values": columns[column].take(pa.array(numbers)).to_pylist()}


def fingerprint(run: Path) -> str:
    """Return what changes when a run's model does: names, sizes and times of its files."""
    files = [run / name for name in ("config.yaml", "result.json", "model.safetensors", "refit/model.safetensors")]
    return digest([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()], 32)


def open_bundle(run: Path, own_scorer: Callable[[Path], Scorer], threads: int = 1, table: Path | None = None) -> Engine:
    """Return the engine of the bundle in the folder of a run.

    Args:
        run: folder of the run.
        own_scorer: gives the scorer of a run whose model has no graph.
        threads: of the graph.
        table: catalogue of the shop, text or parquet.

    Raises:
        ConfigError: there is no bundle, or a catalogue that does not fit its items.
    """
    folder = run / BUNDLE
    if not (folder / ABOUT).is_file():
        raise ConfigError(f"{folder} holds nothing to serve; 'recbole-hyper serve {run}' makes it")
    about = read_json(folder / ABOUT)
    with np.load(folder / ARRAYS, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    store = SequenceStore.load(run / about["sequences"])
    vectors = arrays.get("vectors")
    catalogue = Catalogue(store.item_tokens, arrays["counts"], arrays.get("allowed"), lambda: vectors)
    if table is not None:
        columns = read_table(table)
        catalogue = catalogue.with_columns(columns, column_of_items(columns, about["item_names"]))
    scorer: Scorer
    if (folder / GRAPH).is_file():
        scorer = GraphScorer(folder / GRAPH, threads, int(about["max_length"]))
    else:
        scorer = own_scorer(run)
    norms = np.empty(0, np.float32) if vectors is None else np.linalg.norm(vectors, axis=1).astype(np.float32)
    return Engine(about, scorer, catalogue, store, norms, read_json(folder / MAP))
