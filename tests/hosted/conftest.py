"""Runs by RecBole's own functions."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed

import recbole_hyper
from tests.conftest import SMALL

KEYS = {**SMALL, "topk": [5], "metrics": ["NDCG", "Hit", "MRR", "ItemCoverage"], "valid_metric": "NDCG@5"}
KEYS |= {"eval_args": {"mode": "full"}, "rank": 8}


@pytest.fixture
def settings(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the keys of a run on "random"; RecBole writes its logs into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["script.py"])
    handlers = list(logging.getLogger().handlers)
    yield {**KEYS, "data_path": str(random_data), "use_gpu": False}
    for handler in logging.getLogger().handlers[:]:
        if handler not in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()


def ours(model: str, settings: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return recbole_hyper.run(model, "random", config_dict={**settings, **keys, "output_dir": "own"})


def prepared(model: Any, settings: dict[str, Any], **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return configuration and the three parts of the data by RecBole's functions."""
    config = Config(model, "random", config_dict={**settings, **keys})
    init_seed(config["seed"], config["reproducibility"])
    return config, *data_preparation(config, create_dataset(config))


def trained(model: Any, settings: dict[str, Any], **keys: Any) -> tuple[Any, Any, tuple[float, Any]]:
    """Return trainer, test part and the result of fit."""
    config, train, valid, test = prepared(model, settings, **keys)
    init_seed(config["seed"], config["reproducibility"])
    network = get_model(config["model"])(config, train._dataset).to(config["device"])
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    return trainer, test, trainer.fit(train, valid, saved=True, show_progress=False)
