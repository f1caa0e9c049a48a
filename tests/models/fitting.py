"""Fitted linear models for the tests, and histories as plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config import Config
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.build import build
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.types import Cases

SUCCESSIVE = {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True}


def prepared(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return (model, config, split, loader)."""
    config = Config(model, "random", config_dict={"data_path": str(data), "use_gpu": False, **keys})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    net, loader, _ = build(config, dataset, split, split.train_lengths)
    return net, config, split, loader


def fitted(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any]:
    """Return (fitted model, config, split)."""
    net, config, split, loader = prepared(model, data, **keys)
    assert len(loader) == 1
    for batch in loader:
        assert float(net.calculate_loss(batch).detach()) == 0.0
    return net, config, split


def dense_train(net: Any) -> np.ndarray:
    return net.matrix.toarray().astype(np.float64)


def dense_histories(cases: Cases) -> np.ndarray:
    """Binary histories, one case and one item at a time."""
    result = np.zeros((len(cases), cases.store.n_items))
    for index, (row, start, end) in enumerate(zip(cases.rows, cases.starts, cases.ends, strict=True)):
        for item in cases.store.row(row)[start:end]:
            result[index, item] = 1.0
    return result
