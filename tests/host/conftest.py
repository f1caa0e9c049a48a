"""The published models of ``published/``, and a data set for them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_inter

PUBLISHED = Path(__file__).parent / "published"


# by model: its file
FILES = {
    "GatedAverage": "gated_average.py",
    "WeightedPool": "weighted_pool.py",
    "Fading": "fading.py",
    "NamedItems": "named_items.py",
    "Together": "together.py",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the published files and a data set "d": items follow one another, users come and go."""
    shutil.copytree(PUBLISHED, tmp_path / "models")
    draw = np.random.default_rng(1)
    rows = []
    for user in range(30):
        first, start = int(draw.integers(20)), int(draw.integers(40))
        rows += [
            (f"u{user}", f"i{(first + step) % 20}", 10 * (start + step) + user % 10)
            for step in range(int(draw.integers(6, 12)))
        ]
    write_inter(tmp_path / "data", "d", rows)
    monkeypatch.chdir(tmp_path / "models")
    return tmp_path


def keys(place: Path, model: str, **more: Any) -> dict[str, Any]:
    return {
        "data_path": str(place / "data"),
        "plugins": FILES.get(model, "cheat.py"),
        "output_dir": str(place / "runs" / model),
        "use_gpu": False,
        "show_progress": False,
        "epochs": 2,
        "topk": [5, 10],
        "MAX_ITEM_LIST_LENGTH": 6,
        **more,
    }
