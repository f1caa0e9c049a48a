"""The bundle of a finished run: what a serving process reads in the place of torch and the run's configuration.

serving/scores.onnx   the graph of scores, of a model that has one
serving/arrays.npz    training counts, item vectors, and which items may be recommended
serving/map.json      where the items lie in two dimensions, for the page
serving/about.json    model, data, settings; written last
"""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.results import package_version
from recbole_hyper.files import read_json, replaced_folder, write_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.runs.kept import DATA
from recbole_hyper.runs.load import load
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.serving.engine import ABOUT, ARRAYS, BUNDLE, GRAPH, MAP, SEQUENCES, History, fingerprint
from recbole_hyper.serving.export import write_graph
from recbole_hyper.serving.graph import ScoresGraph
from recbole_hyper.serving.map import item_map
from recbole_hyper.serving.recommender import Query, Recommender

WRITTEN_BY = "recbole-hyper serve"

logger = logging.getLogger("recbole_hyper")


def write_bundle(run: Path) -> Path:
    """Write the bundle of a finished run into its folder, in one step; returns the bundle's folder.

    ConfigError for a folder of that name which is no bundle; raises as :func:`load` for the run.
    """
    folder = run / BUNDLE
    if folder.exists() and not is_bundle(folder):
        raise ConfigError(f"{folder} is no folder of 'recbole-hyper serve', which would replace it; rename it")
    state = fingerprint(run)
    recommender = load(run)
    if recommender.learns_users:
        raise ConfigError(
            f"{recommender.config['model']} learned a vector per user and answers for no history; "
            "'recbole-hyper recommend' writes its lists"
        )
    model, config, catalogue = recommender.model, recommender.config, recommender.catalogue
    curved = isinstance(model, HyperRecommender) and model.head.geometry.curved
    about: dict[str, Any] = {
        "written_by": WRITTEN_BY,
        "version": package_version(),
        "run": state,
        "model": config["model"],
        "dataset": config["dataset"],
        "max_length": int(config["MAX_ITEM_LIST_LENGTH"] or 1),
        "exclude_seen": bool(config["exclude_seen"]),
        "item_names": [*recommender.names["item_id"]],
        "curvature": model.head.curvature_value if curved else None,
        "n_items": catalogue.n_recommendable,
        "n_users": len(recommender.user_ids),
        "sequences": f"{DATA}/sequences",
    }
    vectors = catalogue.raw_vectors()
    arrays: dict[str, Any] = {"counts": catalogue.columns["interactions"].to_numpy(), "vectors": vectors}
    arrays["allowed"] = catalogue.allowed
    with replaced_folder(folder) as part:
        if not (run / DATA / "sequences").is_dir():
            about["sequences"] = f"{BUNDLE}/{SEQUENCES}"
            recommender.store.save(part / SEQUENCES)
        np.savez(part / ARRAYS, **{name: array for name, array in arrays.items() if array is not None})
        if isinstance(model, HyperRecommender) and model.scores_by_head:
            try:
                write_graph(model, lambda: ScoresGraph(model, about["max_length"]), part / GRAPH, "onnx")
            except ConfigError as error:
                logger.warning("%s; served by torch", error)
        write_json(part / MAP, item_map(vectors, arrays["counts"], catalogue.item_tokens, about["curvature"]))
        write_json(part / ABOUT, about)
    return folder


def is_bundle(folder: Path) -> bool:
    """Return whether a folder is a bundle that this package wrote."""
    try:
        return read_json(folder / ABOUT).get("written_by") == WRITTEN_BY
    except (OSError, ValueError):
        return False


class RunScorer:
    """Scores of a run whose model has no graph, by the model itself."""

    def __init__(self, run: Path) -> None:
        self._recommender: Recommender = load(run)

    def __call__(self, histories: Sequence[History]) -> npt.NDArray[np.float32]:
        """Return the scores (n, n_items) after ``histories``."""
        offsets = np.cumsum([0, *(len(items) for items, _ in histories)])
        nobody = np.zeros(len(histories), dtype=np.int64)
        items = np.array([item for history, _ in histories for item in history], dtype=np.int32)
        times = np.array([time for _, moments in histories for time in moments])
        query = Query(nobody, nobody, offsets, items, times=times)
        with torch.no_grad():
            scores = self._recommender.scores_of(query, np.arange(len(histories)))
        return scores


if __name__ == "__main__":
    with trusting(**json.loads(sys.argv[2])):
        print(write_bundle(Path(sys.argv[1])))
