"""Write the bundle of a finished run, which a serving process reads without torch."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import is_written_by, replaced_folder, write_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.processes import package_version
from recbole_hyper.runs.load import load
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.runs.saved_data import DATA
from recbole_hyper.serving.bundle import ABOUT, ARRAYS, BUNDLE, GRAPH, MAP, fingerprint
from recbole_hyper.serving.export import write_graph
from recbole_hyper.serving.page.map import item_map

WRITTEN_BY = "recbole-hyper serve"
# keys of the configuration that recommendations depend on
_KEYS = ("model", "dataset", "exclude_seen", "USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")

logger = logging.getLogger("recbole_hyper")


def write_bundle(run: Path) -> Path:
    """Write the bundle of a finished run into its folder; ConfigError if something else is there."""
    folder = run / BUNDLE
    if folder.exists() and not is_written_by(WRITTEN_BY, folder / ABOUT):
        raise ConfigError(f"{folder} was not written by 'recbole-hyper serve', which would replace it; rename it")
    if not (run / DATA).is_dir():
        raise ConfigError(f"{run} saved no data (save_data), from which it is served; train it again with them")
    state = fingerprint(run)
    recommender = load(run)
    if recommender.scorer.learns_users:
        raise ConfigError(
            f"{recommender.config['model']} learned a vector per user and cannot score other histories; "
            "use 'recbole-hyper recommend'"
        )
    model, config, catalogue = recommender.model, recommender.config, recommender.catalogue
    head = model.head if isinstance(model, HyperRecommender) else None
    length = int(config["MAX_ITEM_LIST_LENGTH"] or 1)
    about: dict[str, Any] = {
        **{"written_by": WRITTEN_BY, "version": package_version(), "run": state, "max_length": length},
        **{"n_items": catalogue.n_recommendable, "n_users": len(recommender.user_ids)},
        "curvature": None if head is None else head.curvature,
        **{key: config[key] for key in _KEYS},
    }
    vectors, counts = recommender.scorer.vectors(), catalogue.columns["interactions"].to_numpy()
    with replaced_folder(folder) as part:
        if head is not None:
            try:
                write_graph(model, part / GRAPH, "onnx", length, scores=True)
                arrays = {"counts": counts, "vectors": vectors, "allowed": catalogue.allowed}
                np.savez(part / ARRAYS, **{name: array for name, array in arrays.items() if array is not None})
            except ConfigError as error:
                logger.warning("%s; served by torch", error)
        write_json(part / MAP, item_map(vectors, counts, catalogue.item_tokens, about["curvature"]))
        write_json(part / ABOUT, about)
    return folder


if __name__ == "__main__":
    with trusting(**json.loads(sys.argv[2])):
        print(write_bundle(Path(sys.argv[1])))
