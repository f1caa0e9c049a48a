"""A data set of a few hundred random interactions, and the keys of runs that take a fraction of a second."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.sweep import sweep
from recbole_hyper.sweep.workers import Options
from tests.conftest import write_inter

FAST: dict[str, Any] = {
    "epochs": 2,
    "hidden_size": 8,
    "inner_size": 8,
    "n_layers": 1,
    "n_heads": 1,
    "MAX_ITEM_LIST_LENGTH": 10,
    "train_batch_size": 32,
    "topk": [5],
    "valid_metric": "NDCG@5",
    "use_gpu": False,
}


def write_data(folder: Path, sequences: list[list[int]], name: str = "tiny") -> None:
    """Write an atomic file with one interaction a second."""
    rows = [(f"u{user}", f"i{item}", time) for user, row in enumerate(sequences) for time, item in enumerate(row)]
    write_inter(folder, name, rows)


def random_sequences(seed: int = 0, users: int = 60, items: int = 25) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.permutation(items)[: generator.integers(6, 12)].tolist() for _ in range(users)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data_path that holds the data set "tiny"."""
    write_data(tmp_path / "data", random_sequences())
    return tmp_path / "data"


@pytest.fixture
def keys(data: Path) -> dict[str, Any]:
    """Keys of a quick run on "tiny"."""
    return {**FAST, "data_path": str(data)}


# not in the order of the alphabet: a resume must keep the order of the file
SPACE = {"n_layers": {"grid_search": [1, 2]}, "learning_rate": {"grid_search": [0.001, 0.01]}}


def local(keys: dict[str, Any], folder: Path, space: Any = SPACE, **more: Any) -> dict[str, Any]:
    options = {key: more.pop(key) for key in ("search", "num_samples", "time_budget") if key in more}
    config = {**{key: keys[key] for key in keys if key not in space}, "output_dir": str(folder), **more}
    return sweep("SASRecCE", "tiny", space=space, config_dict=config, **options)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, dict[str, Any], str]:
    """The keys, folder, outcome and printed text of a whole sweep of SPACE."""
    folder = tmp_path_factory.mktemp("swept")
    write_data(folder / "data", random_sequences())
    keys = {**FAST, "data_path": str(folder / "data")}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(Options, "alone", True)
        outcome = local(keys, folder / "s")
    return keys, folder / "s", outcome, printed.getvalue()
