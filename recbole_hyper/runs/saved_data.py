"""The data in a run's folder, which make the folder self-contained: ids, histories and the training part.

data/              all sequences and the training part of each row, see :mod:`recbole_hyper.protocols.saved_split`
data/features      ``selected_features`` of the items, if the model reads them
data/earlier.npy   which interactions the runs before a warm start were trained on
data/about.json    format, version, digests of the other files, and the original data set; written last
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.cache import known_digest
from recbole_hyper.data.item_features import ItemFeatures
from recbole_hyper.data.sequences import SequenceStore, write_array
from recbole_hyper.data.source import Source
from recbole_hyper.evaluation.results import package_version
from recbole_hyper.files import file_digest, read_json, replaced_folder, write_json
from recbole_hyper.host import models
from recbole_hyper.protocols.saved_split import load_split, save_split
from recbole_hyper.runs.build import reader_of_store
from recbole_hyper.runs.dataset import SequenceDataset, require_files
from recbole_hyper.training.checkpoint import CheckpointError, OtherDataError, checkpoint_errors
from recbole_hyper.types import Cases, Split

DATA, ABOUT = "data", "about.json"
# format of the folder of a run and of its data; increase it when an older package would misread them
FORMAT = 1
_FEATURES = "features"
_LENGTHS = ("train_lengths", "refit_lengths", "catalogue")
EARLIER = "earlier"


@dataclass(frozen=True)
class SavedData:
    """All sequences of a run, its training part (a ``split`` without cases), and the content of about.json."""

    store: SequenceStore
    split: Split
    about: dict[str, Any]
    item_features: ItemFeatures | None = None


def save_data(folder: Path, config: Config, data: SequenceDataset, split: Split, earlier: Any = None) -> None:
    """Write ``folder``/data in one step, unless the same data is there.

    ``earlier`` (nnz,) is True for interactions that the runs before a warm start were trained on.
    """
    arrays: dict[str, Any] = {
        name: np.ascontiguousarray(getattr(split, name)) for name in _LENGTHS if getattr(split, name) is not None
    }
    features, data_folder = data.item_features, folder / DATA
    content: dict[str, Any] = {
        "format": FORMAT,
        "fingerprint": data.store.fingerprint(),
        "training_fingerprint": split.store.fingerprint(),
        "lengths": {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()},
        **({} if features is None else {"item_features": features.fingerprint()}),
        **({} if earlier is None else {EARLIER: hashlib.sha256(earlier.tobytes()).hexdigest()}),
    }
    try:
        before = read_json(data_folder / ABOUT)
    except (OSError, ValueError):
        before = {}
    if content.items() <= before.items():
        return
    with replaced_folder(data_folder) as part:
        none = Cases.build(split.store, [], [])
        save_split(part, data.store, Split(split.store, valid=none, test=none, **arrays))
        if features is not None:
            features.save(part / _FEATURES)
        if earlier is not None:
            write_array(part / f"{EARLIER}.npy", earlier)
        files, source = sorted(path for path in part.rglob("*") if path.is_file()), Source.of(config)
        # the atomic files that the run read, and the .item file of the features
        paths = dict.fromkeys([*source.files(), *([] if features is None else [source.path("item")])])
        dataset = {
            path.name: {"size": path.stat().st_size, "sha256": known_digest(path)} for path in paths if path.is_file()
        }
        content |= {
            "version": package_version(),
            "dataset": dataset,
            "features": source.has_features or models.dataset_of(config.model_class) is not None,
            "files": {path.relative_to(part).as_posix(): file_digest(path) for path in files},
        }
        write_json(part / ABOUT, content)


def read_saved_data(folder: Path) -> SavedData | None:
    """Return the data of the run in ``folder``, None if it saved none.

    ConfigError for a newer format; CheckpointError for a missing or damaged file.
    """
    data_folder = folder / DATA
    if not data_folder.is_dir():
        return None
    if not (file := data_folder / ABOUT).is_file():
        raise CheckpointError(f"{file} is missing: the folder of the run is incomplete; copy the whole folder")
    about = read_about(file)
    with checkpoint_errors(data_folder, "is damaged: {}; restore it from a copy"):
        for name, digest in about["files"].items():
            path = data_folder / name
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the folder of the run is incomplete; copy the whole folder")
            if file_digest(path) != digest:
                raise CheckpointError(f"{path} is damaged: its content is not what was written; restore it from a copy")
        store, split = load_split(data_folder)
        if unknown := [name for name in about["lengths"] if name not in _LENGTHS or getattr(split, name) is None]:
            raise ValueError(f"{ABOUT} names {unknown}")
        features = ItemFeatures.load(data_folder / _FEATURES) if (data_folder / _FEATURES).is_dir() else None
        return SavedData(store, split, about, features)


def reader_of_saved_data(config: Config) -> Callable[[Config], tuple[SequenceDataset, Split]]:
    """Return a reader of the data that a run on a frame saved in its folder; ConfigError if the frame is needed."""
    saved = read_saved_data(Path(config["output_dir"])) if config["resume"] and config["output_dir"] else None
    if saved is None:
        require_files(config)
        raise AssertionError("require_files raises for a run on a frame")
    return reader_of_store(saved.store)


def require_saved_data(folder: Path, config: Config, data: SequenceDataset) -> None:
    """Raise OtherDataError if the run in ``folder`` saved other data than ``data``, before they are replaced."""
    about = folder / DATA / ABOUT
    if not about.is_file():
        return
    before, features = read_json(about), data.item_features
    if before.get("fingerprint") != data.store.fingerprint():
        raise OtherDataError(
            f"{folder} was trained on other data: it can be loaded and evaluated, but not resumed on this data; "
            "choose another output_dir"
        )
    if before.get("item_features") != (None if features is None else features.fingerprint()):
        raise OtherDataError(
            f"{folder} was trained on other item features: {Source.of(config).path('item')} has changed; "
            "restore it, or train again in another output_dir"
        )


def read_about(file: Path) -> dict[str, Any]:
    """Read and check the format; CheckpointError for a damaged file, ConfigError for a newer format."""
    about = read_json(file)
    version = about.get("format")
    if not isinstance(version, int) or version < 1:
        raise CheckpointError(f"{file} is damaged: format={version!r}")
    if version > FORMAT:
        raise ConfigError(
            f"{file} was written by recbole_hyper {about.get('version')} in format {version}; this is version "
            f"{package_version()}, which reads formats up to {FORMAT}: install the newer package"
        )
    return about


def differences(saved: SavedData, config: Config) -> list[str]:
    """Describe what has changed since the run: the version of the package, the files of the data set."""
    lines = []
    if saved.about["version"] != package_version():
        lines.append(f"trained by recbole_hyper {saved.about['version']}, this is version {package_version()}")
    for name, before in saved.about["dataset"].items():
        path, instead = Source.of(config).folder / name, "using the data in the folder of the run"
        if not path.is_file():
            lines.append(f"{path} does not exist; {instead}")
        elif path.stat().st_size != before["size"] or known_digest(path) != before["sha256"]:
            lines.append(f"{path} has changed since the run; {instead}")
    return lines
