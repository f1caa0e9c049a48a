"""One small finished run for the tests of what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.serving.recommender import Recommender
from tests.conftest import SMALL, write_inter

ITEMS = 12


def keys(data: Path, folder: Path, **more: object) -> dict:
    return {**SMALL, "data_path": str(data), "output_dir": str(folder), "epochs": 1, "use_gpu": False, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on 30 users u0 .. u29 and items i0 .. i11, of which i0 is the most popular, then i1, ..."""
    place = tmp_path_factory.mktemp("served")
    rows = [
        (f"u{user}", f"i{(user * step) % ITEMS if step else user % (1 + user % ITEMS)}", 1000 + step)
        for user in range(30)
        for step in range(8)
    ]
    write_inter(place / "data", "small", rows)
    run("SASRecCE", "small", config_dict=keys(place / "data", place / "run"))
    return place / "run"


@pytest.fixture(scope="module")
def model(folder: Path) -> Recommender:
    """The loaded run."""
    return load(folder)
