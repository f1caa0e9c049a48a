"""The data in a run's folder, which make the folder self-contained: ids, histories and the training part.

data/sequences           all sequences, with the ids of users and items
data/training            the sequences to train on, if a protocol filtered them
data/train_lengths.npy   the first interactions of each row that are its training part; refit_lengths.npy for a refit
data/catalogue.npy       which items may be recommended, if not all
data/earlier.npy         which interactions the runs before a warm start were trained on
data/features            ``selected_features`` of the items, if the model reads them
data/about.json          version, and digests of the other files; written last
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore, write_array
from recbole_hyper.files import file_digest, read_json, replaced_folder, write_json
from recbole_hyper.processes import package_version
from recbole_hyper.runs.folder import ABOUT, DATA
from recbole_hyper.training.checkpoint import CheckpointError, OtherDataError, checkpoint_errors
from recbole_hyper.types import Cases, Split

if TYPE_CHECKING:  # an opened run needs neither
    from recbole_hyper.config import Config
    from recbole_hyper.data.item_features import ItemFeatures
    from recbole_hyper.runs.dataset import SequenceDataset

EARLIER = "earlier"
_ALL, _TRAINING, _FEATURES = "sequences", "training", "features"
_OF_SPLIT = ("train_lengths", "refit_lengths", "catalogue")


@dataclass(frozen=True)
class SavedData:
    """All sequences of a run, its training part (a ``split`` without cases), and what about.json says.

    ``reads_features`` is True if the data set has more than sequences, which a RecBole model may have read.
    """

    store: SequenceStore
    split: Split
    version: str
    fingerprint: str
    reads_features: bool
    item_features: ItemFeatures | None = None


def save_data(folder: Path, config: Config, data: SequenceDataset, split: Split, earlier: Any = None) -> None:
    """Write ``folder``/data in one step; a resumed run has it, unless a refit is new.

    ``earlier`` (nnz,) is True for interactions that the runs before a warm start were trained on.
    """
    has_refit = (folder / DATA / "refit_lengths.npy").is_file()
    if config["resume"] and (folder / DATA / ABOUT).is_file() and has_refit == (split.refit_lengths is not None):
        return
    from recbole_hyper.data.source import Source
    from recbole_hyper.host import models

    features = data.item_features
    arrays = {**{name: getattr(split, name) for name in _OF_SPLIT}, EARLIER: earlier}
    with replaced_folder(folder / DATA) as part:
        data.store.save(part / _ALL)
        if split.store.fingerprint() != data.store.fingerprint():
            split.store.save(part / _TRAINING)
        for name, array in arrays.items():
            if array is not None:
                write_array(part / f"{name}.npy", array)
        if features is not None:
            features.save(part / _FEATURES)
        files = sorted(path for path in part.rglob("*") if path.is_file())
        content = {
            "version": package_version(),
            "fingerprint": data.store.fingerprint(),
            "item_features": None if features is None else features.fingerprint(),
            "features": Source.of(config).has_features or models.dataset_of(config.model_class) is not None,
            "files": {path.relative_to(part).as_posix(): file_digest(path) for path in files},
        }
        write_json(part / ABOUT, content)


def read_saved_data(folder: Path) -> SavedData | None:
    """Return the data of the run in ``folder``, None if it saved none.

    CheckpointError for a missing or damaged file.
    """
    data_folder = folder / DATA
    if not data_folder.is_dir():
        return None
    if not (file := data_folder / ABOUT).is_file():
        raise CheckpointError(f"{file} is missing: the folder of the run is incomplete; copy the whole folder")
    about = read_json(file)
    with checkpoint_errors(data_folder, "is damaged: {}; restore it from a copy"):
        for name, digest in about["files"].items():
            path = data_folder / name
            if not path.is_file() or file_digest(path) != digest:
                raise CheckpointError(f"{path} is missing or damaged: copy the whole folder of the run again")
        store = SequenceStore.load(data_folder / _ALL)
        training = SequenceStore.load(data_folder / _TRAINING) if (data_folder / _TRAINING).is_dir() else store
        places, none = {name: data_folder / f"{name}.npy" for name in _OF_SPLIT}, Cases.build(training, [], [])
        arrays = {name: np.load(file, mmap_mode="r") for name, file in places.items() if file.is_file()}
        split = Split(training, valid=none, test=none, **arrays)
        features: ItemFeatures | None = None
        if (data_folder / _FEATURES).is_dir():
            from recbole_hyper.data.item_features import ItemFeatures

            features = ItemFeatures.load(data_folder / _FEATURES)
        return SavedData(store, split, about["version"], about["fingerprint"], about["features"], features)


def require_saved_data(folder: Path, data: SequenceDataset) -> None:
    """Raise OtherDataError if the run in ``folder`` that is resumed saved other data than ``data``."""
    about = folder / DATA / ABOUT
    if not about.is_file():
        return
    before, features = read_json(about), data.item_features
    of_items = None if features is None else features.fingerprint()
    if (before.get("fingerprint"), before.get("item_features")) != (data.store.fingerprint(), of_items):
        raise OtherDataError(
            f"{folder} was trained on other interactions or item features: it can be loaded and evaluated, but not "
            "resumed on this data; choose another output_dir"
        )
