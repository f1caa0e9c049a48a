"""Data that several processes share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data import cache
from recbole_hyper.training.build import read_data
from recbole_hyper.training.shared import mapped, share
from tests.conftest import SMALL

PLAIN = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "epochs": 4, "topk": [5], "valid_metric": "NDCG@5"}


def settings(data: Path, folder: Path, **more: Any) -> dict[str, Any]:
    return {**SMALL, **PLAIN, "data_path": str(data), "output_dir": str(folder), "use_gpu": False, **more}


def test_workers_map_the_files_of_the_cache(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST", 0)
    config = Config("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))
    data, split = read_data(config)
    share(data, split, tmp_path / "shared")
    (kept,) = (tmp_path / "cache").rglob("items.npy")
    assert (tmp_path / "shared" / "data" / "items.npy").samefile(kept)
    monkeypatch.setattr("recbole_hyper.data.dataset.read_store", lambda source: pytest.fail("the files were read"))
    shutil.rmtree(kept.parent)  # what is linked outlives the cache
    again, its_split = mapped(config, tmp_path / "shared", test=True)
    assert isinstance(again.store.items, np.memmap)
    assert again.store.items.tolist() == data.store.items.tolist()
    assert its_split.test.targets.tolist() == split.test.targets.tolist()
