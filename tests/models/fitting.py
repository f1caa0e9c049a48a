"""Models before their training, fitted linear models, and histories as plain arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config import Config
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.types import Cases

SUCCESSIVE = {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True}


def built(model: Any, dataset: str, keys: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return (model, config, split, loader) of a run that has not begun."""
    config = Config(model, dataset, config_dict=keys)
    data, split = read_data(config)
    net, loader, _ = build(config, data, split, split.train_lengths)
    return net, config, split, loader


def prepared(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return what :func:`built` returns, of the data set "random"."""
    return built(model, "random", {"data_path": str(data), "use_gpu": False, **keys})


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
