"""Read the bundle that ``recbole-hyper serve`` writes into a run's folder, without torch.

serving/about.json      model, data, settings
serving/map.json        places of the items in two dimensions, for the page
serving/scores.onnx     graph of the scores, with large tables beside it; a model without one is served by torch
serving/arrays.npz      with a graph: training counts, item vectors, items that the protocol allows
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.inputs import read_table
from recbole_hyper.errors import ConfigError, require
from recbole_hyper.files import digest, read_json
from recbole_hyper.serving.catalogue import unit_vectors
from recbole_hyper.serving.query import Query, Scorer
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Plan

BUNDLE, ABOUT, MAP = "serving", "about.json", "map.json"
GRAPH, ARRAYS = "scores.onnx", "arrays.npz"
MOST_PLANS = 32  # that are kept
Scores = npt.NDArray[np.float32]


class GraphScorer(Scorer):
    """Scores from the graph of a bundle; ``about`` is the content of its about.json."""

    def __init__(self, file: Path, threads: int, about: dict[str, Any], vectors: Scores) -> None:
        require("serve", "recbole-hyper serve", "onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]
        self._max_length, self._curvature, self._vectors = about["max_length"], about["curvature"], vectors
        self._lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        self.reads_times = "timestamp_list" in self._names

    def scores(self, query: Query) -> Scores:
        lengths = np.minimum(np.diff(query.offsets), self._max_length)
        filled = np.arange(lengths.max(initial=1)) < lengths[:, None]
        # the newest items of each history
        places = (query.offsets[1:] - lengths)[:, None] + np.arange(filled.shape[1])
        inputs: dict[str, npt.NDArray[Any]] = {"item_length": lengths}
        times = np.zeros(len(query.items)) if query.times is None else query.times
        for name, values, kind in (("item_id_list", query.items, np.int64), ("timestamp_list", times, np.float64)):
            inputs[name] = np.zeros(filled.shape, dtype=kind)
            inputs[name][filled] = values[places[filled]]
        scores = self._session.run(["scores"], {name: inputs[name] for name in self._names})[0]
        return np.require(scores, np.float32, "W")

    def vectors(self) -> Scores:
        return self._vectors

    @cached_property
    def _unit(self) -> Scores:
        return unit_vectors(self._vectors)

    def similarity(self, numbers: npt.NDArray[np.int64]) -> tuple[str, Scores]:
        """Return cosines, or on a ball minus the geodesic distances (see ``Poincare.similarity``)."""
        cosine = self._unit[numbers] @ self._unit.T
        if self._curvature is None:
            return "cosine of the item vectors", cosine.astype(np.float32)
        root = 2 * self._curvature**0.5
        lengths, own = root * self._lengths, root * self._lengths[numbers, None]
        apart = np.sinh(lengths) * np.sinh(own) * np.maximum(1 - cosine, 0)
        above = 2 * np.sinh((lengths - own) / 2) ** 2 + apart
        distance = 2 * np.arcsinh(np.sqrt(above / 2)) / (root / 2)
        return "minus the geodesic distance", -distance.astype(np.float32)


@dataclass(frozen=True)
class Served:
    """A model in use: its recommender, its about.json, and the map of its items."""

    recommender: Recommender
    about: dict[str, Any]
    places: dict[str, Any]
    plans: dict[str, Plan] = field(default_factory=dict)  # by the request: most requests use the same rules

    def plan(self, key: str, seconds: float) -> Plan:
        """Return the plan of a request, ``[k, exclude_seen, items, rules]`` in JSON; raises as ``Catalogue.plan``."""
        k, exclude_seen, items, rules = json.loads(key)
        plan = self.recommender.catalogue.plan(k, exclude_seen, items, rules=rules, seconds=seconds)
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan
        return plan


def fingerprint(run: Path) -> str:
    """Return a digest of the names, sizes and times of a run's files, which changes with its model."""
    states = []
    for name in ("config.yaml", "result.json", "model.safetensors", "refit/model.safetensors"):
        with contextlib.suppress(FileNotFoundError):
            state = (run / name).stat()
            states.append((Path(name).name, state.st_size, state.st_mtime_ns))
    return digest(states, 32)


def open_bundle(
    run: Path,
    load: Callable[[Path], Recommender],
    threads: int = 1,
    table: Path | None = None,
    new_items: Path | None = None,
    item_column: str | None = None,
) -> Served:
    """Return the model of a run with a bundle, with the catalogue in the file ``table``.

    The graph uses ``threads`` threads; ``load`` reads a run without a graph, and one that has to score the items in
    the file ``new_items``; ``item_column`` has the ids of both tables. ConfigError if the run has no bundle, or the
    catalogue no item of the model.
    """
    folder = run / BUNDLE
    if not (folder / ABOUT).is_file():
        raise ConfigError(f"{folder} does not exist; run 'recbole-hyper serve {run}' first")
    about = read_json(folder / ABOUT)
    if (folder / GRAPH).is_file():
        with np.load(folder / ARRAYS, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        store = SequenceStore.load(run / "data" / "sequences")
        scorer = GraphScorer(folder / GRAPH, threads, about, arrays["vectors"])
        recommender = Recommender(scorer, about, store, counts=arrays["counts"], allowed=arrays.get("allowed"))
    else:
        recommender = load(run)
    if new_items is not None and len(new := recommender.unknown_items(read_table(new_items), item_column)):
        # a graph has the vectors of its items, and the vectors of others come from the weights
        recommender = (load(run) if recommender.model is None else recommender).add_items(new, item_column)
        about = {**about, "n_items": recommender.catalogue.n_recommendable}
    if table is not None:
        recommender.use_catalogue(read_table(table), item_column)
    return Served(recommender, about, read_json(folder / MAP))
