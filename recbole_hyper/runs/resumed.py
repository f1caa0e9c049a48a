"""The data of a run that goes on: those it began with, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recbole_hyper.config import Config
from recbole_hyper.data.dataset import SequenceDataset, require_files
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.files import read_json
from recbole_hyper.runs.kept import ABOUT, DATA, read_kept
from recbole_hyper.training.build import reader_of_store
from recbole_hyper.training.checkpoint import CheckpointError
from recbole_hyper.types import Split


def reader_of_own(config: Config) -> Callable[[Config], tuple[SequenceDataset, Split]]:
    """Return what gives the data that a run on a frame kept in its folder; ConfigError where the frame is needed."""
    kept = read_kept(Path(config["output_dir"])) if config["resume"] and config["output_dir"] else None
    if kept is None:
        require_files(config)
        raise AssertionError("asked for a run on files")
    return reader_of_store(kept.store)


def require_same_data(folder: Path, store: SequenceStore) -> None:
    """Raise CheckpointError where the run in ``folder`` kept other data than ``store``, before they are replaced."""
    about = folder / DATA / ABOUT
    if about.is_file() and read_json(about).get("fingerprint") != store.fingerprint():
        raise CheckpointError(
            f"{folder} was trained on other data: it can be loaded and evaluated, but not resumed with these; "
            "take another output_dir"
        )
